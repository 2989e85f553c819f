// SPDX-License-Identifier: Apache-2.0
// Counts driver calls by kind, on the simulated device by asking it and on a real one by wrapping
// each function; opening the driver is left to device.c.
//
// The wrappers add one clock reading at each end. Counters are plain: a replay has one thread.
#include "stress/device_calls.h"

#include <string.h>
#include <time.h>

#include "base/insist.h"

static const char *const call_names[STRESS_CALL_KIND_COUNT] = {
    "reserve",     "create",       "map",         "set_access", "unmap",
    "release",     "address_free", "malloc",      "free",       "event_record",
    "event_query", "stream_wait",  "synchronize", "other",
};

const char *stress_call_name(stress_call_kind_t kind) {
    return call_names[kind];
}

uint64_t stress_calls_memory(const stress_calls_t *calls) {
    uint64_t sum = 0;
    for (int i = STRESS_CALL_RESERVE; i <= STRESS_CALL_FREE; i++)
        sum += calls->of[i];
    return sum;
}

uint64_t stress_calls_all(const stress_calls_t *calls) {
    uint64_t sum = 0;
    for (int i = 0; i < STRESS_CALL_KIND_COUNT; i++)
        sum += calls->of[i];
    return sum;
}

stress_calls_t stress_calls_minus(const stress_calls_t *a, const stress_calls_t *b) {
    stress_calls_t difference;
    for (int i = 0; i < STRESS_CALL_KIND_COUNT; i++)
        difference.of[i] = a->of[i] - b->of[i];
    return difference;
}

static const struct {
    stress_call_kind_t kind;
    const char *name;
} sim_names[] = {
    {STRESS_CALL_RESERVE, "cuMemAddressReserve"},
    {STRESS_CALL_CREATE, "cuMemCreate"},
    {STRESS_CALL_MAP, "cuMemMap"},
    {STRESS_CALL_SET_ACCESS, "cuMemSetAccess"},
    {STRESS_CALL_UNMAP, "cuMemUnmap"},
    {STRESS_CALL_RELEASE, "cuMemRelease"},
    {STRESS_CALL_ADDRESS_FREE, "cuMemAddressFree"},
    {STRESS_CALL_MALLOC, "cuMemAlloc"},
    {STRESS_CALL_FREE, "cuMemFree"},
    {STRESS_CALL_EVENT_RECORD, "cuEventRecord"},
    {STRESS_CALL_EVENT_RECORD, "cuCtxRecordEvent"},
    {STRESS_CALL_EVENT_QUERY, "cuEventQuery"},
    {STRESS_CALL_STREAM_WAIT, "cuStreamWaitEvent"},
    {STRESS_CALL_SYNCHRONIZE, "cuEventSynchronize"},
    {STRESS_CALL_SYNCHRONIZE, "cuStreamSynchronize"},
    {STRESS_CALL_SYNCHRONIZE, "cuCtxSynchronize"},
};

stress_calls_t stress_calls_of_simcuda(const stress_simcuda_t *sim) {
    stress_calls_t calls = {0};
    uint64_t named = 0;
    for (size_t i = 0; i < sizeof sim_names / sizeof sim_names[0]; i++) {
        uint64_t count = sim->calls(sim_names[i].name);
        calls.of[sim_names[i].kind] += count;
        named += count;
    }
    uint64_t all = sim->calls(NULL);
    calls.of[STRESS_CALL_OTHER] = all > named ? all - named : 0;
    return calls;
}

// --- wrappers for a real driver ----------------------------------------------------------------

static const stress_driver_t *raw;
static stress_calls_t counted;
static uint64_t counted_ns;

static uint64_t clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static berm_cu_result_t count_end(stress_call_kind_t kind, uint64_t start_ns,
                                  berm_cu_result_t result) {
    counted_ns += clock_ns() - start_ns;
    counted.of[kind]++;
    return result;
}

#define COUNTED(kind, call)                                                                        \
    uint64_t start_ns = clock_ns();                                                                \
    return count_end(kind, start_ns, call)

static berm_cu_result_t counted_mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    COUNTED(STRESS_CALL_OTHER, raw->mem_get_info(free_bytes, total_bytes));
}

static berm_cu_result_t counted_mem_alloc(berm_cu_deviceptr_t *addr, size_t bytes) {
    COUNTED(STRESS_CALL_MALLOC, raw->mem_alloc(addr, bytes));
}

static berm_cu_result_t counted_mem_free(berm_cu_deviceptr_t addr) {
    COUNTED(STRESS_CALL_FREE, raw->mem_free(addr));
}

static berm_cu_result_t counted_address_reserve(berm_cu_deviceptr_t *addr, size_t bytes,
                                                size_t alignment, berm_cu_deviceptr_t hint,
                                                unsigned long long flags) {
    COUNTED(STRESS_CALL_RESERVE, raw->address_reserve(addr, bytes, alignment, hint, flags));
}

static berm_cu_result_t counted_address_free(berm_cu_deviceptr_t addr, size_t bytes) {
    COUNTED(STRESS_CALL_ADDRESS_FREE, raw->address_free(addr, bytes));
}

static berm_cu_result_t counted_mem_create(berm_cu_mem_handle_t *handle, size_t bytes,
                                           const berm_cu_mem_prop_t *prop,
                                           unsigned long long flags) {
    COUNTED(STRESS_CALL_CREATE, raw->mem_create(handle, bytes, prop, flags));
}

static berm_cu_result_t counted_mem_release(berm_cu_mem_handle_t handle) {
    COUNTED(STRESS_CALL_RELEASE, raw->mem_release(handle));
}

static berm_cu_result_t counted_mem_map(berm_cu_deviceptr_t addr, size_t bytes, size_t offset,
                                        berm_cu_mem_handle_t handle, unsigned long long flags) {
    COUNTED(STRESS_CALL_MAP, raw->mem_map(addr, bytes, offset, handle, flags));
}

static berm_cu_result_t counted_mem_unmap(berm_cu_deviceptr_t addr, size_t bytes) {
    COUNTED(STRESS_CALL_UNMAP, raw->mem_unmap(addr, bytes));
}

static berm_cu_result_t counted_set_access(berm_cu_deviceptr_t addr, size_t bytes,
                                           const berm_cu_mem_access_t *access, size_t count) {
    COUNTED(STRESS_CALL_SET_ACCESS, raw->set_access(addr, bytes, access, count));
}

static berm_cu_result_t counted_stream_synchronize(berm_cu_stream_t stream) {
    COUNTED(STRESS_CALL_SYNCHRONIZE, raw->stream_synchronize(stream));
}

static berm_cu_result_t counted_stream_wait_event(berm_cu_stream_t stream, berm_cu_event_t event,
                                                  unsigned flags) {
    COUNTED(STRESS_CALL_STREAM_WAIT, raw->stream_wait_event(stream, event, flags));
}

static berm_cu_result_t counted_event_record(berm_cu_event_t event, berm_cu_stream_t stream) {
    COUNTED(STRESS_CALL_EVENT_RECORD, raw->event_record(event, stream));
}

static berm_cu_result_t counted_event_query(berm_cu_event_t event) {
    COUNTED(STRESS_CALL_EVENT_QUERY, raw->event_query(event));
}

static berm_cu_result_t counted_event_synchronize(berm_cu_event_t event) {
    COUNTED(STRESS_CALL_SYNCHRONIZE, raw->event_synchronize(event));
}

void stress_driver_wrap(const stress_driver_t *driver, stress_driver_t *wrapped) {
    raw = driver;
    counted = (stress_calls_t){0};
    counted_ns = 0;
    *wrapped = *driver;
    wrapped->mem_get_info = counted_mem_get_info;
    wrapped->mem_alloc = counted_mem_alloc;
    wrapped->mem_free = counted_mem_free;
    wrapped->address_reserve = counted_address_reserve;
    wrapped->address_free = counted_address_free;
    wrapped->mem_create = counted_mem_create;
    wrapped->mem_release = counted_mem_release;
    wrapped->mem_map = counted_mem_map;
    wrapped->mem_unmap = counted_mem_unmap;
    wrapped->set_access = counted_set_access;
    wrapped->stream_synchronize = counted_stream_synchronize;
    wrapped->stream_wait_event = counted_stream_wait_event;
    wrapped->event_record = counted_event_record;
    wrapped->event_query = counted_event_query;
    wrapped->event_synchronize = counted_event_synchronize;
}

stress_calls_t stress_calls_of_wrappers(void) {
    return counted;
}

uint64_t stress_driver_ns_of_wrappers(void) {
    return counted_ns;
}
