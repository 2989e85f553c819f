// SPDX-License-Identifier: Apache-2.0
// The entry points of berm.h: they check what the caller gave, and call the heap. Questions
// (berm_introspect.h) are in stats.c, whatis.c, snapshot.c and audit.c.
#include "berm.h"

#include <string.h>

#include "base/bits.h"
#include "front/hit.h"
#include "front/leaving.h"

static const uint64_t size_max_bytes = UINT64_C(1) << 62;
static const uint64_t alignment_max_bytes = UINT64_C(1) << 32;

const char *berm_error_message(void) {
    return berm__error_text();
}

const char *berm_driver_error_last(int *code) {
    return berm__drv_error_last(code);
}

berm_status_t berm_init(const char *options) {
    berm_status_t status = berm__heap_start(options);
    if (status == BERM_ERROR_STATE)
        return berm__error_set(status, "berm_init: berm runs already");
    return status;
}

berm_status_t berm_shutdown(size_t *live_blocks) {
    bool is_running;
    if (live_blocks != NULL)
        *live_blocks = 0;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK || !is_running)
        return status;
    berm__leaving_stop();
    berm__heap_pins_announce();
    return berm__heap_stop(live_blocks);
}

// What is wrong with a request, whatever pool it is for.
static inline berm_status_t request_check(const char *call, uint64_t size_bytes, uint64_t alignment,
                                          berm_addr_t *out) {
    if (BERM_UNLIKELY(out == NULL))
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: out is NULL", call);
    *out = 0;
    berm_status_t status = berm__heap_ready();
    if (BERM_UNLIKELY(status != BERM_OK))
        return status;
    if (BERM_UNLIKELY(size_bytes - 1 >= size_max_bytes)) {
        status = size_bytes == 0 ? BERM_ERROR_SIZE_ZERO : BERM_ERROR_SIZE_TOO_LARGE;
        return berm__error_set(status, "%s: a request of %llu bytes", call,
                               (unsigned long long)size_bytes);
    }
    if (BERM_UNLIKELY(!berm__is_pow2(alignment) || alignment > alignment_max_bytes))
        return berm__error_set(BERM_ERROR_ALIGNMENT,
                               "%s: alignment %llu is not a power of two up to 2^32", call,
                               (unsigned long long)alignment);
    return BERM_OK;
}

__attribute__((noinline)) static berm_status_t alloc_checked(uint64_t size_bytes,
                                                             uint64_t alignment, int device,
                                                             berm_stream_t stream, berm_addr_t *out,
                                                             const void *site) {
    berm_status_t status = request_check("berm_alloc", size_bytes, alignment, out);
    if (BERM_UNLIKELY(status != BERM_OK))
        return status;
    berm__call_site_set(site);
    return berm__heap_alloc(size_bytes, berm__max_u64(alignment, BERM_RANGE_UNIT_BYTES), device,
                            stream, out);
}

berm_status_t berm_alloc_aligned(uint64_t size_bytes, uint64_t alignment, int device,
                                 berm_stream_t stream, berm_addr_t *out) {
    return alloc_checked(size_bytes, alignment, device, stream, out, __builtin_return_address(0));
}

berm_status_t berm_alloc_from(berm_pool_id_t id, uint64_t size_bytes, uint64_t alignment,
                              int device, berm_stream_t stream, berm_addr_t *out) {
    berm_status_t status = request_check("berm_alloc_from", size_bytes, alignment, out);
    if (status != BERM_OK)
        return status;
    berm__call_site_set(__builtin_return_address(0));
    return berm__heap_alloc_from(id, size_bytes, berm__max_u64(alignment, BERM_RANGE_UNIT_BYTES),
                                 device, stream, out);
}

// Apart, so that a hit needs no stack.
__attribute__((noinline)) static berm_status_t
alloc_missed(berm_cache_t *cache, uint64_t size_bytes, berm_addr_t *out, const void *site) {
    if (berm__hit_alloc_again(cache, size_bytes, out))
        return BERM_OK;
    berm__call_site_set(site);
    return berm__heap_alloc_miss(cache, size_bytes, out);
}

berm_status_t berm_alloc(uint64_t size_bytes, int device, berm_stream_t stream, berm_addr_t *out) {
    berm_cache_t *cache = berm__hit_cache(stream);
    const void *site = __builtin_return_address(0);
    if (BERM_LIKELY(cache != NULL && cache->ordinal == device && out != NULL &&
                    size_bytes - 1 < size_max_bytes)) {
        if (BERM_LIKELY(berm__hit_alloc(cache, size_bytes, out)))
            return BERM_OK;
        return alloc_missed(cache, size_bytes, out, site);
    }
    return alloc_checked(size_bytes, BERM_RANGE_UNIT_BYTES, device, stream, out, site);
}

__attribute__((noinline)) static berm_status_t
free_missed(berm_cache_t *cache, berm_segment_t *segment, berm_addr_t addr) {
    return berm__hit_free_again(cache, segment, addr) ? BERM_OK
                                                      : berm__heap_free_miss(cache, segment, addr);
}

berm_status_t berm_free(berm_addr_t addr, int device, berm_stream_t stream) {
    berm_cache_t *cache = berm__hit_cache(stream);
    if (BERM_LIKELY(cache != NULL && (cache->ordinal == device || device == BERM_DEVICE_ANY))) {
        berm_segment_t *segment = berm__hit_segment(cache, addr);
        if (BERM_LIKELY(segment != NULL)) {
            if (BERM_LIKELY(berm__hit_free(cache, segment, addr)))
                return BERM_OK;
            return free_missed(cache, segment, addr);
        }
    }
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (BERM_UNLIKELY(status != BERM_OK) || addr == 0)
        return status;
    if (BERM_UNLIKELY(!is_running))
        return berm__error_set(BERM_ERROR_ADDRESS_UNKNOWN, "berm_free: nothing was allocated yet");
    return berm__heap_free(addr, device, stream);
}

berm_status_t berm_block_grow(berm_addr_t addr, uint64_t size_bytes) {
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    if (size_bytes - 1 >= size_max_bytes) {
        status = size_bytes == 0 ? BERM_ERROR_SIZE_ZERO : BERM_ERROR_SIZE_TOO_LARGE;
        return berm__error_set(status, "berm_block_grow: a size of %llu bytes",
                               (unsigned long long)size_bytes);
    }
    if (!is_running)
        return berm__error_set(BERM_ERROR_ADDRESS_UNKNOWN,
                               "berm_block_grow: nothing was allocated yet");
    berm__call_site_set(__builtin_return_address(0));
    return berm__heap_grow(addr, size_bytes);
}

berm_status_t berm_record_stream(berm_addr_t addr, berm_stream_t stream) {
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    if (stream == BERM_STREAM_NONE)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_record_stream: no stream is named");
    if (!is_running)
        return berm__error_set(BERM_ERROR_ADDRESS_UNKNOWN,
                               "berm_record_stream: nothing was allocated yet");
    return berm__heap_record_stream(addr, stream);
}

berm_status_t berm_stream_retire(int device_ordinal, berm_stream_t handle) {
    berm_device_t *device;
    bool is_pushed;
    if (berm__stream_normalize(handle) == BERM_STREAM_NONE)
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_stream_retire: no stream that can be destroyed is named");
    berm_status_t status = berm__heap_device_enter(device_ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    berm_stream_ref_t *stream = berm__device_stream_find(device, handle);
    if (stream != NULL)
        status = berm__device_stream_retire(device, stream);
    return berm__heap_device_leave(device, is_pushed, status, "berm_stream_retire");
}

berm_status_t berm_trim(int device_ordinal, uint64_t keep_bytes, uint64_t *released_bytes) {
    berm_device_t *device;
    bool is_pushed;
    uint64_t released = 0;
    if (released_bytes != NULL)
        *released_bytes = 0;
    berm_status_t status = berm__heap_device_enter(device_ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    status = berm__device_trim(device, keep_bytes, &released);
    if (released_bytes != NULL)
        *released_bytes = released;
    return berm__heap_device_leave(device, is_pushed, status, "berm_trim");
}

berm_status_t berm_limit_set(int device_ordinal, uint64_t limit_bytes) {
    berm_device_t *device;
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(device_ordinal, &device);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&device->lock);
    device->limit_bytes = limit_bytes;
    device->limit_source = BERM_LIMIT_CALL;
    berm__mutex_unlock(&device->lock);
    return BERM_OK;
}

berm_status_t berm_limit_get(int device_ordinal, uint64_t *limit_bytes) {
    berm_device_t *device;
    if (limit_bytes == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_limit_get: limit_bytes is NULL");
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(device_ordinal, &device);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&device->lock);
    *limit_bytes = device->limit_bytes;
    berm__mutex_unlock(&device->lock);
    return BERM_OK;
}

berm_status_t berm_option_set(const char *name, const char *value) {
    char error[200] = "";
    if (name == NULL || value == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_option_set: a NULL name or value");
    berm_status_t status = berm__heap_ready();
    if (status != BERM_OK)
        return status;
    berm_heap_t *heap = &berm__heap;
    berm__mutex_lock(&heap->lock);
    status = berm__option_set(&heap->options, name, value, true, error, sizeof error);
    if (status == BERM_OK) // only these overrule what berm_limit_set has set, even by an old value
        berm__heap_options_apply(strcmp(name, "limit") == 0 ||
                                 strcmp(name, "per_process_memory_fraction") == 0);
    berm__mutex_unlock(&heap->lock);
    return status == BERM_OK ? status : berm__error_set(status, "%s", error);
}

berm_status_t berm_option_get(const char *name, char *value, size_t capacity) {
    if (name == NULL || value == NULL || capacity == 0)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_option_get: a NULL or empty argument");
    value[0] = '\0';
    berm_status_t status = berm__heap_ready();
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&berm__heap.lock);
    status = berm__option_get(&berm__heap.options, name, value, capacity);
    berm__mutex_unlock(&berm__heap.lock);
    return status == BERM_OK ? status
                             : berm__error_set(status, "berm_option_get: no option '%s'", name);
}
