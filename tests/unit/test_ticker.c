// SPDX-License-Identifier: Apache-2.0
// The background thread by itself: it calls, sleeps, wakes and ends.
#include <criterion/criterion.h>
#include <sched.h>

#include "host/ticker.h"

static atomic_uint calls;

static uint64_t tick_once(void *context) {
    atomic_fetch_add((atomic_uint *)context, 1);
    return UINT64_MAX;
}

static uint64_t tick_often(void *context) {
    atomic_fetch_add((atomic_uint *)context, 1);
    return 1000;
}

static void calls_wait(unsigned count) {
    while (atomic_load(&calls) < count)
        (void)sched_yield();
}

Test(ticker, ticks_again_after_its_rest, .timeout = 60) {
    berm_ticker_t ticker;
    cr_assert(berm__ticker_start(&ticker, "test", tick_often, &calls));
    calls_wait(5);
    berm__ticker_stop(&ticker);
    unsigned count = atomic_load(&calls);
    cr_assert(!ticker.is_running && atomic_load(&calls) == count);
}

Test(ticker, wakes_when_told, .timeout = 60) {
    berm_ticker_t ticker;
    cr_assert(berm__ticker_start(&ticker, "test", tick_once, &calls));
    calls_wait(1);
    berm__ticker_wake(&ticker);
    calls_wait(2);
    berm__ticker_stop(&ticker);
    berm__ticker_stop(&ticker); // does nothing
    berm__ticker_wake(&ticker);
    cr_assert(berm__ticker_start(&ticker, "again", tick_once, &calls));
    calls_wait(3);
    berm__ticker_stop(&ticker);
}
