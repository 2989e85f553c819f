// SPDX-License-Identifier: Apache-2.0
// Peers: contexts whose cuMemAlloc memory another context's kernels may touch. Memory of the VMM
// calls and of pools says itself which devices may (cuMemSetAccess, cuMemPoolSetAccess).
//
// All devices can be peers of all others, or none of any (lacks_peers). Locks: the state's, by
// sim_enter.
#include "sim.h"

static uint32_t peer_find(const sim_context_t *context, uint64_t handle) {
    uint32_t at = 0;
    while (at < context->peer_count && context->peers[at] != handle)
        at++;
    return at;
}

// Contexts that are gone make room.
static void peers_prune(sim_context_t *context) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < context->peer_count; i++) {
        if (sim_table_get(&sim.contexts, context->peers[i]) != NULL)
            context->peers[kept++] = context->peers[i];
    }
    context->peer_count = kept;
}

static int peer_enable(berm_cu_context_t handle, unsigned flags) {
    sim_context_t *context = sim_context_current();
    const sim_context_t *peer = sim_table_get(&sim.contexts, (uint64_t)(uintptr_t)handle);
    sim_charge(&sim.config.costs.other, 0, 0);
    if (flags != 0)
        return BERM_CU_INVALID_VALUE;
    if (peer == NULL || peer == context)
        return BERM_CU_INVALID_CONTEXT;
    if (peer->device == context->device || sim.config.lacks_peers)
        return BERM_CU_PEER_ACCESS_UNSUPPORTED;
    peers_prune(context);
    if (peer_find(context, peer->handle) < context->peer_count)
        return BERM_CU_PEER_ACCESS_ALREADY_ENABLED;
    if (context->peer_count == SIMCUDA_DEVICE_MAX)
        return BERM_CU_TOO_MANY_PEERS;
    context->peers[context->peer_count++] = peer->handle;
    return BERM_CU_SUCCESS;
}

static int peer_disable(berm_cu_context_t handle) {
    sim_context_t *context = sim_context_current();
    const sim_context_t *peer = sim_table_get(&sim.contexts, (uint64_t)(uintptr_t)handle);
    sim_charge(&sim.config.costs.other, 0, 0);
    if (peer == NULL)
        return BERM_CU_INVALID_CONTEXT;
    uint32_t at = peer_find(context, peer->handle);
    if (at == context->peer_count)
        return BERM_CU_PEER_ACCESS_NOT_ENABLED;
    context->peers[at] = context->peers[--context->peer_count];
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuCtxEnablePeerAccess(berm_cu_context_t peer, unsigned flags) {
    int result = sim_enter(SIM_FN_cuCtxEnablePeerAccess);
    if (result == BERM_CU_SUCCESS)
        result = peer_enable(peer, flags);
    return sim_leave(result);
}

berm_cu_result_t cuCtxDisablePeerAccess(berm_cu_context_t peer) {
    int result = sim_enter(SIM_FN_cuCtxDisablePeerAccess);
    if (result == BERM_CU_SUCCESS)
        result = peer_disable(peer);
    return sim_leave(result);
}

berm_cu_result_t cuDeviceGetP2PAttribute(int *value, int attribute, berm_cu_device_t from,
                                         berm_cu_device_t to) {
    int result = sim_enter(SIM_FN_cuDeviceGetP2PAttribute);
    if (result == BERM_CU_SUCCESS) {
        sim_charge(&sim.config.costs.other, 0, 0);
        if (value == NULL || attribute < BERM_CU_P2P_PERFORMANCE_RANK ||
            attribute > BERM_CU_P2P_ARRAY_ACCESS_SUPPORTED)
            result = BERM_CU_INVALID_VALUE;
        else if (!sim_device_is_valid(from) || !sim_device_is_valid(to) || from == to)
            result = BERM_CU_INVALID_DEVICE;
        else
            *value = attribute == BERM_CU_P2P_ACCESS_SUPPORTED && !sim.config.lacks_peers;
    }
    return sim_leave(result);
}
