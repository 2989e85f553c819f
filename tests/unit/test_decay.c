// SPDX-License-Identifier: Apache-2.0
// Decay: the curve by itself, and a heap whose clock the test owns. What is held is compared with
// the smootherstep polynomial and with the bound that docs/tuning.md states.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "tests/support/heap_inside.h"

static const uint64_t second_ns = 1000000000;

// --- the curve ---------------------------------------------------------------------------------

// 1,000,000 bytes become idle at once; what may be kept of them after `parts` of 1,000 of the time.
static uint64_t kept_after(uint64_t parts) {
    berm_decay_t decay = {0};
    berm__decay_set(&decay, 10000, false);
    uint64_t start_ns = 77, keep_bytes = berm__decay_advance(&decay, start_ns, 1000000);
    cr_assert(keep_bytes == 1000000);
    for (uint64_t part = 5; part <= parts; part += 5) {
        uint64_t now_ns = start_ns + part * 10 * second_ns / 1000;
        cr_assert(berm__decay_is_due(&decay, now_ns));
        keep_bytes = berm__decay_advance(&decay, now_ns, keep_bytes);
    }
    return keep_bytes;
}

Test(decay, follows_the_curve) {
    cr_assert(kept_after(5) >= 999990);
    cr_assert(kept_after(250) > 896000 && kept_after(250) < 897000);
    cr_assert(kept_after(500) > 499000 && kept_after(500) < 501000);
    cr_assert(kept_after(750) > 103000 && kept_after(750) < 104000);
    cr_assert(kept_after(1000) == 0);
}

Test(decay, is_due_once_a_step) {
    berm_decay_t decay = {0};
    berm__decay_set(&decay, 200, false); // steps of a millisecond
    cr_assert(berm__decay_is_due(&decay, 0));
    (void)berm__decay_advance(&decay, 0, 100);
    cr_assert(!berm__decay_is_due(&decay, 999999));
    cr_assert(berm__decay_is_due(&decay, 1000000));
    cr_assert(berm__decay_advance(&decay, 300000000, 100) == 0, "late, all of it is due");
}

Test(decay, what_is_used_for_a_while_keeps_most_of_its_age) {
    berm_decay_t decay = {0};
    berm__decay_set(&decay, 200, false);
    cr_assert(berm__decay_advance(&decay, 0, 1000) == 1000);
    cr_assert(berm__decay_advance(&decay, 50000000, 0) > 0, "none is idle now");
    uint64_t keep_bytes = berm__decay_advance(&decay, 100000000, 1000);
    // 896 might be kept when they were in use; so many are of the age they had.
    cr_assert(keep_bytes == 500 + 104, "%llu", (unsigned long long)keep_bytes);
}

Test(decay, never_and_at_once) {
    berm_decay_t decay = {0};
    berm__decay_set(&decay, BERM_DECAY_NEVER, false);
    cr_assert(!berm__decay_is_due(&decay, UINT64_MAX));
    berm__decay_set(&decay, 0, false);
    cr_assert(berm__decay_is_due(&decay, 0) && berm__decay_advance(&decay, 0, 1000) == 0);
    cr_assert(berm__decay_is_due(&decay, 0));
    berm__decay_set(&decay, UINT64_MAX / 2, false);
    cr_assert(!berm__decay_is_due(&decay, UINT64_MAX), "too long for nanoseconds is never");
}

Test(decay, the_same_time_again_changes_nothing) {
    berm_decay_t decay = {0};
    berm__decay_set(&decay, 200, false);
    (void)berm__decay_advance(&decay, 0, 1000);
    berm__decay_set(&decay, 200, false);
    cr_assert(decay.has_begun);
    berm__decay_set(&decay, 100, false);
    cr_assert(!decay.has_begun);
}

// With a half-life: a half, a quarter, an eighth, however often it is asked.
Test(decay, follows_the_half_life) {
    static const uint64_t steps_ms[] = {1, 7, 50, 1000};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(steps_ms); i++) {
        berm_decay_t decay = {0};
        berm__decay_set(&decay, 1000, true);
        uint64_t keep_bytes = berm__decay_advance(&decay, 3, 1000000);
        cr_assert(keep_bytes == 1000000);
        for (uint64_t ms = 0; ms < 3000; ms += steps_ms[i])
            keep_bytes = berm__decay_advance(&decay, 3 + (ms + steps_ms[i]) * 1000000, keep_bytes);
        cr_assert(keep_bytes > 123000 && keep_bytes < 127000, "%llu by steps of %llu",
                  (unsigned long long)keep_bytes, (unsigned long long)steps_ms[i]);
    }
    berm_decay_t decay = {0};
    berm__decay_set(&decay, 1000, true);
    (void)berm__decay_advance(&decay, 0, 1000000);
    uint64_t keep_bytes = berm__decay_advance(&decay, 1000000000, 1500000);
    cr_assert(keep_bytes > 999000 && keep_bytes < 1001000, "half of the old and all of the new");
    cr_assert(berm__decay_advance(&decay, UINT64_MAX / 2, 1500000) == 0);
}

// --- a heap ------------------------------------------------------------------------------------

static uint64_t test_now_ns;

static uint64_t clock_read(void *context) {
    (void)context;
    return test_now_ns;
}

static void heap_begin(const char *conf, int has_caches) {
    test_now_ns = 5;
    cr_assert(berm_clock_set(clock_read, NULL) == BERM_OK);
    heap_fixture_begin(&(heap_fixture_options_t){
        .memory_bytes = BERM_MIB(1024), .berm = conf, .has_caches = has_caches});
}

static void heap_end(void) {
    BERM_TEST_END_INSIDE();
    cr_assert(berm_clock_set(NULL, NULL) == BERM_OK);
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = BERM_STATS_INIT;
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

static uint64_t reserved_bytes(void) {
    return stats_read().reserved_bytes.current;
}

static void tick(void) {
    cr_assert(berm_decay_tick(0) == BERM_OK, "%s", berm_error_message());
    BERM_TEST_CHECK();
}

// Ticks a step at a time.
static void time_pass(uint64_t ns, uint64_t step_ns) {
    for (uint64_t end_ns = test_now_ns + ns; test_now_ns < end_ns;) {
        test_now_ns += step_ns;
        simcuda_advance_ns(step_ns);
        tick();
    }
}

// 512 MiB that nothing needs, in pages of a granule.
static void heap_make_idle(void *stream) {
    berm_addr_t blocks[32];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++) {
        blocks[i] = heap_alloc(BERM_MIB(16), stream);
        heap_use(stream, blocks[i], BERM_MIB(16), 1000);
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        heap_free(blocks[i], stream);
    cr_assert(reserved_bytes() == BERM_MIB(512));
    simcuda_advance_ns(second_ns);
    test_now_ns += second_ns; // the misses have ticked: the next step
}

// The same with a half-life. The last granule goes too.
Test(decay, three_half_lives_of_the_option_leave_at_most_13_percent) {
    heap_begin("decay_half_life_ms:5000,decay_ms:7,growth_handle:2M", 0);
    heap_make_idle(heap_stream_create());
    tick();
    cr_assert(reserved_bytes() == BERM_MIB(512));
    time_pass(5 * second_ns, second_ns / 20);
    cr_assert(reserved_bytes() > BERM_MIB(250) && reserved_bytes() < BERM_MIB(262), "%llu MiB",
              (unsigned long long)(reserved_bytes() >> 20));
    time_pass(10 * second_ns, second_ns / 20);
    cr_assert(reserved_bytes() > BERM_MIB(50) && reserved_bytes() <= BERM_MIB(512) * 13 / 100,
              "%llu MiB", (unsigned long long)(reserved_bytes() >> 20));
    time_pass(35 * second_ns, second_ns / 2);
    cr_assert(reserved_bytes() == 0);
    heap_end();
}

Test(decay, three_half_lives_leave_at_most_13_percent) {
    heap_begin("decay_ms:10000,growth_handle:2M", 0);
    heap_make_idle(heap_stream_create());
    tick();
    cr_assert(reserved_bytes() == BERM_MIB(512));
    time_pass(5 * second_ns, second_ns / 20); // one half-life
    cr_assert(reserved_bytes() > BERM_MIB(250) && reserved_bytes() < BERM_MIB(262), "%llu MiB",
              (unsigned long long)(reserved_bytes() >> 20));
    time_pass(5 * second_ns / 2, second_ns / 20); // one and a half
    cr_assert(reserved_bytes() <= BERM_MIB(512) * 13 / 100);
    time_pass(15 * second_ns / 2, second_ns / 20); // three
    cr_assert(reserved_bytes() <= BERM_MIB(512) * 13 / 100);
    cr_assert(reserved_bytes() == 0, "the curve has ended");
    berm_stats_t stats = stats_read();
    cr_assert(stats.decayed_bytes == BERM_MIB(512));
    cr_assert(stats.decay_ticks == 302, "%llu: one for each step, the miss and the first",
              (unsigned long long)stats.decay_ticks);
    heap_end();
}

Test(decay, idle_handles_and_what_threads_keep_go_too) {
    heap_begin("decay_ms:1000", 1);
    void *stream = heap_stream_create();
    berm_addr_t small = heap_alloc(1000, stream), large = heap_alloc(BERM_MIB(24), stream);
    heap_use(stream, small, 1000, 10);
    heap_free(small, stream);
    heap_free(large, stream);
    cr_assert(reserved_bytes() > BERM_MIB(24));
    tick();
    time_pass(2 * second_ns, second_ns / 200);
    cr_assert(reserved_bytes() == 0);
    heap_end();
}

Test(decay, live_and_running_memory_stays) {
    heap_begin("decay_ms:0", 0);
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(BERM_MIB(8), stream), live = heap_alloc(BERM_MIB(8), stream);
    heap_use(stream, block, BERM_MIB(8), 10 * second_ns);
    heap_free(block, stream);
    tick();
    tick();
    cr_assert(reserved_bytes() == BERM_MIB(16), "the kernel still runs");
    simcuda_advance_ns(11 * second_ns);
    tick();
    cr_assert(reserved_bytes() == BERM_MIB(8));
    heap_free(live, stream);
    tick();
    tick(); // the event of the first tells the second
    cr_assert(reserved_bytes() == 0);
    heap_end();
}

Test(decay, awaited_frees_are_finished) {
    heap_begin("decay_ms:0", 0);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t block = heap_alloc(BERM_MIB(8), stream);
    cr_assert(berm_record_stream(block, other) == BERM_OK);
    heap_free(block, stream);
    for (int i = 0; i < 3; i++) {
        simcuda_advance_ns(1000000);
        tick();
    }
    cr_assert(reserved_bytes() == 0);
    heap_end();
}

Test(decay, a_miss_ticks_and_a_hit_does_not) {
    heap_begin("decay_ms:1000,growth_handle:2M", 0);
    void *stream = heap_stream_create();
    heap_make_idle(stream);
    tick();
    uint64_t ticks = stats_read().decay_ticks;
    test_now_ns += 10 * second_ns;
    heap_free(heap_alloc(BERM_MIB(16), stream), stream);
    cr_assert(stats_read().decay_ticks == ticks && reserved_bytes() == BERM_MIB(512));
    berm_addr_t more = heap_alloc(BERM_MIB(514), stream); // nothing free holds it
    berm_stats_t stats = stats_read();
    cr_assert(stats.decay_ticks == ticks + 1);
    cr_assert(stats.decayed_bytes <= BERM_MIB(128), "somebody waits: only a part of what is due");
    heap_free(more, stream);
    heap_end();
}

Test(decay, a_trim_ticks) {
    heap_begin("decay_ms:1000,growth_handle:2M", 0);
    void *stream = heap_stream_create();
    heap_make_idle(stream);
    tick();
    test_now_ns += 10 * second_ns;
    cr_assert(berm_trim(0, BERM_MIB(300), NULL) == BERM_OK);
    cr_assert(stats_read().decay_ticks == 3 && reserved_bytes() == 0);
    heap_end();
}

Test(decay, never_is_the_default_and_can_be_changed) {
    heap_begin(NULL, 0);
    heap_make_idle(heap_stream_create());
    test_now_ns += 1000 * second_ns;
    tick();
    cr_assert(stats_read().decay_ticks == 0 && reserved_bytes() == BERM_MIB(512));
    cr_assert(berm_option_set("decay_ms", "0") == BERM_OK);
    tick();
    tick();
    cr_assert(reserved_bytes() == 0);
    heap_end();
}

Test(decay, a_refused_release_is_reported_and_tried_again) {
    heap_begin("decay_ms:0", 0);
    heap_make_idle(heap_stream_create());
    tick(); // records the event
    cr_assert(simcuda_fault_nth("cuMemRelease", 1, 1, 999) == 0);
    berm_status_t status = BERM_OK;
    for (int i = 0; i < 3 && status == BERM_OK; i++)
        status = berm_decay_tick(0);
    simcuda_faults_clear();
    if (status == BERM_OK)
        cr_assert(simcuda_faults_fired() == 0 && reserved_bytes() == 0);
    else
        cr_assert(status == BERM_ERROR_DRIVER && reserved_bytes() > 0);
    tick();
    cr_assert(reserved_bytes() == 0);
    heap_end();
}
