// SPDX-License-Identifier: Apache-2.0
// Against learned placement: work that comes again almost, in the shapes that are hard for a plan,
// and anything at all in between. On a strict device nothing may be used too early; the audit and
// both ledgers agree throughout; a request fails only where the limit says so.
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "policy/learn.h"
#include "tests/support/heap_inside.h"
#include "tests/support/periodic.h"

#define GRANULE BERM_KIB(256)

enum {
    WORKS = 4,
    STRAYS = 12,
};

static berm_rng_t rng;
static void *streams[2];
static periodic_t works[WORKS];
static berm_addr_t strays[STRAYS]; // blocks beside all periods
static uint64_t planned_requests;

static bool draw(uint64_t one_in) {
    return berm__rng_below(&rng, one_in) == 0;
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

static void begin(bool is_alias, const char *more) {
    char conf[128];
    (void)snprintf(conf, sizeof conf, "growth_handle:256K,%s%s",
                   is_alias ? "headroom:1,remap:alias" : "headroom:4", more);
    heap_fixture_begin(&(heap_fixture_options_t){.granule_bytes = GRANULE, .berm = conf});
    for (int i = 0; i < 2; i++)
        streams[i] = heap_stream_create();
}

static void end(void) {
    planned_requests += stats_read().planned_requests;
    heap_context_synchronize();
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

static void steps(periodic_t *work, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        berm_status_t status = periodic_step(work);
        cr_assert(status == BERM_OK || status == BERM_ERROR_LIMIT ||
                      status == BERM_ERROR_OUT_OF_DEVICE_MEMORY,
                  "%s", berm_error_message());
    }
}

// One shape each: [0] the smallest large blocks, in the shortest period; [1] packed mixes; [2]
// whole granules; [3] one block as large as all others.
static void works_init(void) {
    periodic_init(&works[0], streams[0], 16, 512, 129, 140, 6, 1);
    periodic_init(&works[1], streams[0], 40, 512, 129, 6000, 15, 2);
    periodic_init(&works[2], streams[0], 60, GRANULE, 1, 20, 20, 3);
    periodic_init(&works[3], streams[0], 20, 512, 129, 2000, 19, 4);
    works[3].size_bytes[7] = BERM_MIB(40);
}

static void works_free(void) {
    for (int i = 0; i < WORKS; i++)
        periodic_free_all(&works[i]);
}

// --- shapes ------------------------------------------------------------------------------------

static void each_shape(bool is_alias) {
    for (int i = 0; i < WORKS; i++) {
        begin(is_alias, "");
        works_init();
        for (int period = 0; period < 14; period++) {
            steps(&works[i], works[i].count);
            BERM_TEST_CHECK();
        }
        end();
    }
}

Test(learn_attacks, each_shape) {
    each_shape(false);
    each_shape(true);
    cr_assert(planned_requests > 800, "%llu", (unsigned long long)planned_requests);
}

// A A B B A A B B ..., all of it with what the others left live.
static void alternate(bool is_alias) {
    begin(is_alias, "");
    works_init();
    for (int i = 0; i < 40; i++) {
        periodic_t *work = &works[1 + i / 2 % 2];
        steps(work, work->count);
        BERM_TEST_CHECK();
    }
    end();
}

Test(learn_attacks, periods_that_alternate) {
    alternate(false);
    alternate(true);
}

// Every period's blocks are larger than the last one's: sequences that grow.
static void grow(bool is_alias) {
    begin(is_alias, "");
    works_init();
    for (int period = 0; period < 40; period++) {
        periodic_t *work = &works[2];
        for (uint32_t i = 0; i < work->count; i += is_alias ? 7 : 3)
            work->size_bytes[i] += 512;
        steps(work, work->count);
        BERM_TEST_CHECK();
    }
    end();
}

Test(learn_attacks, periods_that_grow) {
    grow(false);
    grow(true);
}

// Blocks that are live around the end of the period: all of them for most of one.
Test(learn_attacks, blocks_that_wrap) {
    for (int is_alias = 0; is_alias < 2; is_alias++) {
        begin(is_alias != 0, "");
        works_init();
        for (uint32_t i = 0; i < works[2].count; i++)
            works[2].lifetime[i] = works[2].count - 1 - i % 5;
        for (int period = 0; period < 14; period++) {
            steps(&works[2], works[2].count);
            BERM_TEST_CHECK();
        }
        end();
    }
}

// A few requests have other sizes each time, up to a quarter more or less: they may have the
// planned place, but never two addresses of one page.
static void sizes_change(bool is_alias, uint64_t seed) {
    static uint64_t sizes[PERIODIC_MAX];
    berm__rng_seed(&rng, seed);
    begin(is_alias, "");
    works_init();
    periodic_t *work = &works[2];
    steps(work, 8 * work->count);
    for (uint32_t i = 0; i < work->count; i++)
        sizes[i] = work->size_bytes[i];
    for (uint32_t i = 0; i < 4 * work->count; i++) {
        uint32_t at = (uint32_t)(work->step % work->count);
        uint64_t quarter = sizes[at] / 4 / 512;
        work->size_bytes[at] = sizes[at];
        if (draw(6))
            work->size_bytes[at] += 512 * berm__rng_below(&rng, quarter + 1);
        else if (draw(6))
            work->size_bytes[at] -= 512 * berm__rng_below(&rng, quarter + 1);
        steps(work, 1);
        BERM_TEST_CHECK();
    }
    end();
}

Test(learn_attacks, sizes_that_change) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        sizes_change(false, seed);
        sizes_change(true, seed);
    }
}

// More requests than are remembered, with a plan and without.
Test(learn_attacks, more_notes_than_are_kept) {
    begin(false, "");
    works_init();
    works[0].on_alloc = NULL;
    for (uint32_t i = 0; i < BERM_LEARN_NOTES_MAX + 5000; i++)
        cr_assert(periodic_step(&works[0]) == BERM_OK);
    BERM_TEST_CHECK();
    periodic_run(&works[1], 60);
    BERM_TEST_CHECK();
    end();
}

// --- anything ----------------------------------------------------------------------------------

static void stray_toggle(void) {
    berm_addr_t *stray = &strays[berm__rng_below(&rng, STRAYS)];
    void *stream = streams[berm__rng_below(&rng, 2)];
    if (*stray != 0) {
        heap_free(*stray, draw(3) ? BERM_STREAM_NONE : stream);
        *stray = 0;
        return;
    }
    uint64_t bytes = draw(2) ? 1 + berm__rng_below(&rng, 60000)
                             : works[1].size_bytes[berm__rng_below(&rng, works[1].count)];
    if (berm_alloc(bytes, 0, stream, stray) != BERM_OK) {
        cr_assert(*stray == 0);
        return;
    }
    heap_use(stream, *stray, bytes, 3000);
    if (draw(3)) {
        void *other = streams[berm__rng_below(&rng, 2)];
        heap_stream_follow(other, stream);
        heap_use(other, *stray, bytes, 9000);
        cr_assert(berm_record_stream(*stray, other) == BERM_OK);
    } else { // freed anywhere
        for (int i = 0; i < 2; i++)
            heap_stream_follow(streams[i], stream);
    }
}

// The block that was made last is used by the other stream too, or freed out of turn.
static void last_disturb(periodic_t *work) {
    uint32_t last = (uint32_t)((work->step + work->count - 1) % work->count);
    if (work->addr[last] == 0)
        return;
    if (draw(2)) {
        heap_stream_follow(streams[1], streams[0]);
        heap_use(streams[1], work->addr[last], 512, 20000);
        cr_assert(berm_record_stream(work->addr[last], streams[1]) == BERM_OK);
        return;
    }
    heap_free(work->addr[last], draw(2) ? BERM_STREAM_NONE : streams[0]);
    work->addr[last] = 0;
}

static void option_flip(bool is_alias) {
    const char *value = draw(2) ? "off" : "on";
    if (draw(2))
        cr_assert(berm_option_set("learned_placement", value) == BERM_OK);
    else if (is_alias)
        cr_assert(berm_option_set("remap", draw(2) ? "passed" : "alias") == BERM_OK);
}

static void around(bool is_alias) {
    uint64_t released_bytes;
    switch (berm__rng_below(&rng, 40)) {
    case 0:
        cr_assert(berm_trim(0, berm__rng_below(&rng, 2) * BERM_MIB(16), &released_bytes) ==
                  BERM_OK);
        break;
    case 1:
        cr_assert(berm_limit_set(0, draw(2) ? UINT64_MAX : BERM_MIB(48)) == BERM_OK);
        break;
    case 2:
        option_flip(is_alias);
        break;
    case 3:
        heap_context_synchronize();
        break;
    case 4:
        works_free();
        break;
    default:
        stray_toggle();
    }
}

static void anything(bool is_alias, uint64_t seed, const char *more) {
    berm__rng_seed(&rng, seed);
    begin(is_alias, more);
    works_init();
    for (int round = 0; round < 25; round++) {
        periodic_t *work = &works[berm__rng_below(&rng, WORKS)];
        uint64_t calm = 1 + berm__rng_below(&rng, 60); // one in so many requests is disturbed
        uint64_t count = work->count * (3 + berm__rng_below(&rng, 6));
        work->use_ns = draw(3) ? 30000 : 1000;
        for (uint64_t i = 0; i < count; i++) {
            steps(work, 1);
            if (draw(calm * 10))
                last_disturb(work);
            if (draw(calm * 8))
                around(is_alias);
            if (draw(calm * 20))
                work->step++; // a request is left out
        }
        BERM_TEST_CHECK();
    }
    works_free();
    for (int i = 0; i < STRAYS; i++) {
        heap_free(strays[i], streams[0]);
        strays[i] = 0;
    }
    end();
}

Test(learn_attacks, anything_packed) {
    for (uint64_t seed = 1; seed <= 12; seed++)
        anything(false, seed, "");
    cr_assert(planned_requests > 1000, "%llu", (unsigned long long)planned_requests);
}

Test(learn_attacks, anything_aliased) {
    for (uint64_t seed = 1; seed <= 12; seed++)
        anything(true, seed, "");
    cr_assert(planned_requests > 1000, "%llu", (unsigned long long)planned_requests);
}

Test(learn_attacks, anything_with_large_handles_and_decay) {
    for (uint64_t seed = 1; seed <= 6; seed++)
        anything(seed % 2 == 0, seed, ",growth_handle:1M,decay_ms:0,sync_edits:on");
}
