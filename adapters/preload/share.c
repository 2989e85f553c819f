// SPDX-License-Identifier: Apache-2.0
// About blocks: see share.h.
#include "share.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "berm_share.h"
#include "option.h"
#include "place.h"
#include "serve.h"

// "bermprld", and the number of the pool.
static const berm_pool_id_t own_pool = {UINT64_C(0x6265726d70726c64), 1};

berm_status_t share_alloc(int device, uint64_t bytes, berm_addr_t *addr) {
    static atomic_bool has_pool[PLACE_DEVICES_MAX];
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = BERM_POOL_PLAIN | BERM_POOL_NO_SPLIT;
    if (!atomic_load(&has_pool[device])) { // threads that make it at once add a use each
        berm_status_t status = berm_pool_create(device, own_pool, &options);
        if (status != BERM_OK)
            return status;
        atomic_store(&has_pool[device], true);
    }
    return berm_alloc_from(own_pool, bytes, 1, device, BERM_STREAM_NONE, addr);
}

// The live block that `addr` lies in, and the bytes that were asked for.
static bool block_of(berm_addr_t addr, berm_addr_t *block, uint64_t *bytes) {
    *block = addr;
    if (berm_block_read(addr, bytes, NULL, NULL) == BERM_OK)
        return true;
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    if (berm_whatis(addr, &whatis) != BERM_OK || whatis.kind != BERM_ADDRESS_LIVE)
        return false;
    *block = whatis.block;
    *bytes = whatis.requested_bytes;
    return true;
}

bool share_handle(berm_cu_ipc_mem_handle_t *handle, berm_addr_t addr, int *result) {
    berm_addr_t block = 0;
    uint64_t bytes = 0, offset_bytes = 0;
    unsigned char text[BERM_IPC_HANDLE_BYTES];
    if (handle == NULL || serve_inside() || !block_of(addr, &block, &bytes))
        return false;
    serve_enter();
    berm_status_t status = berm_ipc_export(block, text, &offset_bytes);
    serve_leave();
    // A handle is of a whole allocation of the driver's: where the block is a part of one, who
    // opens the handle would take another block for it.
    if (status == BERM_OK && offset_bytes == 0) {
        memcpy(handle->reserved, text, sizeof handle->reserved);
        *result = BERM_CU_SUCCESS;
        return true;
    }
    *result =
        status == BERM_ERROR_DEVICE_LOST ? BERM_CU_CONTEXT_IS_DESTROYED : BERM_CU_INVALID_VALUE;
    PRELOAD_SAY("cudaIpcGetMemHandle of 0x%" PRIx64 ", %" PRIu64
                " bytes: its pages may be moved, and legacy IPC handles are not to be had of such "
                "memory; with BERM_PRELOAD=ipc:1M requests of 1 MiB and more are memory that they "
                "can be had of",
                addr, bytes);
    return true;
}

bool share_range(berm_cu_deviceptr_t *base, size_t *bytes, berm_addr_t addr) {
    berm_addr_t block = 0;
    uint64_t size_bytes = 0;
    if (serve_inside() || !block_of(addr, &block, &size_bytes))
        return false;
    if (base != NULL)
        *base = block;
    if (bytes != NULL)
        *bytes = size_bytes;
    return true;
}

void share_free_bytes(int device, size_t *free_bytes, size_t total_bytes) {
    berm_stats_t stats = BERM_STATS_INIT;
    uint64_t largest_bytes = 0;
    if (device == PLACE_NONE || serve_inside() || !preload_options()->counts_cached ||
        berm_stats_read(device, &stats) != BERM_OK || stats.reserved_bytes.current == 0)
        return;
    // It looks at which freed blocks are done with; those that are become cached.
    serve_enter();
    berm_status_t status = berm_largest_free_read(device, BERM_STREAM_NONE, &largest_bytes);
    serve_leave();
    if (status != BERM_OK || berm_stats_read(device, &stats) != BERM_OK)
        return;
    uint64_t bytes = berm__min_u64(*free_bytes + stats.cached_bytes, total_bytes);
    uint64_t active_bytes = stats.active_bytes.current;
    if (stats.limit_bytes != UINT64_MAX)
        bytes = berm__min_u64(bytes,
                              stats.limit_bytes - berm__min_u64(active_bytes, stats.limit_bytes));
    *free_bytes = bytes;
}
