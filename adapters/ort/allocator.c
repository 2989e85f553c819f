// SPDX-License-Identifier: Apache-2.0
// The OrtAllocator: see berm_ort.h. ONNX Runtime holds a pointer to `base`.
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/ort/berm_ort.h"
#include "adapters/ort/bound.h"
#include "adapters/ort/ort_abi.h"
#include "adapters/tagged.h"
#include "berm_introspect.h"

typedef struct allocator {
    OrtAllocator base;
    void *const *api; // OrtApi, as a table
    OrtMemoryInfo *info;
    int device;
    // Of this allocator's blocks, in bytes as asked for.
    atomic_uint_fast64_t in_use_bytes, in_use_max_bytes, size_max_bytes;
    atomic_uint_fast64_t allocs, reserves, shrinks;
} allocator_t;

// A function of ONNX Runtime, as a pointer to `type`.
#define ORT_CALL(allocator, position, type)                                                        \
    (*(const type *)(const void *)&(allocator)->api[position])

static void max_raise(atomic_uint_fast64_t *max, uint64_t value) {
    uint_fast64_t seen = atomic_load(max);
    while (seen < value && !atomic_compare_exchange_weak(max, &seen, value)) {
    }
}

static void *block_alloc(allocator_t *allocator, size_t size_bytes, berm_stream_t stream,
                         atomic_uint_fast64_t *counter) {
    berm_addr_t addr = 0;
    if (size_bytes == 0 ||
        berm_tagged_alloc(BERM_ORT_TAG, size_bytes, allocator->device, stream, &addr) != BERM_OK)
        return NULL;
    atomic_fetch_add(counter, 1);
    max_raise(&allocator->size_max_bytes, size_bytes);
    max_raise(&allocator->in_use_max_bytes,
              atomic_fetch_add(&allocator->in_use_bytes, size_bytes) + size_bytes);
    return (void *)(uintptr_t)addr;
}

static void *ort_alloc(OrtAllocator *self, size_t size_bytes) {
    allocator_t *allocator = (allocator_t *)self;
    return block_alloc(allocator, size_bytes, berm_ort_bound(allocator->device),
                       &allocator->allocs);
}

static void *ort_reserve(OrtAllocator *self, size_t size_bytes) {
    allocator_t *allocator = (allocator_t *)self;
    return block_alloc(allocator, size_bytes, berm_ort_bound(allocator->device),
                       &allocator->reserves);
}

static void *ort_alloc_on_stream(OrtAllocator *self, size_t size_bytes, OrtSyncStream *stream) {
    allocator_t *allocator = (allocator_t *)self;
    if (stream == NULL)
        return ort_alloc(self, size_bytes);
    berm_stream_t handle =
        ORT_CALL(allocator, ORT_SYNC_STREAM_GET_HANDLE, ort_sync_stream_get_handle_fn)(stream);
    return block_alloc(allocator, size_bytes, handle, &allocator->allocs);
}

static void ort_free(OrtAllocator *self, void *block) {
    allocator_t *allocator = (allocator_t *)self;
    uint64_t requested_bytes = 0;
    if (block == NULL)
        return;
    if (berm_block_read((uintptr_t)block, &requested_bytes, NULL, NULL) == BERM_OK)
        atomic_fetch_sub(&allocator->in_use_bytes, requested_bytes);
    berm_ort_free_on((uintptr_t)block, allocator->device);
}

static const OrtMemoryInfo *ort_info(const OrtAllocator *self) {
    return ((const allocator_t *)self)->info;
}

static OrtStatus *ort_failure(const allocator_t *allocator, const char *what,
                              berm_status_t status) {
    char text[512];
    (void)snprintf(text, sizeof text, "berm: %s: %s: %s", what, berm_status_name(status),
                   berm_error_message());
    return ORT_CALL(allocator, ORT_CREATE_STATUS, ort_create_status_fn)(ORT_FAIL, text);
}

static void pair_add(const allocator_t *allocator, OrtKeyValuePairs *pairs, const char *key,
                     uint64_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    ORT_CALL(allocator, ORT_ADD_KEY_VALUE_PAIR, ort_add_key_value_pair_fn)(pairs, key, text);
}

// The most that berm may hold of the device.
static berm_status_t limit_read(int device, uint64_t *limit_bytes) {
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    berm_status_t status = berm_limit_get(device, limit_bytes);
    if (status == BERM_OK)
        status = berm_device_info_read(device, &info);
    if (status == BERM_OK && *limit_bytes > info.memory_bytes)
        *limit_bytes = info.memory_bytes;
    return status;
}

static OrtStatus *ort_get_stats(const OrtAllocator *self, OrtKeyValuePairs **out) {
    const allocator_t *allocator = (const allocator_t *)self;
    berm_stats_t stats = BERM_STATS_INIT;
    uint64_t limit_bytes;
    berm_status_t status = limit_read(allocator->device, &limit_bytes);
    if (status == BERM_OK)
        status = berm_stats_read(allocator->device, &stats);
    if (status != BERM_OK)
        return ort_failure(allocator, "statistics", status);
    const struct {
        const char *key;
        uint64_t value;
    } pairs[] = {
        {"Limit", limit_bytes},
        {"InUse", atomic_load(&allocator->in_use_bytes)},
        {"TotalAllocated", stats.reserved_bytes.current},
        {"MaxInUse", atomic_load(&allocator->in_use_max_bytes)},
        {"NumAllocs", atomic_load(&allocator->allocs)},
        {"NumReserves", atomic_load(&allocator->reserves)},
        {"NumArenaExtensions", stats.driver_calls.create + stats.driver_calls.malloc_},
        {"NumArenaShrinkages", atomic_load(&allocator->shrinks)},
        {"MaxAllocSize", atomic_load(&allocator->size_max_bytes)},
    };
    ORT_CALL(allocator, ORT_CREATE_KEY_VALUE_PAIRS, ort_create_key_value_pairs_fn)(out);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        pair_add(allocator, *out, pairs[i].key, pairs[i].value);
    return NULL;
}

static OrtStatus *ort_shrink(OrtAllocator *self) {
    allocator_t *allocator = (allocator_t *)self;
    berm_status_t status = berm_trim(allocator->device, 0, NULL);
    if (status != BERM_OK)
        return ort_failure(allocator, "giving memory back", status);
    atomic_fetch_add(&allocator->shrinks, 1);
    return NULL;
}

berm_status_t berm_ort_allocator_create(const void *api, uint32_t api_version, int device,
                                        OrtAllocator **out) {
    if (out != NULL)
        *out = NULL;
    if (api == NULL || out == NULL || device < 0)
        return BERM_ERROR_ARGUMENT;
    if (api_version < ORT_VERSION_FIRST)
        return BERM_ERROR_VERSION;
    allocator_t *made = calloc(1, sizeof *made);
    if (made == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    made->api = api;
    made->device = device;
    OrtStatus *refused = ORT_CALL(made, ORT_CREATE_MEMORY_INFO, ort_create_memory_info_fn)(
        "Cuda", ORT_DEVICE_ALLOCATOR, device, ORT_MEM_TYPE_DEFAULT, &made->info);
    if (refused != NULL) {
        ORT_CALL(made, ORT_RELEASE_STATUS, ort_release_status_fn)(refused);
        free(made);
        return BERM_ERROR_UNSUPPORTED;
    }
    made->base = (OrtAllocator){
        .version = api_version < ORT_VERSION_KNOWN ? api_version : ORT_VERSION_KNOWN,
        .Alloc = ort_alloc,
        .Free = ort_free,
        .Info = ort_info,
        .Reserve = api_version >= ORT_VERSION_RESERVE ? ort_reserve : NULL,
        .GetStats = api_version >= ORT_VERSION_STREAM ? ort_get_stats : NULL,
        .AllocOnStream = api_version >= ORT_VERSION_STREAM ? ort_alloc_on_stream : NULL,
        .Shrink = api_version >= ORT_VERSION_SHRINK ? ort_shrink : NULL,
    };
    *out = &made->base;
    return BERM_OK;
}

void berm_ort_allocator_destroy(OrtAllocator *base) {
    allocator_t *allocator = (allocator_t *)base;
    if (allocator == NULL)
        return;
    ORT_CALL(allocator, ORT_RELEASE_MEMORY_INFO, ort_release_memory_info_fn)(allocator->info);
    free(allocator);
}
