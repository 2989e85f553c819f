// SPDX-License-Identifier: Apache-2.0
// simcuda: control of the simulated CUDA device.
//
// simcuda's libcuda.so.1 has the driver's public names, so that a program made for hardware runs on
// it unchanged. What a test, a replay or a demo needs beyond that is here: how the device is made,
// its virtual clock, modelled work, faults, the ledger and the list of hazards. A program that is
// not linked with it finds these functions with dlsym in the loaded libcuda.so.1; a driver without
// them is real hardware.
//
// TIME is virtual, in nanoseconds from 0. Every driver call moves the host's clock forward by what
// the preset says; each stream is a queue of modelled work with its own time. A call that waits
// moves the host's clock to the end of what it waits for. Nothing ever sleeps, and the same calls
// give the same times. The realtime switch, for demos, gives that up: see is_realtime.
//
// HAZARDS are uses of memory that real hardware lets pass in silence: each is recorded with both
// sides. In strict mode the first one is printed and aborts the process.
//
// All functions are thread-safe. One device state per process.
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SIMCUDA_DEVICE_MAX = 16
};

// What one call costs the host: base_ns + per_mapping_ns * mappings covered + ns_per_mib * MiB.
typedef struct simcuda_cost {
    uint64_t base_ns;
    uint64_t per_mapping_ns;
    uint64_t ns_per_mib;
} simcuda_cost_t;

typedef struct simcuda_costs {
    simcuda_cost_t reserve, address_free, create, release, map, set_access, unmap;
    simcuda_cost_t malloc_, free_; // cuMemAlloc, cuMemFree (which also waits for the device)
    simcuda_cost_t event_record, event_query, stream_wait, synchronize, mem_info, other;
} simcuda_costs_t;

// The presets "fast", "typical" and "slow" (facts quoted in docs/simcuda.md; all are estimates
// until `berm calibrate` has run on hardware). Returns 0, or -1 for an unknown name.
int simcuda_costs_preset(const char *name, simcuda_costs_t *costs);

// The same from a preset's name or a latency file, one "key=value" a line, "#" starts a comment:
// "preset=fast|typical|slow" (typical is loaded first), or CALL.FIELD=NUMBER with CALL one of
// reserve address_free create release map set_access unmap malloc free event_record event_query
// stream_wait synchronize mem_info other, FIELD one of base_ns per_mapping_ns ns_per_mib, and
// NUMBER whole and up to 10^12. 0, or -1 with "FILE:LINE: what" in `error`, *costs unspecified.
int simcuda_costs_read(const char *name, simcuda_costs_t *costs, char *error, size_t capacity);

// What the driver, the runtime and NVML say about a device; one kind of device a process.
typedef struct simcuda_gpu {
    char name[64];
    uint64_t memory_bytes;  // as cuDeviceTotalMem tells it, which is less than the round figure
    uint64_t context_bytes; // taken while the process has a context on the device: an estimate
    uint64_t l2_bytes;
    int capability_major, capability_minor; // compute capability
    int multiprocessors;
    int clock_khz, memory_clock_khz; // the highest
    int memory_bus_bits;
    int threads_per_multiprocessor, blocks_per_multiprocessor;
    int shared_multiprocessor_bytes; // shared memory of a multiprocessor
    int shared_block_bytes;          // of it, what a block can have that opts in
    int has_rdma;                    // 1: memory for direct access by other devices (NICs)
    int has_peers;                   // 1: devices of this kind can reach each other's memory
    int has_ecc;
} simcuda_gpu_t;

// A device by its preset's name (A100-40, A100-80, H100-80, H200-141, L4-24, RTX4090-24, T4-16,
// B200-192) or from a device file: lines of "key=value", "#" starts a comment. "preset=NAME" loads
// that preset; "name=TEXT" has up to 63 characters; "capability=9.0"; every other key is a field of
// simcuda_gpu_t with a whole number, with or without K, M, G or T (powers of 1,024). What a file
// does not say is as the device of simcuda_config_default. 0, or -1 with "FILE:LINE: what" or the
// names that there are in `error`, *gpu unspecified.
int simcuda_gpu_read(const char *name, simcuda_gpu_t *gpu, char *error, size_t capacity);
// The index-th preset's name; NULL past the end. A static string.
const char *simcuda_gpu_name(size_t index);

typedef struct simcuda_config {
    size_t size;             // sizeof(simcuda_config_t)
    int devices;             // 1 to SIMCUDA_DEVICE_MAX
    int driver_version;      // as cuDriverGetVersion; 13000
    uint64_t memory_bytes;   // of each device; 80 GiB
    uint64_t outside_bytes;  // held by "other processes" on each device; 0
    uint64_t granule_bytes;  // 2 MiB; a power of two
    uint64_t address_bytes;  // addresses that can be reserved in all; 128 TiB
    uint64_t mappings_max;   // ceiling on mappings; 0: none
    uint64_t handles_max;    // ceiling on handles (file descriptors); 0: none
    int has_vmm;             // 0: every VMM call is NOT_SUPPORTED and the attribute says no
    int has_ctx_event;       // 0: cuCtxRecordEvent is absent
    int is_strict;           // 1: the first hazard aborts
    int drains_map;          // 1: map, set_access and unmap wait for all work of the device
    int faults_page_edits;   // 1: a page-table edit under running kernels is an illegal address
    uint64_t stale_map_ns;   // a fresh mapping reads stale zeros for this long (gfx12); 0
    uint64_t pdl_overlap_ns; // a kernel starts up to this long before the kernel before it ends; 0
    int is_backed;           // 1: memory has contents, and kernels are host functions (see below)
    int is_realtime;         // 1: the host's clock follows the real one, and waits really wait
    simcuda_costs_t costs;
    int lacks_peers;    // 1: no device has access to another's memory
    uint64_t kernel_ns; // how long a program's kernels run (simcuda_launch_kernel); 10,000
    uint64_t launch_ns; // what launching one costs the host; 4,000
    // 1: backed mode, and somebody else carries out what kernels do, right after each launch:
    // copies and fills act when they are launched, whatever the clock says; those of a graph do not
    // act.
    int acts_at_launch;
    // What each device is; its memory is memory_bytes above. context_bytes and outside_bytes
    // together must leave room for one granule.
    simcuda_gpu_t gpu;
    int has_capture_edits; // 1: calls that edit mappings are not unsafe in a capture; 0
} simcuda_config_t;

// The defaults: one 80 GiB device of compute capability 9.0 whose contexts take nothing, VMM,
// "typical" costs, not strict.
void simcuda_config_default(simcuda_config_t *config);
// Makes the devices of *config of the kind `gpu`, with its memory and whether it has peers.
void simcuda_config_gpu(simcuda_config_t *config, const simcuda_gpu_t *gpu);
// What the devices are now. 0, or -1 in a forked child (*config is the default then).
int simcuda_config_read(simcuda_config_t *config);

// Destroys all device state (contexts, memory, streams, ledger, hazards, faults, clock) and makes a
// new one. NULL is the default. Before the first reset the environment decides, where set:
// SIMCUDA_GPU (a preset or a device file; SIMCUDA_MEMORY goes before its memory),
// SIMCUDA_MEMORY (bytes, or with K, M, G, T), SIMCUDA_DEVICES, SIMCUDA_LATENCY (a preset or a
// file), SIMCUDA_STRICT, SIMCUDA_VMM, SIMCUDA_OUTSIDE, SIMCUDA_BACKED, SIMCUDA_REALTIME,
// SIMCUDA_ACTS_AT_LAUNCH, SIMCUDA_PDL_OVERLAP_NS, SIMCUDA_CAPTURE_EDITS, SIMCUDA_KERNEL_NS,
// SIMCUDA_LAUNCH_NS. Returns 0, or -1: with nothing changed when a value is out of range, without a
// device when the host has no memory (or, backed, no addresses) for it.
int simcuda_reset(const simcuda_config_t *config);

// --- time ------------------------------------------------------------------------------------

uint64_t simcuda_now_ns(void);        // the host's clock
void simcuda_advance_ns(uint64_t ns); // the host computes for a while; sleeps with is_realtime
uint64_t simcuda_driver_ns(void);     // host time spent in driver calls so far, waits apart
uint64_t simcuda_wait_ns(void);       // host time spent waiting for the device so far

// --- modelled work ---------------------------------------------------------------------------

typedef struct simcuda_access {
    uint64_t addr;
    uint64_t size_bytes;
    int is_write;
} simcuda_access_t;

// Queues a kernel on `stream` (a CUstream of the current context; NULL is the legacy default
// stream) that runs `duration_ns` and touches `accesses`. Returns a CUresult (a sticky error of the
// context included); launch itself costs the host nothing.
int simcuda_launch(void *stream, uint64_t duration_ns, const simcuda_access_t *accesses,
                   size_t count);

// Queues a kernel of a real program, which nobody can run: it touches nothing that is known and
// runs `duration_ns`, or with 0 what the configuration says; launching it costs the host launch_ns.
// Returns a CUresult.
int simcuda_launch_kernel(void *stream, uint64_t duration_ns);

// Backed mode. Device addresses are addresses of this process: memory has contents, two mappings of
// one handle show the same bytes, and the host can touch what some device may (cuMemSetAccess) and
// nothing else. Copies and fills act, and kernels are host functions: `fn(arg)` runs once the
// host's clock has passed the kernel's end, in the order of ends, inside whichever call moved the
// clock. It is device code: it may touch the memory named in `accesses` and must call no function
// of the driver or of this file (they return NOT_PERMITTED or do nothing). It is not run if, by
// then, any of `accesses` is not mapped or not accessible, or the context has an error. Host memory
// of copies is as if pinned: it is read or written when the copy is due. NOT_SUPPORTED in metadata
// mode.
typedef void (*simcuda_kernel_fn)(void *arg);
int simcuda_launch_fn(void *stream, uint64_t duration_ns, const simcuda_access_t *accesses,
                      size_t count, simcuda_kernel_fn fn, void *arg);

// Queues work that ends only when simcuda_gate_open is called with the gate's number (written to
// *gate): a kernel whose end the test decides. Waiting on a gate that is closed, with a call that
// blocks the host, is a deadlock: the gate is opened and a hazard recorded.
int simcuda_gate(void *stream, const simcuda_access_t *accesses, size_t count, uint64_t *gate);
int simcuda_gate_open(uint64_t gate);

// --- hazards ---------------------------------------------------------------------------------

typedef enum simcuda_hazard_kind {
    SIMCUDA_HAZARD_NONE = 0,
    SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK, // unmap or last release while work may touch the range
    SIMCUDA_HAZARD_USE_UNMAPPED,        // work on addresses with no memory behind them
    SIMCUDA_HAZARD_USE_NO_ACCESS,       // work on mapped memory without access
    SIMCUDA_HAZARD_RACE,                // two uses, one a write, not ordered by stream or event
    SIMCUDA_HAZARD_ALIAS,               // the same through two addresses of one handle
    SIMCUDA_HAZARD_STALE_MAP,           // work on a mapping before it is visible (gfx12)
    SIMCUDA_HAZARD_EDIT_UNDER_WORK,     // page-table edit under running work (Volta)
    SIMCUDA_HAZARD_DOUBLE_RELEASE,      // release of a dead handle
    SIMCUDA_HAZARD_RETAIN_UNMAPPED,     // retain of an address with no mapping
    SIMCUDA_HAZARD_DOUBLE_FREE,         // cuMemFree of what is not allocated
    SIMCUDA_HAZARD_DEADLOCK,            // the host waits for a closed gate
    SIMCUDA_HAZARD_KIND_COUNT
} simcuda_hazard_kind_t;

typedef struct simcuda_hazard {
    simcuda_hazard_kind_t kind;
    uint64_t addr; // where, 0 if not about an address
    uint64_t at_ns;
    char text[240]; // both sides in words
} simcuda_hazard_t;

const char *simcuda_hazard_name(simcuda_hazard_kind_t kind);
uint64_t simcuda_hazard_count(void); // all since the reset; the first 1,000 are kept
uint64_t simcuda_hazard_count_of(simcuda_hazard_kind_t kind);      // the same of one kind
int simcuda_hazard_read(uint64_t index, simcuda_hazard_t *hazard); // 0, or -1 past the kept ones
void simcuda_hazards_clear(void);

// --- ledger ----------------------------------------------------------------------------------

// The device's own account, kept apart from any allocator's.
typedef struct simcuda_ledger {
    uint64_t reservations, reserved_address_bytes;
    uint64_t handles, handle_bytes;  // alive, mapped or not
    uint64_t mappings, mapped_bytes; // an alias counts each time
    uint64_t mappings_peak, address_bytes_peak, used_bytes_peak;
    uint64_t allocations, allocation_bytes; // cuMemAlloc
    uint64_t used_bytes;                    // handle + allocation bytes (whole granules)
    uint64_t streams, events, contexts_retained;
    uint64_t imports, import_bytes; // of used_bytes: what other processes exported
    uint64_t pool_bytes;            // of used_bytes: held by memory pools
    uint64_t context_bytes;         // taken by contexts (gpu.context_bytes); not in used_bytes
} simcuda_ledger_t;

void simcuda_ledger_read(int device, simcuda_ledger_t *ledger); // device -1: all

// --- what was not real -----------------------------------------------------------------------

// How far a program that ran on this device can be believed: since the reset.
typedef struct simcuda_counters {
    uint64_t kernels; // launched by simcuda_launch_kernel: none of them computed anything
    uint64_t copies;  // copies of memory
    // Copies to the host of memory whose contents are not known (metadata mode): zeros were given.
    uint64_t host_reads;
    uint64_t host_read_bytes;
    uint64_t stub_hits; // calls of functions that do less than the real ones
} simcuda_counters_t;

void simcuda_counters_read(simcuda_counters_t *counters);

// A stand-in library tells that `name` of `library` was called and does less than the real one.
// Both are copied. Of the first 1,024 different pairs the hits are kept apart.
void simcuda_stub_hit(const char *library, const char *name);
// The index-th pair, by first hit, and its hits; 0, or -1 past the end. Static strings.
int simcuda_stub_read(size_t index, const char **library, const char **name, uint64_t *hits);

// --- faults ----------------------------------------------------------------------------------

// Fails calls from now on. `name` is a driver function ("cuMemCreate"), or NULL for every driver
// call. Counting starts at this call: the calls number `nth` (from 1) to nth + count - 1 that match
// return `result` and have no other effect. count 0 is "for ever". A second rule adds to the first.
int simcuda_fault_nth(const char *name, uint64_t nth, uint64_t count, int result);
// Fails matching calls with probability `per_million` / 1,000,000, drawn from `seed`.
int simcuda_fault_random(const char *name, uint32_t per_million, uint64_t seed, int result);
void simcuda_faults_clear(void);
uint64_t simcuda_faults_fired(void);

// Driver calls since the reset: of one function, or of all with NULL.
uint64_t simcuda_calls(const char *name);

// A device's memory as NVML sees it, which needs no context. 0, or -1: no such device, or lost.
int simcuda_memory_read(int device, uint64_t *free_bytes, uint64_t *total_bytes);

// Other processes' memory, changed while running. Returns -1 if it does not fit.
int simcuda_outside_set(int device, uint64_t bytes);

// Loses the device: every later call returns CUDA_ERROR_DEVICE_UNAVAILABLE until simcuda_reset.
void simcuda_device_lose(int device);

#ifdef __cplusplus
}
#endif

#endif
