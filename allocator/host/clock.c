// SPDX-License-Identifier: Apache-2.0
// The injected clock: CLOCK_MONOTONIC unless a test or the simulated device put another one in.
// Locks: none. Cannot fail.
#include "host/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "base/insist.h"

typedef uint64_t (*clock_fn)(void *context);

static _Atomic(clock_fn) clock_now; // NULL: CLOCK_MONOTONIC
static _Atomic(void *) clock_context;

uint64_t berm__clock_ns(void) {
    clock_fn now = atomic_load_explicit(&clock_now, memory_order_acquire);
    if (now != NULL)
        return now(atomic_load_explicit(&clock_context, memory_order_relaxed));
    return berm__clock_own_ns();
}

uint64_t berm__clock_own_ns(void) {
    struct timespec time;
    int failed = clock_gettime(CLOCK_MONOTONIC, &time);
    BERM_INSIST(failed == 0, "the system has a monotonic clock");
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

void berm__clock_set(uint64_t (*now_ns)(void *context), void *context) {
    atomic_store_explicit(&clock_context, context, memory_order_relaxed);
    atomic_store_explicit(&clock_now, now_ns, memory_order_release);
}
