// SPDX-License-Identifier: Apache-2.0
// Requests and frees: see serve.h.
#include "serve.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "berm_diagnose.h"
#include "counts.h"
#include "option.h"
#include "peers.h"
#include "place.h"
#include "real.h"
#include "share.h"

static _Thread_local unsigned inside_depth;
static atomic_bool has_streams; // berm may know streams of the program

bool serve_inside(void) {
    return inside_depth > 0;
}

void serve_enter(void) {
    inside_depth++;
}

void serve_leave(void) {
    inside_depth--;
}

// --- requests ------------------------------------------------------------------------------------

// What berm said of a request, as a result; false where the driver is to be asked instead.
static bool alloc_answer(berm_status_t status, uint64_t bytes, int *result) {
    switch (status) {
    case BERM_OK:
        preload_count(COUNT_SERVED, 1);
        preload_count(COUNT_SERVED_BYTES, bytes);
        *result = BERM_CU_SUCCESS;
        return true;
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
    case BERM_ERROR_LIMIT:
    case BERM_ERROR_QUOTA:
    case BERM_ERROR_SIZE_TOO_LARGE:
        preload_count(COUNT_REFUSED, 1);
        *result = BERM_CU_OUT_OF_MEMORY;
        return true;
    case BERM_ERROR_OPTION_UNKNOWN: // libberm has said which
    case BERM_ERROR_OPTION_VALUE:
        PRELOAD_SAY("cudaMalloc is left to the driver: %s", berm_error_message());
        return false;
    default: // no driver, a lost device, a forked child, ...: the driver says it in its own words
        return false;
    }
}

bool serve_alloc(int device, uint64_t bytes, berm_stream_t stream, berm_addr_t *addr, int *result) {
    const preload_options_t *options = preload_options();
    if (device == PLACE_NONE || bytes == 0 || bytes < options->least_bytes || serve_inside())
        return false;
    if (stream != BERM_STREAM_NONE)
        atomic_store_explicit(&has_streams, true, memory_order_relaxed);
    serve_enter();
    // Without a tag where there are too many names, or the thread has pushed too many.
    bool is_tagged = berm_tag_push("preload") == BERM_OK;
    berm_status_t status = stream == BERM_STREAM_NONE && bytes >= options->ipc_bytes
                               ? share_alloc(device, bytes, addr)
                               : berm_alloc(bytes, device, stream, addr);
    if (is_tagged)
        (void)berm_tag_pop();
    serve_leave();
    return alloc_answer(status, bytes, result);
}

// SUCCESS: the stream is not captured. INVALID_VALUE: it is.
static int capture_ask(berm_cu_stream_t stream) {
    int status = BERM_CU_CAPTURE_STATUS_NONE;
    int result = REAL_DRIVER(cuStreamIsCapturing, stream, &status);
    if (result != BERM_CU_SUCCESS)
        return result;
    return status == BERM_CU_CAPTURE_STATUS_NONE ? BERM_CU_SUCCESS : BERM_CU_INVALID_VALUE;
}

static bool is_captured(berm_cu_stream_t stream) {
    return capture_ask(stream) != BERM_CU_SUCCESS;
}

int serve_place_async(berm_cu_stream_t stream) {
    if (!preload_options()->serves_async || serve_inside() || is_captured(stream))
        return PLACE_NONE;
    int device = place_of_stream(stream);
    return device != PLACE_NONE && place_has_default_pool(device) ? device : PLACE_NONE;
}

int serve_place_pool(berm_cu_mem_pool_t pool, berm_cu_stream_t stream) {
    if (!preload_options()->serves_async || serve_inside() || is_captured(stream))
        return PLACE_NONE;
    int device = place_of_stream(stream);
    return device != PLACE_NONE && place_of_default_pool(pool) == device ? device : PLACE_NONE;
}

// --- frees ---------------------------------------------------------------------------------------

static bool free_answer(berm_status_t status, int *result) {
    switch (status) {
    case BERM_OK:
        preload_count(COUNT_FREED, 1);
        *result = BERM_CU_SUCCESS;
        return true;
    case BERM_ERROR_DOUBLE_FREE:
    case BERM_ERROR_ADDRESS_INTERIOR:
    case BERM_ERROR_ADDRESS_IMPORTED:
        preload_count(COUNT_FREES_REFUSED, 1);
        *result = BERM_CU_INVALID_VALUE;
        return true;
    case BERM_ERROR_OUT_OF_HOST_MEMORY: // the block is live still
        preload_count(COUNT_FREES_REFUSED, 1);
        *result = BERM_CU_OUT_OF_MEMORY;
        return true;
    default:
        return false;
    }
}

// What has to have passed before berm is told that work of no stream in particular is over.
static int free_wait(berm_addr_t addr) {
    int device = 0, result = BERM_CU_SUCCESS;
    bool waits = preload_options()->waits_on_free != 0;
    if ((!waits && !peers_any()) || berm_block_read(addr, NULL, &device, NULL) != BERM_OK)
        return BERM_CU_SUCCESS;
    if (waits)
        result = place_wait(device);
    return result != BERM_CU_SUCCESS ? result : peers_wait(device);
}

bool serve_free(berm_addr_t addr, berm_stream_t stream, int *result) {
    serve_enter();
    if (stream == BERM_STREAM_NONE)
        *result = free_wait(addr);
    else
        *result = BERM_CU_SUCCESS;
    bool is_answered = true; // work on the block has failed: it stays, and the program hears of it
    if (*result == BERM_CU_SUCCESS)
        is_answered = free_answer(berm_free(addr, BERM_DEVICE_ANY, stream), result);
    serve_leave();
    return is_answered;
}

bool serve_free_async(berm_addr_t addr, berm_cu_stream_t stream, int *result) {
    *result =
        berm_block_read(addr, NULL, NULL, NULL) == BERM_OK ? capture_ask(stream) : BERM_CU_SUCCESS;
    if (*result != BERM_CU_SUCCESS) {
        preload_count(COUNT_FREES_REFUSED, 1);
        return true;
    }
    atomic_store_explicit(&has_streams, true, memory_order_relaxed);
    return serve_free(addr, stream, result);
}

// --- the device ----------------------------------------------------------------------------------

bool serve_make_room(void) {
    berm_stats_t stats = BERM_STATS_INIT;
    uint64_t released_bytes = 0;
    int device = place_current();
    if (device == PLACE_NONE || berm_stats_read(device, &stats) != BERM_OK ||
        stats.reserved_bytes.current == stats.allocated_bytes.current)
        return false;
    serve_enter();
    (void)berm_trim(device, 0, &released_bytes);
    serve_leave();
    return released_bytes > 0;
}

void serve_capture_begins(berm_cu_stream_t stream) {
    berm_addr_t addr = 0;
    int device = serve_inside() ? PLACE_NONE : place_of_stream(stream);
    if (device == PLACE_NONE)
        return;
    serve_enter();
    atomic_store_explicit(&has_streams, true, memory_order_relaxed);
    if (berm_alloc(1, device, stream, &addr) == BERM_OK)
        (void)berm_free(addr, device, stream);
    serve_leave();
}

void serve_stream_ends(berm_cu_stream_t stream) {
    if (!atomic_load_explicit(&has_streams, memory_order_relaxed) || stream == NULL ||
        stream == BERM_CU_STREAM_LEGACY || stream == BERM_CU_STREAM_PER_THREAD || serve_inside())
        return;
    int device = place_of_stream(stream);
    if (device == PLACE_NONE)
        return;
    serve_enter();
    // Once more, if the driver refuses: berm must not know a stream that is gone.
    if (berm_stream_retire(device, stream) == BERM_ERROR_DRIVER)
        (void)berm_stream_retire(device, stream);
    serve_leave();
}

// The addresses of live blocks: berm must not be called while it walks.
typedef struct live_list {
    berm_addr_t *addrs;
    size_t count, capacity;
} live_list_t;

static void live_add(void *context, const berm_walk_segment_t *segment,
                     const berm_walk_block_t *block) {
    live_list_t *list = context;
    (void)segment;
    if (block == NULL || block->kind != BERM_ADDRESS_LIVE)
        return;
    if (list->count < list->capacity)
        list->addrs[list->count] = block->addr;
    list->count++;
}

void serve_reset(int device) {
    berm_stats_t stats = BERM_STATS_INIT;
    if (device == PLACE_NONE || serve_inside())
        return;
    // A device that berm has not opened has no granule, and nothing to be ended.
    if (berm_stats_read(device, &stats) != BERM_OK || stats.granule_bytes == 0) {
        place_reset(device, false);
        return;
    }
    serve_enter();
    live_list_t list = {.capacity = stats.blocks.current};
    list.addrs = malloc((list.capacity + 1) * sizeof *list.addrs);
    if (list.addrs != NULL && berm_walk(device, live_add, &list) == BERM_OK)
        for (size_t i = 0; i < list.count && i < list.capacity; i++)
            (void)berm_free(list.addrs[i], device, BERM_STREAM_NONE);
    free(list.addrs);
    (void)berm_trim(device, 0, NULL);
    place_reset(device, true);
    serve_leave();
}
