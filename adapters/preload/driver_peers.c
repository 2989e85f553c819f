// SPDX-License-Identifier: Apache-2.0
// The driver's functions that give other devices access: the driver carries them out, and berm is
// told what they mean for its memory. Where berm cannot follow, the call is undone and fails.
#include "driver.h"
#include "peers.h"
#include "place.h"
#include "real.h"

berm_cu_result_t cuCtxEnablePeerAccess(berm_cu_context_t peer, unsigned flags) {
    int result = REAL_DRIVER(cuCtxEnablePeerAccess, peer, flags);
    if (result != BERM_CU_SUCCESS && result != BERM_CU_PEER_ACCESS_ALREADY_ENABLED)
        return result;
    int told = peers_enable(place_of_context(peer), place_current());
    if (told == BERM_CU_SUCCESS)
        return result;
    if (result == BERM_CU_SUCCESS)
        (void)REAL_DRIVER(cuCtxDisablePeerAccess, peer);
    return told;
}

berm_cu_result_t cuCtxDisablePeerAccess(berm_cu_context_t peer) {
    int result = REAL_DRIVER(cuCtxDisablePeerAccess, peer);
    if (result == BERM_CU_SUCCESS)
        peers_disable(place_of_context(peer), place_current());
    return result;
}

berm_cu_result_t cuMemPoolSetAccess(berm_cu_mem_pool_t pool, const berm_cu_mem_access_t *access,
                                    size_t count) {
    int result = REAL_DRIVER(cuMemPoolSetAccess, pool, access, count);
    return result == BERM_CU_SUCCESS ? peers_of_pool(pool, access, count) : result;
}
