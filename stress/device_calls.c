// SPDX-License-Identifier: Apache-2.0
// Counts driver calls by kind, on the simulated device by asking it and on a real one by wrapping
// each function; opening the driver is left to device.c.
//
// The wrappers add one clock reading at each end. Counters are plain: a replay has one thread.
#include "stress/device_calls.h"

#include <string.h>
#include <time.h>

#include "base/insist.h"

_Static_assert(sizeof(stress_calls_t) == sizeof(berm_driver_calls_t) &&
                   sizeof(stress_calls_t) == BERM_DRV_KIND_COUNT * sizeof(uint64_t),
               "a kind is a member of berm_driver_calls_t");

// In the order of the JSON.
static const struct {
    berm_drv_kind_t kind;
    const char *name;
    const char *functions[3]; // as simcuda_calls takes them
} kinds[BERM_DRV_KIND_COUNT] = {
    {BERM_DRV_RESERVE, "reserve", {"cuMemAddressReserve"}},
    {BERM_DRV_CREATE, "create", {"cuMemCreate"}},
    {BERM_DRV_MAP, "map", {"cuMemMap"}},
    {BERM_DRV_SET_ACCESS, "set_access", {"cuMemSetAccess"}},
    {BERM_DRV_UNMAP, "unmap", {"cuMemUnmap"}},
    {BERM_DRV_RELEASE, "release", {"cuMemRelease"}},
    {BERM_DRV_ADDRESS_FREE, "address_free", {"cuMemAddressFree"}},
    {BERM_DRV_MALLOC, "malloc", {"cuMemAlloc"}},
    {BERM_DRV_FREE, "free", {"cuMemFree"}},
    {BERM_DRV_EVENT_RECORD, "event_record", {"cuEventRecord", "cuCtxRecordEvent"}},
    {BERM_DRV_EVENT_QUERY, "event_query", {"cuEventQuery"}},
    {BERM_DRV_STREAM_WAIT, "stream_wait", {"cuStreamWaitEvent"}},
    {BERM_DRV_SYNCHRONIZE,
     "synchronize",
     {"cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"}},
    {BERM_DRV_OTHER, "other", {NULL}},
};

const char *stress_call_name(berm_drv_kind_t kind) {
    for (int i = 0; i < BERM_DRV_KIND_COUNT; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "?";
}

void stress_calls_emit(berm_emit_t *emit, const stress_calls_t *calls) {
    for (int i = 0; i < BERM_DRV_KIND_COUNT; i++)
        berm__emit_u64(emit, kinds[i].name, calls->of[kinds[i].kind]);
}

uint64_t stress_calls_memory(const stress_calls_t *calls) {
    uint64_t sum = 0;
    for (int i = BERM_DRV_RESERVE; i <= BERM_DRV_FREE; i++)
        sum += calls->of[i];
    return sum;
}

uint64_t stress_calls_all(const stress_calls_t *calls) {
    uint64_t sum = 0;
    for (int i = 0; i < BERM_DRV_KIND_COUNT; i++)
        sum += calls->of[i];
    return sum;
}

stress_calls_t stress_calls_minus(const stress_calls_t *a, const stress_calls_t *b) {
    stress_calls_t difference;
    for (int i = 0; i < BERM_DRV_KIND_COUNT; i++)
        difference.of[i] = a->of[i] - b->of[i];
    return difference;
}

stress_calls_t stress_calls_of_simcuda(const stress_simcuda_t *sim) {
    stress_calls_t calls = {0};
    uint64_t named = 0;
    for (size_t i = 0; i < BERM_DRV_KIND_COUNT; i++) {
        for (size_t j = 0; j < BERM_ARRAY_LENGTH(kinds[i].functions); j++) {
            if (kinds[i].functions[j] == NULL)
                break;
            uint64_t count = sim->calls(kinds[i].functions[j]);
            calls.of[kinds[i].kind] += count;
            named += count;
        }
    }
    uint64_t all = sim->calls(NULL);
    calls.of[BERM_DRV_OTHER] = all > named ? all - named : 0;
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

static berm_cu_result_t count_end(berm_drv_kind_t kind, uint64_t start_ns,
                                  berm_cu_result_t result) {
    counted_ns += clock_ns() - start_ns;
    counted.of[kind]++;
    return result;
}

#define COUNTED(kind, call)                                                                        \
    uint64_t start_ns = clock_ns();                                                                \
    return count_end(kind, start_ns, call)

static berm_cu_result_t counted_mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    COUNTED(BERM_DRV_OTHER, raw->mem_get_info(free_bytes, total_bytes));
}

static berm_cu_result_t counted_mem_alloc(berm_cu_deviceptr_t *addr, size_t bytes) {
    COUNTED(BERM_DRV_MALLOC, raw->mem_alloc(addr, bytes));
}

static berm_cu_result_t counted_mem_free(berm_cu_deviceptr_t addr) {
    COUNTED(BERM_DRV_FREE, raw->mem_free(addr));
}

static berm_cu_result_t counted_address_reserve(berm_cu_deviceptr_t *addr, size_t bytes,
                                                size_t alignment, berm_cu_deviceptr_t hint,
                                                unsigned long long flags) {
    COUNTED(BERM_DRV_RESERVE, raw->address_reserve(addr, bytes, alignment, hint, flags));
}

static berm_cu_result_t counted_address_free(berm_cu_deviceptr_t addr, size_t bytes) {
    COUNTED(BERM_DRV_ADDRESS_FREE, raw->address_free(addr, bytes));
}

static berm_cu_result_t counted_mem_create(berm_cu_mem_handle_t *handle, size_t bytes,
                                           const berm_cu_mem_prop_t *prop,
                                           unsigned long long flags) {
    COUNTED(BERM_DRV_CREATE, raw->mem_create(handle, bytes, prop, flags));
}

static berm_cu_result_t counted_mem_release(berm_cu_mem_handle_t handle) {
    COUNTED(BERM_DRV_RELEASE, raw->mem_release(handle));
}

static berm_cu_result_t counted_mem_map(berm_cu_deviceptr_t addr, size_t bytes, size_t offset,
                                        berm_cu_mem_handle_t handle, unsigned long long flags) {
    COUNTED(BERM_DRV_MAP, raw->mem_map(addr, bytes, offset, handle, flags));
}

static berm_cu_result_t counted_mem_unmap(berm_cu_deviceptr_t addr, size_t bytes) {
    COUNTED(BERM_DRV_UNMAP, raw->mem_unmap(addr, bytes));
}

static berm_cu_result_t counted_set_access(berm_cu_deviceptr_t addr, size_t bytes,
                                           const berm_cu_mem_access_t *access, size_t count) {
    COUNTED(BERM_DRV_SET_ACCESS, raw->set_access(addr, bytes, access, count));
}

static berm_cu_result_t counted_stream_synchronize(berm_cu_stream_t stream) {
    COUNTED(BERM_DRV_SYNCHRONIZE, raw->stream_synchronize(stream));
}

static berm_cu_result_t counted_stream_wait_event(berm_cu_stream_t stream, berm_cu_event_t event,
                                                  unsigned flags) {
    COUNTED(BERM_DRV_STREAM_WAIT, raw->stream_wait_event(stream, event, flags));
}

static berm_cu_result_t counted_event_record(berm_cu_event_t event, berm_cu_stream_t stream) {
    COUNTED(BERM_DRV_EVENT_RECORD, raw->event_record(event, stream));
}

static berm_cu_result_t counted_event_query(berm_cu_event_t event) {
    COUNTED(BERM_DRV_EVENT_QUERY, raw->event_query(event));
}

static berm_cu_result_t counted_event_synchronize(berm_cu_event_t event) {
    COUNTED(BERM_DRV_SYNCHRONIZE, raw->event_synchronize(event));
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
