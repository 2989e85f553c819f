// SPDX-License-Identifier: Apache-2.0
// Routes: see route.h.
#include "front/route.h"

#include <sched.h>

#include "base/defs.h"
#include "host/lock.h"
#include "host/mem.h"

typedef struct route {
    _Atomic(struct route *) next; // older
    int device;
    uint64_t serial; // of the group
    berm_pool_id_t id;
    berm_pool_filter_fn filter;
    void *context;
} route_t;

atomic_uint berm__route_count;

static struct {
    berm_mutex_t lock;
    _Atomic(route_t *) newest;
    atomic_uint phase;
    atomic_uint readers[2]; // inside, by the parity of the phase they came in
} routes = {.lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_ROUTE, "routes")};

static unsigned reader_enter(void) {
    for (;;) {
        unsigned parity = atomic_load(&routes.phase) & 1;
        (void)atomic_fetch_add(&routes.readers[parity], 1);
        if ((atomic_load(&routes.phase) & 1) == parity)
            return parity;
        (void)atomic_fetch_sub(&routes.readers[parity], 1); // a writer came between
    }
}

static void reader_leave(unsigned parity) {
    (void)atomic_fetch_sub(&routes.readers[parity], 1);
}

// Nobody who could see what was taken off before is inside any more.
static void readers_wait(void) {
    unsigned parity = atomic_fetch_add(&routes.phase, 1) & 1;
    while (atomic_load(&routes.readers[parity]) != 0)
        (void)sched_yield();
}

bool berm__route_find(int device, berm_stream_t stream, berm_pool_id_t *id) {
    unsigned parity = reader_enter();
    route_t *route = atomic_load(&routes.newest);
    while (route != NULL && (route->device != device || !route->filter(stream, route->context)))
        route = atomic_load(&route->next);
    if (route != NULL)
        *id = route->id;
    reader_leave(parity);
    return route != NULL;
}

berm_status_t berm__route_add(int device, uint64_t serial, berm_pool_id_t id,
                              berm_pool_filter_fn filter, void *context) {
    route_t *route = berm__mem_alloc(sizeof *route);
    if (route == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    route->device = device;
    route->serial = serial;
    route->id = id;
    route->filter = filter;
    route->context = context;
    berm__mutex_lock(&routes.lock);
    atomic_store(&route->next, atomic_load(&routes.newest));
    atomic_store(&routes.newest, route);
    (void)atomic_fetch_add(&berm__route_count, 1);
    berm__mutex_unlock(&routes.lock);
    return BERM_OK;
}

// Takes routes off, newest first, until `most` are; serial 0 is every route.
static void routes_take(uint64_t serial, uint32_t most) {
    berm__mutex_lock(&routes.lock);
    _Atomic(route_t *) *at = &routes.newest;
    for (route_t *route = atomic_load(at); route != NULL && most > 0; route = atomic_load(at)) {
        if (serial != 0 && route->serial != serial) {
            at = &route->next;
            continue;
        }
        atomic_store(at, atomic_load(&route->next));
        (void)atomic_fetch_sub(&berm__route_count, 1);
        readers_wait();
        berm__mem_free(route, sizeof *route);
        most--;
    }
    berm__mutex_unlock(&routes.lock);
}

void berm__route_remove(uint64_t serial, bool all) {
    routes_take(serial, all ? UINT32_MAX : 1);
}

void berm__route_clear(void) {
    routes_take(0, UINT32_MAX);
}
