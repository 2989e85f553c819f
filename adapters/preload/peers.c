// SPDX-License-Identifier: Apache-2.0
// Peers: see peers.h.
#include "peers.h"

#include <stdatomic.h>

#include "berm_share.h"
#include "place.h"
#include "serve.h"

static _Atomic uint64_t users_of[PLACE_DEVICES_MAX]; // a bit for each device
static atomic_bool has_users;

static int peer_result(berm_status_t status) {
    switch (status) {
    case BERM_OK:
    case BERM_ERROR_UNSUPPORTED: // plain memory
    case BERM_ERROR_NO_VMM:
        return BERM_CU_SUCCESS;
    case BERM_ERROR_PEER_ACCESS:
        return BERM_CU_PEER_ACCESS_UNSUPPORTED;
    case BERM_ERROR_OUT_OF_HOST_MEMORY:
    case BERM_ERROR_CEILING:
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
        return BERM_CU_OUT_OF_MEMORY;
    default:
        return BERM_CU_UNKNOWN;
    }
}

int peers_enable(int owner, int user) {
    if (owner == PLACE_NONE || user == PLACE_NONE || owner == user || serve_inside() ||
        owner >= PLACE_DEVICES_MAX || user >= PLACE_DEVICES_MAX)
        return BERM_CU_SUCCESS;
    serve_enter();
    int result = peer_result(berm_peer_enable(owner, user));
    serve_leave();
    if (result == BERM_CU_SUCCESS) {
        atomic_fetch_or(&users_of[owner], UINT64_C(1) << user);
        atomic_store(&has_users, true);
    }
    return result;
}

void peers_disable(int owner, int user) {
    if (owner == PLACE_NONE || user == PLACE_NONE || owner == user || serve_inside())
        return;
    serve_enter();
    (void)berm_peer_disable(owner, user); // where it fails the access stays, which harms nobody
    serve_leave();
}

int peers_of_pool(berm_cu_mem_pool_t pool, const berm_cu_mem_access_t *access, size_t count) {
    int result = BERM_CU_SUCCESS;
    int owner = serve_inside() ? PLACE_NONE : place_of_default_pool(pool);
    for (size_t i = 0; owner != PLACE_NONE && i < count && result == BERM_CU_SUCCESS; i++)
        if (access[i].location.type == BERM_CU_MEM_LOCATION_DEVICE &&
            access[i].flags == BERM_CU_MEM_ACCESS_READWRITE)
            result = peers_enable(owner, access[i].location.id);
    return result;
}

bool peers_any(void) {
    return atomic_load_explicit(&has_users, memory_order_relaxed);
}

int peers_wait(int owner) {
    int result = BERM_CU_SUCCESS;
    uint64_t users = atomic_load(&users_of[owner]);
    for (int user = 0; user < PLACE_DEVICES_MAX && result == BERM_CU_SUCCESS; user++)
        if ((users >> user & 1) != 0)
            result = place_wait(user);
    return result;
}
