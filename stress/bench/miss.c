// SPDX-License-Identifier: Apache-2.0
// The benchmark of a miss: the device's memory is in 65,536 granules, every second one free, so
// that a request of 64 granules finds them in 64 places, and an allocator that moves pages moves
// all of them. Each operation is one such request; the block stays live, since freed it would be
// found whole by the next.
//
// What the driver takes of it is measured apart: as many unmaps and maps and one call for access,
// in the same process. Locks: none here. May fail: the allocator, the driver.
#include "base/bits.h"
#include "base/cuda_abi.h"
#include "stress/bench/meter.h"
#include "stress/bench/subject.h"
#include "stress/device.h"

enum {
    WARM = 32,       // requests that the headroom may still serve by growing
    DRIVER_TURNS = 8 // of the calls alone
};

// Before the first round: every second block goes, and what may be created is.
static bool holes_make(bench_subject_t *s, const bench_plan_t *plan) {
    for (uint64_t i = 1; i < plan->benchmark->live; i += 2) {
        bench_block_t *block = &s->slots[0][i];
        if (s->ops->free(s->allocator, block->addr, block->size_bytes, s->streams[0]) != STRESS_OK)
            return false;
        block->addr = 0;
    }
    if (stress_driver_raw()->stream_synchronize(s->streams[0]) != BERM_CU_SUCCESS)
        return false;
    for (uint64_t i = 0; i < WARM; i++)
        if (!bench_miss_one(s, plan))
            return false;
    return true;
}

bool bench_miss_one(bench_subject_t *s, const bench_plan_t *plan) {
    uint64_t at = plan->benchmark->live + s->misses;
    if (at >= plan->slots)
        return false;
    bench_block_t *block = &s->slots[0][at];
    block->size_bytes = plan->benchmark->size_bytes;
    s->misses++;
    if (s->ops->alloc(s->allocator, block->size_bytes, s->streams[0], &block->addr) == STRESS_OK)
        return true;
    block->addr = 0;
    return false;
}

bool bench_miss_prepare(bench_subject_t *subject, const bench_plan_t *plan) {
    if (holes_make(subject, plan))
        return true;
    bench_subject_fail(subject, "the heap could not be made");
    return false;
}

// --- what the driver takes -----------------------------------------------------------------------

typedef struct pages {
    const stress_driver_t *driver;
    uint64_t granule_bytes, count;
    berm_cu_deviceptr_t at[2];
    berm_cu_mem_handle_t handles[64];
    berm_cu_mem_access_t access;
} pages_t;

static bool pages_map(const pages_t *p, int side) {
    for (uint64_t i = 0; i < p->count; i++)
        if (p->driver->mem_map(p->at[side] + i * p->granule_bytes, p->granule_bytes, 0,
                               p->handles[i], 0) != BERM_CU_SUCCESS)
            return false;
    return p->driver->set_access(p->at[side], p->count * p->granule_bytes, &p->access, 1) ==
           BERM_CU_SUCCESS;
}

static bool pages_unmap(const pages_t *p, int side) {
    for (uint64_t i = 0; i < p->count; i++)
        if (p->driver->mem_unmap(p->at[side] + i * p->granule_bytes, p->granule_bytes) !=
            BERM_CU_SUCCESS)
            return false;
    return true;
}

static bool pages_make(pages_t *p) {
    berm_cu_mem_prop_t prop = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                               .location = p->access.location};
    for (uint64_t i = 0; i < p->count; i++)
        if (p->driver->mem_create(&p->handles[i], p->granule_bytes, &prop, 0) != BERM_CU_SUCCESS)
            return false;
    for (int side = 0; side < 2; side++)
        if (p->driver->address_reserve(&p->at[side], p->count * p->granule_bytes, 0, 0, 0) !=
            BERM_CU_SUCCESS)
            return false;
    return pages_map(p, 0);
}

static void pages_end(pages_t *p, int side) {
    (void)pages_unmap(p, side);
    for (uint64_t i = 0; i < p->count; i++)
        if (p->handles[i] != 0)
            (void)p->driver->mem_release(p->handles[i]);
    for (int i = 0; i < 2; i++)
        if (p->at[i] != 0)
            (void)p->driver->address_free(p->at[i], p->count * p->granule_bytes);
}

double bench_miss_driver_ns(const bench_plan_t *plan) {
    const uint64_t granule_bytes = UINT64_C(2) << 20;
    pages_t p = {
        .driver = stress_driver_raw(),
        .granule_bytes = granule_bytes,
        .count = berm__min_u64(plan->benchmark->size_bytes / granule_bytes, 64),
        .access = {.location = {.type = BERM_CU_MEM_LOCATION_DEVICE, .id = stress_device_ordinal()},
                   .flags = BERM_CU_MEM_ACCESS_READWRITE}};
    bool is_good = pages_make(&p);
    int side = 0;
    uint64_t start_ns = meter_clock_ns();
    for (int turn = 0; turn < DRIVER_TURNS && is_good; turn++) {
        is_good = pages_unmap(&p, side) && pages_map(&p, 1 - side);
        side = 1 - side;
    }
    double spent_ns = (double)(meter_clock_ns() - start_ns) / DRIVER_TURNS;
    pages_end(&p, side);
    return is_good ? spent_ns : -1;
}
