// SPDX-License-Identifier: Apache-2.0
// host/clock.h: the real clock runs forward, an injected one is used as it is.
#include <criterion/criterion.h>

#include "host/clock.h"

static uint64_t fixed_now(void *context) {
    return *(const uint64_t *)context;
}

Test(clock, real_clock_does_not_run_backwards) {
    uint64_t first = berm__clock_ns(), last = first;
    cr_assert(first > 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = berm__clock_ns();
        cr_assert(now >= last);
        last = now;
    }
    cr_assert(last > first && last - first < UINT64_C(60000000000));
}

Test(clock, injected_clock) {
    uint64_t now = 5;
    berm__clock_set(fixed_now, &now);
    cr_assert(berm__clock_ns() == 5);
    now += UINT64_C(3600000000000);
    cr_assert(berm__clock_ns() == UINT64_C(3600000000005));
    berm__clock_set(NULL, NULL);
    uint64_t real = berm__clock_ns();
    now = real + UINT64_C(1000000000000000);
    cr_assert(berm__clock_ns() < now);
}
