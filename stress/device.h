// SPDX-License-Identifier: Apache-2.0
// The device of a run: the simulated one or the system's. One per process, as simcuda has one state
// per process. Allocators that call the driver themselves do it through stress_driver().
#ifndef STRESS_DEVICE_H
#define STRESS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cuda_abi.h"
#include "base/emit.h"
#include "drv/drv.h"
#include "simcuda.h"

// Driver calls by berm_drv_kind_t, as a statistic of libberm has them too.
typedef union stress_calls {
    uint64_t of[BERM_DRV_KIND_COUNT];
    berm_driver_calls_t by_name;
} stress_calls_t;

const char *stress_call_name(berm_drv_kind_t kind);        // "set_access"
uint64_t stress_calls_memory(const stress_calls_t *calls); // all but events, waits and other
uint64_t stress_calls_all(const stress_calls_t *calls);
stress_calls_t stress_calls_minus(const stress_calls_t *a, const stress_calls_t *b);
// The members of the JSON object of `berm replay`, in its order.
void stress_calls_emit(berm_emit_t *emit, const stress_calls_t *calls);

// The driver's functions that the baselines and the harness use.
typedef struct stress_driver {
    berm_cu_init_fn init;
    berm_cu_device_get_fn device_get;
    berm_cu_primary_ctx_retain_fn ctx_retain;
    berm_cu_primary_ctx_release_fn ctx_release;
    berm_cu_ctx_set_current_fn ctx_set_current;
    berm_cu_mem_get_info_fn mem_get_info;
    berm_cu_mem_alloc_fn mem_alloc;
    berm_cu_mem_free_fn mem_free;
    berm_cu_mem_address_reserve_fn address_reserve;
    berm_cu_mem_address_free_fn address_free;
    berm_cu_mem_create_fn mem_create;
    berm_cu_mem_release_fn mem_release;
    berm_cu_mem_map_fn mem_map;
    berm_cu_mem_unmap_fn mem_unmap;
    berm_cu_mem_set_access_fn set_access;
    berm_cu_mem_get_granularity_fn get_granularity;
    berm_cu_stream_create_fn stream_create;
    berm_cu_stream_destroy_fn stream_destroy;
    berm_cu_stream_synchronize_fn stream_synchronize;
    berm_cu_stream_wait_event_fn stream_wait_event;
    berm_cu_event_create_fn event_create;
    berm_cu_event_destroy_fn event_destroy;
    berm_cu_event_record_fn event_record;
    berm_cu_event_query_fn event_query;
    berm_cu_event_synchronize_fn event_synchronize;
} stress_driver_t;

// simcuda.h's functions in the loaded driver.
typedef struct stress_simcuda {
    void (*config_default)(simcuda_config_t *config);
    int (*reset)(const simcuda_config_t *config);
    int (*costs_preset)(const char *name, simcuda_costs_t *costs);
    uint64_t (*now_ns)(void);
    void (*advance_ns)(uint64_t ns);
    uint64_t (*driver_ns)(void);
    uint64_t (*wait_ns)(void);
    int (*launch)(void *stream, uint64_t duration_ns, const simcuda_access_t *accesses,
                  size_t count);
    int (*launch_fn)(void *stream, uint64_t duration_ns, const simcuda_access_t *accesses,
                     size_t count, simcuda_kernel_fn fn, void *arg);
    int (*gate)(void *stream, const simcuda_access_t *accesses, size_t count, uint64_t *gate);
    int (*gate_open)(uint64_t gate);
    uint64_t (*hazard_count)(void);
    uint64_t (*hazard_count_of)(simcuda_hazard_kind_t kind);
    int (*hazard_read)(uint64_t index, simcuda_hazard_t *hazard);
    void (*ledger_read)(int device, simcuda_ledger_t *ledger);
    uint64_t (*calls)(const char *name);
} stress_simcuda_t;

typedef struct stress_device_options {
    const char *name;        // "sim", "cuda" or "cuda:N"
    uint64_t capacity_bytes; // of the simulated device; 0: its default
    const char *latency; // "fast", "typical", "slow" or a file (stress/latency.h); NULL: typical
    bool is_strict;      // the first hazard aborts
    // Switches of the simulated device, as simcuda.h has them.
    bool is_backed, drains_map, faults_page_edits;
    uint64_t pdl_overlap_ns, stale_map_ns;
    uint64_t granule_bytes; // 0: its default
} stress_device_options_t;

// Loads the driver and makes the device's primary context current. 0, or -1 with a line in `error`.
// The simulated libcuda.so.1 is looked for in $BERM_LIBCUDA_SIM, then relative to the executable:
// ../lib/simcuda/, lib/simcuda/, ../lib/berm/simcuda/.
int stress_device_open(const stress_device_options_t *options, char *error, size_t error_capacity);
// Simulated: everything on the device is destroyed and a new one of `capacity_bytes` (0: as opened)
// made. Real: nothing happens. 0, or -1 with a line.
int stress_device_reset(uint64_t capacity_bytes, char *error, size_t error_capacity);
void stress_device_close(void);

// Stores the function `name` of the loaded driver `library` in the function pointer at `function`.
// False and a line in `error` if the driver lacks it.
bool stress_device_symbol(void *library, const char *name, void *function, char *error,
                          size_t error_capacity);

bool stress_device_is_simulated(void);
uint64_t stress_device_memory_bytes(void); // all of it; 0: unknown
int stress_device_ordinal(void);
const stress_simcuda_t *stress_simcuda(void); // NULL on a real device
// For allocators: on a real device every call through it is counted and timed.
const stress_driver_t *stress_driver(void);
// For the harness: never counted as the allocator's on a real device.
const stress_driver_t *stress_driver_raw(void);

// All driver calls so far of the process (simulated) or through stress_driver() (real), plus those
// of the source.
stress_calls_t stress_device_calls(void);
uint64_t stress_device_calls_all(void); // the sum of them, in little time
uint64_t stress_device_driver_ns(void); // time spent in them, waits apart where simulated
// An allocator that calls a real driver by itself says here how to read its count; NULL ends it.
void stress_device_source_set(void (*read)(stress_calls_t *calls));

#endif
