// SPDX-License-Identifier: Apache-2.0
// Decay: see decay.h for the curve and for what is idle.
//
// Cost of a tick that is due: every free range of a granule or more is looked at, and a barrier to
// the threads' caches. Of one that is not due: a look at the clock.
#include "policy/decay.h"

#include <string.h>

#include "base/bits.h"
#include "host/clock.h"
#include "policy/cache.h"
#include "policy/pool.h"

enum {
    SHORT_SHARE = 64, // a short tick takes at most this part of what is reserved ...
    SHORT_LEAST = 64  // ... or so many granules
};

void berm__decay_set(berm_decay_t *decay, uint64_t time_ms, bool is_half_life) {
    if (decay->step_ns != 0 && decay->time_ms == time_ms && decay->is_half_life == is_half_life)
        return;
    *decay = (berm_decay_t){.time_ms = time_ms,
                            .is_half_life = is_half_life,
                            .ticks = decay->ticks,
                            .decayed_bytes = decay->decayed_bytes};
    if (time_ms == BERM_DECAY_NEVER || !berm__mul_checked(time_ms, 1000000, &decay->time_ns))
        decay->time_ns = BERM_DECAY_NEVER;
    decay->step_ns = berm__max_u64(decay->time_ns / BERM_DECAY_STEPS, 1);
}

// The share that may be kept of what became idle `age` steps ago.
static double share_kept(unsigned age) {
    double x = (double)age / BERM_DECAY_STEPS;
    return 1 - x * x * x * (10 - x * (15 - 6 * x));
}

// 2^-(steps / BERM_DECAY_STEPS)
static double share_halved(uint64_t steps) {
    double share = 1, power = 0.99654026282786775; // 2^-(1/200)
    _Static_assert(BERM_DECAY_STEPS == 200, "the power is of one step");
    if (steps >= 64 * (uint64_t)BERM_DECAY_STEPS)
        return 0;
    for (; steps > 0; steps /= 2, power *= power)
        if (steps % 2 != 0)
            share *= power;
    return share;
}

static void backlog_shift(berm_decay_t *decay, uint64_t steps) {
    uint64_t *backlog = decay->backlog;
    uint64_t gone = berm__min_u64(steps, BERM_DECAY_STEPS);
    memmove(backlog, backlog + gone, (BERM_DECAY_STEPS - gone) * sizeof *backlog);
    memset(backlog + (BERM_DECAY_STEPS - gone), 0, gone * sizeof *backlog);
}

bool berm__decay_is_due(const berm_decay_t *decay, uint64_t now_ns) {
    if (decay->time_ns == BERM_DECAY_NEVER)
        return false;
    return !decay->has_begun || now_ns - decay->epoch_ns >= decay->step_ns || decay->time_ns == 0;
}

uint64_t berm__decay_advance(berm_decay_t *decay, uint64_t now_ns, uint64_t idle_bytes) {
    if (decay->time_ns == 0)
        return 0;
    if (!decay->has_begun)
        decay->epoch_ns = now_ns;
    uint64_t steps = (now_ns - decay->epoch_ns) / decay->step_ns;
    decay->has_begun = true;
    decay->epoch_ns += steps * decay->step_ns;
    uint64_t new_bytes = idle_bytes > decay->seen_bytes ? idle_bytes - decay->seen_bytes : 0;
    double keep = 0;
    if (decay->is_half_life) {
        keep = decay->kept_bytes = decay->kept_bytes * share_halved(steps) + (double)new_bytes;
    } else {
        backlog_shift(decay, steps);
        decay->backlog[BERM_DECAY_STEPS - 1] += new_bytes;
        for (unsigned i = 0; i < BERM_DECAY_STEPS; i++)
            keep += (double)decay->backlog[i] * share_kept(BERM_DECAY_STEPS - 1 - i);
    }
    // Bytes that are in use again keep their age as far as the curve would have kept them: a loop
    // that takes and gives the same memory back does not make all of it new each time.
    decay->seen_bytes = berm__max_u64((uint64_t)keep, idle_bytes);
    return (uint64_t)keep;
}

static uint64_t idle_bytes(berm_device_t *device) {
    uint64_t granules = berm__phys_idle_granules(&device->phys);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        granules += berm__steal_free(pool);
    return granules << device->gpu.lg_granule;
}

// Since the last tick nothing was allocated or freed: what threads keep and empty slabs are idle
// too.
static void rest_look(berm_device_t *device) {
    berm__caches_merge(device);
    berm__mutex_lock(&device->figures_lock);
    uint64_t activity = device->blocks.total_up + device->blocks.total_down;
    berm__mutex_unlock(&device->figures_lock);
    bool is_at_rest = activity == device->decay.activity;
    device->decay.activity = activity;
    if (!is_at_rest)
        return;
    (void)berm__caches_drain(device);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        (void)berm__small_flush_locking(pool);
}

// Frees that have finished, and an event for what is free by now: the next tick may take it.
static berm_status_t streams_look(berm_device_t *device) {
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        berm_status_t status = berm__deferred_process(pool, NULL);
        if (status == BERM_OK && berm__pool_has_order(pool))
            status = berm__stream_seal(pool->stream);
        if (status != BERM_OK)
            return status;
    }
    return BERM_OK;
}

// One round: idle handles first, then pages of free ranges, and plain segments that are no larger
// than what is due.
static berm_status_t bytes_release(berm_device_t *device, uint64_t bytes) {
    berm_phys_t *phys = &device->phys;
    unsigned lg = device->gpu.lg_granule;
    uint64_t keep_bytes = phys->reserved_bytes - berm__min_u64(bytes, phys->reserved_bytes);
    uint64_t wanted = bytes >> lg, taken = berm__phys_idle_granules(phys);
    berm_status_t status = BERM_OK;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        uint64_t released_bytes = 0;
        if (status != BERM_OK || taken >= wanted)
            break;
        if (berm__pool_is_plain(pool))
            status = berm__plain_release(pool, (wanted - taken) << lg, false, &released_bytes);
        else
            status = berm__steal_pool(pool, wanted, &taken);
        taken += released_bytes >> lg;
    }
    berm_status_t released = berm__phys_release_idle(phys, keep_bytes);
    return status != BERM_OK ? status : released;
}

// What may go in a tick that someone waits for.
static uint64_t short_bytes(const berm_device_t *device) {
    return berm__max_u64(device->phys.reserved_bytes / SHORT_SHARE,
                         (uint64_t)SHORT_LEAST << device->gpu.lg_granule);
}

berm_status_t berm__decay_tick(berm_device_t *device, bool is_short) {
    berm_decay_t *decay = &device->decay;
    if (BERM_LIKELY(decay->time_ns == BERM_DECAY_NEVER))
        return BERM_OK;
    uint64_t now_ns = berm__clock_ns();
    if (!berm__decay_is_due(decay, now_ns))
        return BERM_OK;
    decay->ticks++;
    rest_look(device);
    berm_status_t status = streams_look(device);
    uint64_t idle = idle_bytes(device), before = device->phys.released_bytes;
    uint64_t keep_bytes = berm__decay_advance(decay, now_ns, idle);
    if (decay->is_half_life && keep_bytes < device->gpu.granule_bytes)
        keep_bytes = 0; // else the last one would stay for ever
    uint64_t due_bytes = idle > keep_bytes ? idle - keep_bytes : 0;
    if (is_short)
        due_bytes = berm__min_u64(due_bytes, short_bytes(device));
    if (status == BERM_OK && due_bytes >= device->gpu.granule_bytes)
        status = bytes_release(device, due_bytes);
    uint64_t released = device->phys.released_bytes - before;
    decay->decayed_bytes += released;
    decay->seen_bytes = berm__max_u64(keep_bytes, idle - berm__min_u64(idle, released));
    return status;
}
