// SPDX-License-Identifier: Apache-2.0
// What the tests of learned placement share: periodic work, a plan for it, and both kinds of plan.
#ifndef BERM_TESTS_LEARN_HELPERS_H
#define BERM_TESTS_LEARN_HELPERS_H

#include <criterion/criterion.h>
#include <stdio.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "policy/learn.h"
#include "tests/support/heap_inside.h"
#include "tests/support/periodic.h"

#define GRANULE BERM_KIB(256)

typedef enum kind {
    PACKED,
    ALIASED,
} kind_t;

// Set by BOTH, or by the test, before heap_begin_with.
static kind_t kind;
static void *stream;
static periodic_t work;

static inline berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

static inline uint64_t memory_calls(void) {
    static const char *const names[] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                        "cuMemSetAccess",      "cuMemUnmap",  "cuMemRelease",
                                        "cuMemAddressFree"};
    uint64_t calls = 0;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(names); i++)
        calls += simcuda_calls(names[i]);
    return calls;
}

static inline const berm_planned_t *planned(void) {
    const berm_learn_t *learn = heap_pool(stream)->learn;
    return learn != NULL && learn->planned.segment != NULL ? &learn->planned : NULL;
}

static inline void work_init(periodic_t *some, void *on) {
    if (kind == PACKED)
        periodic_init(some, on, 100, 512, 200, 8000, 20, 3);
    else // whole granules and next to no headroom: no packing is low enough
        periodic_init(some, on, 60, GRANULE, 1, 20, 20, 3);
}

static inline void heap_begin_with(const heap_fixture_options_t *more) {
    char conf[160];
    heap_fixture_options_t options = *more;
    (void)snprintf(conf, sizeof conf, "growth_handle:256K,%s%s%s",
                   kind == PACKED ? "headroom:4" : "headroom:1,remap:alias",
                   more->berm != NULL ? "," : "", more->berm != NULL ? more->berm : "");
    options.granule_bytes = GRANULE;
    options.berm = conf;
    heap_fixture_begin(&options);
    stream = heap_stream_create();
    work_init(&work, stream);
}

// One period that the plan serves whole.
static inline void period_is_planned(void) {
    berm_stats_t before = stats_read();
    uint64_t calls = memory_calls();
    periodic_run(&work, 1);
    berm_stats_t after = stats_read();
    cr_assert(after.planned_requests - before.planned_requests == work.count,
              "%llu of %u requests are the plan's",
              (unsigned long long)(after.planned_requests - before.planned_requests), work.count);
    cr_assert(memory_calls() == calls && after.host_waits == before.host_waits);
    cr_assert(after.moved_bytes == before.moved_bytes);
}

// The same, within so many periods.
static inline void plan_await(uint32_t periods) {
    uint64_t before, after = stats_read().planned_requests;
    do {
        cr_assert(periods-- > 0, "no period is served whole");
        before = after;
        periodic_run(&work, 1);
        after = stats_read().planned_requests;
    } while (after - before < work.count);
    period_is_planned();
}

static inline void plan_make(void) {
    periodic_run(&work, 6);
    cr_assert(planned() != NULL, "there is a plan");
    cr_assert(planned()->plan->is_aliased == (kind == ALIASED));
    period_is_planned();
}

static inline void begin(const char *berm) {
    heap_begin_with(&(heap_fixture_options_t){.berm = berm});
    plan_make();
}

static inline void some_steps(uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        cr_assert(periodic_step(&work) == BERM_OK);
}

static inline bool is_in_arena(berm_addr_t addr) {
    const berm_segment_t *segment = planned()->segment;
    return addr >= segment->base && addr < segment->base + segment->span_bytes;
}

static inline void end(void) {
    heap_context_synchronize();
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

#define BOTH(name)                                                                                 \
    static void name(void);                                                                        \
    Test(learn, name) {                                                                            \
        kind = PACKED;                                                                             \
        name();                                                                                    \
    }                                                                                              \
    Test(learn_alias, name) {                                                                      \
        kind = ALIASED;                                                                            \
        name();                                                                                    \
    }                                                                                              \
    static void name(void)

static inline void other_work_run(uint32_t requests) {
    static periodic_t other;
    periodic_init(&other, stream, 300, 512, 201, 5000, 20, 99);
    for (uint32_t i = 0; i < requests; i++)
        cr_assert(periodic_step(&other) == BERM_OK);
    periodic_free_all(&other);
}

#endif
