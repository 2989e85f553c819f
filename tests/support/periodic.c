// SPDX-License-Identifier: Apache-2.0
// See periodic.h.
#include "tests/support/periodic.h"

#include <string.h>

#include "base/rng.h"

static berm_status_t alloc_plainly(uint64_t size_bytes, void *stream, berm_addr_t *out) {
    return berm_alloc(size_bytes, 0, stream, out);
}

void periodic_init(periodic_t *work, void *stream, uint32_t count, uint64_t unit_bytes,
                   uint64_t least, uint64_t most, uint32_t lifetime_max, uint64_t seed) {
    berm_rng_t rng;
    HEAP_INSIST(count <= PERIODIC_MAX && lifetime_max < count);
    memset(work, 0, sizeof *work);
    work->stream = stream;
    work->count = count;
    work->use_ns = 1000;
    work->host_ns = 1500;
    work->alloc = alloc_plainly;
    work->free = heap_free;
    berm__rng_seed(&rng, seed);
    for (uint32_t i = 0; i < count; i++) {
        work->size_bytes[i] = (least + berm__rng_below(&rng, most - least + 1)) * unit_bytes;
        work->lifetime[i] = 1 + (uint32_t)berm__rng_below(&rng, lifetime_max);
    }
}

void periodic_close(periodic_t *work) {
    for (uint32_t i = 0; i < work->count; i++)
        if (work->lifetime[i] > work->count - i)
            work->lifetime[i] = work->count - i;
}

static void due_free(periodic_t *work, bool is_all) {
    for (uint32_t i = 0; i < work->count; i++) {
        if (work->addr[i] == 0 || (!is_all && work->end[i] > work->step))
            continue;
        if (work->on_free != NULL)
            work->on_free(work, i);
        work->free(work->addr[i], work->stream);
        work->addr[i] = 0;
    }
}

berm_status_t periodic_step(periodic_t *work) {
    simcuda_advance_ns(work->host_ns);
    due_free(work, false);
    uint32_t i = (uint32_t)(work->step % work->count);
    HEAP_INSIST(work->addr[i] == 0);
    berm_status_t status = work->alloc(work->size_bytes[i], work->stream, &work->addr[i]);
    work->end[i] = work->step + work->lifetime[i];
    work->step++;
    if (status != BERM_OK)
        return status;
    if (work->on_alloc != NULL)
        work->on_alloc(work, i);
    else
        heap_use(work->stream, work->addr[i], work->size_bytes[i], work->use_ns);
    return BERM_OK;
}

void periodic_run(periodic_t *work, uint32_t periods) {
    for (uint64_t i = 0; i < (uint64_t)periods * work->count; i++)
        HEAP_INSIST(periodic_step(work) == BERM_OK);
}

void periodic_free_all(periodic_t *work) {
    due_free(work, true);
}

uint64_t periodic_peak_bytes(const periodic_t *work) {
    uint64_t peak = 0;
    for (uint32_t at = 0; at < work->count; at++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < work->count; i++)
            if ((at + work->count - i) % work->count < work->lifetime[i])
                live += work->size_bytes[i];
        peak = live > peak ? live : peak;
    }
    return peak;
}
