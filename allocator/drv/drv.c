// SPDX-License-Identifier: Apache-2.0
// Loading the driver and keeping count of what is called: see drv.h.
//
// Entries come from cuGetProcAddress, not from dlsym, so that each has the version this code was
// written for whatever the driver's newest is. A driver too old for cuGetProcAddress (before 11.3)
// has no memory management that berm could use, and counts as no driver.
#include "drv/drv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "host/clock.h"

static const struct entry {
    const char *symbol;
    int version;
    bool is_required;
    size_t offset; // of the function pointer in berm_drv_t
} entries[BERM_DRV_ENTRY_COUNT] = {
#define REQUIRED true
#define OPTIONAL false
#define BERM_DRV_ENTRY(field, type, symbol, version, need)                                         \
    {#symbol, version, need, offsetof(berm_drv_t, field)},
#include "drv/drv.def"
#undef BERM_DRV_ENTRY
#undef REQUIRED
#undef OPTIONAL
};

static _Thread_local struct {
    const char *symbol;
    int result;
    uint64_t count;
} last_error;

uint64_t berm__drv_error_count(void) {
    return last_error.count;
}

const char *berm__drv_error_last(int *result) {
    if (result != NULL)
        *result = last_error.result;
    return last_error.symbol;
}

static _Thread_local uint64_t call_start_ns; // of a timed call; 0: of none

void berm__drv_time_begin(void) {
    call_start_ns = berm__clock_ns();
}

static void time_end(berm_drv_t *drv, berm_drv_kind_t kind) {
    uint64_t spent_ns = berm__clock_ns() - call_start_ns;
    call_start_ns = 0;
    atomic_fetch_add_explicit(&drv->timed_calls[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&drv->timed_ns[kind], spent_ns, memory_order_relaxed);
}

uint64_t berm__drv_mean_ns(berm_drv_t *drv, berm_drv_kind_t kind) {
    uint64_t calls = atomic_load(&drv->timed_calls[kind]);
    return calls > 0 ? atomic_load(&drv->timed_ns[kind]) / calls : 0;
}

berm_cu_result_t berm__drv_note(berm_drv_t *drv, berm_drv_kind_t kind, berm_drv_entry_t entry,
                                berm_cu_result_t result) {
    if (BERM_UNLIKELY(call_start_ns != 0))
        time_end(drv, kind);
    atomic_fetch_add_explicit(&drv->calls[kind], 1, memory_order_relaxed);
    if (BERM_UNLIKELY(result != BERM_CU_SUCCESS && result != BERM_CU_NOT_READY)) {
        last_error.symbol = entries[entry].symbol;
        last_error.result = result;
        last_error.count++;
        if (result == BERM_CU_DEINITIALIZED)
            atomic_store(&drv->is_gone, true);
    }
    return result;
}

berm_status_t berm__drv_status(berm_cu_result_t result) {
    switch (result) {
    case BERM_CU_SUCCESS:
        return BERM_OK;
    case BERM_CU_OUT_OF_MEMORY:
        return BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    case BERM_CU_NO_DEVICE:
    case BERM_CU_STUB_LIBRARY:
        return BERM_ERROR_NO_DRIVER;
    case BERM_CU_INVALID_DEVICE:
        return BERM_ERROR_DEVICE;
    case BERM_CU_NOT_SUPPORTED:
        return BERM_ERROR_UNSUPPORTED;
    case BERM_CU_STREAM_CAPTURE_UNSUPPORTED:
    case BERM_CU_STREAM_CAPTURE_INVALIDATED:
    case BERM_CU_STREAM_CAPTURE_MERGE:
    case BERM_CU_STREAM_CAPTURE_UNMATCHED:
    case BERM_CU_STREAM_CAPTURE_UNJOINED:
    case BERM_CU_STREAM_CAPTURE_ISOLATION:
    case BERM_CU_STREAM_CAPTURE_IMPLICIT:
    case BERM_CU_CAPTURED_EVENT:
    case BERM_CU_STREAM_CAPTURE_WRONG_THREAD:
        return BERM_ERROR_CAPTURE;
    case BERM_CU_DEINITIALIZED:
    case BERM_CU_DEVICE_UNAVAILABLE:
    case BERM_CU_CONTEXT_IS_DESTROYED:
    case BERM_CU_ILLEGAL_ADDRESS:
    case BERM_CU_LAUNCH_FAILED:
        return BERM_ERROR_DEVICE_LOST;
    default:
        return BERM_ERROR_DRIVER;
    }
}

// Fills one table entry; false if the driver does not have it.
static bool entry_resolve(berm_drv_t *drv, const struct entry *entry,
                          berm_cu_get_proc_address_v1_fn get) {
    void *function = NULL;
    if (get(entry->symbol, &function, entry->version, BERM_CU_PROC_DEFAULT) != BERM_CU_SUCCESS)
        function = NULL;
    memcpy((char *)drv + entry->offset, &function, sizeof function);
    return function != NULL;
}

static bool vmm_is_complete(const berm_drv_t *drv) {
    return drv->mem_address_reserve != NULL && drv->mem_address_free != NULL &&
           drv->mem_create != NULL && drv->mem_release != NULL && drv->mem_map != NULL &&
           drv->mem_unmap != NULL && drv->mem_set_access != NULL &&
           drv->mem_get_granularity != NULL;
}

static berm_status_t table_fill(berm_drv_t *drv, const char *name, char *error,
                                size_t error_capacity) {
    // The first form of cuGetProcAddress is in every driver since 11.3, and returns an error where
    // the second one reports a state.
    berm_cu_get_proc_address_v1_fn get = NULL;
    void *symbol = dlsym(drv->library, "cuGetProcAddress");
    memcpy(&get, &symbol, sizeof get);
    if (get == NULL) {
        (void)snprintf(error, error_capacity, "no CUDA driver: %s has no cuGetProcAddress", name);
        return BERM_ERROR_NO_DRIVER;
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(entries); i++) {
        if (!entry_resolve(drv, &entries[i], get) && entries[i].is_required) {
            (void)snprintf(error, error_capacity, "no CUDA driver: %s has no %s", name,
                           entries[i].symbol);
            return BERM_ERROR_NO_DRIVER;
        }
    }
    drv->has_vmm_entries = vmm_is_complete(drv);
    drv->is_simulated = dlsym(drv->library, "simcuda_reset") != NULL;
    return BERM_OK;
}

static berm_status_t driver_start(berm_drv_t *drv, char *error, size_t error_capacity) {
    berm_cu_result_t result = BERM_DRV_CALL(drv, OTHER, init, 0);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, OTHER, driver_get_version, &drv->version);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, OTHER, device_get_count, &drv->device_count);
    if (result == BERM_CU_SUCCESS && drv->device_count <= 0)
        result = BERM_CU_NO_DEVICE;
    if (result == BERM_CU_SUCCESS)
        return BERM_OK;
    (void)snprintf(error, error_capacity, "the CUDA driver does not start: %s returned %d",
                   result == BERM_CU_NO_DEVICE ? "cuDeviceGetCount" : last_error.symbol, result);
    berm_status_t status = berm__drv_status(result);
    return status == BERM_ERROR_NO_DRIVER ? status : BERM_ERROR_DRIVER;
}

berm_status_t berm__drv_open(berm_drv_t *drv, const char *name, char *error,
                             size_t error_capacity) {
    memset(drv, 0, sizeof *drv);
    drv->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (drv->library == NULL) {
        (void)snprintf(error, error_capacity, "no CUDA driver: %s", dlerror());
        return BERM_ERROR_NO_DRIVER;
    }
    berm_status_t status = table_fill(drv, name, error, error_capacity);
    if (status == BERM_OK)
        status = driver_start(drv, error, error_capacity);
    if (status != BERM_OK)
        berm__drv_close(drv);
    return status;
}

void berm__drv_close(berm_drv_t *drv) {
    if (drv->library != NULL)
        (void)dlclose(drv->library);
    drv->library = NULL;
}

void berm__drv_calls_read(berm_drv_t *drv, berm_driver_calls_t *calls) {
    uint64_t *const out[BERM_DRV_KIND_COUNT] = {
        &calls->reserve,     &calls->address_free, &calls->create,      &calls->release,
        &calls->map,         &calls->set_access,   &calls->unmap,       &calls->malloc_,
        &calls->free_,       &calls->event_record, &calls->event_query, &calls->stream_wait,
        &calls->synchronize, &calls->other,
    };
    for (size_t kind = 0; kind < BERM_DRV_KIND_COUNT; kind++)
        *out[kind] = atomic_load_explicit(&drv->calls[kind], memory_order_relaxed);
}
