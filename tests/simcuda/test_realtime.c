// SPDX-License-Identifier: Apache-2.0
// The realtime switch: the host's clock follows the real one, and waits take real time. Only lower
// bounds of sleeps are relied on, and what they imply; the machine may be as slow as it likes.
#include <stdlib.h>
#include <time.h>

#include "sim_test.h"

#define MS(n) ((uint64_t)(n)*1000000)

enum {
    SLACK_NS = 300000, // by which the host's clock may be ahead of the real one
};

static void start_real(int is_backed) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_realtime = 1;
    config.is_backed = is_backed;
    start_with(&config);
}

static uint64_t real_ns(void) {
    struct timespec now;
    cr_assert(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    cr_assert(nanosleep(&time, NULL) == 0);
}

Test(realtime, the_clock_follows_and_never_goes_back) {
    start_real(0);
    uint64_t real = real_ns(), before = simcuda_now_ns();
    for (int i = 0; i < 20; i++) {
        sleep_ms(2);
        uint64_t now = simcuda_now_ns();
        cr_assert(now >= before + MS(2) - SLACK_NS, "%llu after %llu", (unsigned long long)now,
                  (unsigned long long)before);
        before = now;
    }
    // Not ahead of the real clock by more than calls may leave.
    uint64_t first = before;
    before = simcuda_now_ns();
    cr_assert(before - first <= real_ns() - real + SLACK_NS);
}

// 20 ms is not over at once; unless this process stood still for that long, which the clock tells.
Test(realtime, an_event_is_ready_when_its_time_has_come) {
    start_real(0);
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_event_t event = event_new();
    for (int i = 0; i < 50; i++) {
        uint64_t begin = real_ns();
        OK(simcuda_launch(stream, MS(20), NULL, 0));
        OK(cuEventRecord(event, stream));
        int result = cuEventQuery(event);
        bool is_at_once = real_ns() - begin < MS(19);
        sleep_ms(20);
        OK(cuEventQuery(event));
        if (!is_at_once)
            continue;
        cr_assert(result == BERM_CU_NOT_READY, "got %d", result);
        return;
    }
    cr_assert(0, "the machine never ran this for 19 ms without a stop");
}

Test(realtime, waits_take_real_time) {
    start_real(0);
    uint64_t real = real_ns();
    OK(simcuda_launch(NULL, MS(20), NULL, 0));
    OK(cuStreamSynchronize(NULL));
    cr_assert(real_ns() - real >= MS(20) - SLACK_NS);
    cr_assert(simcuda_wait_ns() > 0);
    real = real_ns();
    simcuda_advance_ns(MS(10));
    cr_assert(real_ns() - real >= MS(10) - SLACK_NS);
}

// 100 creates of 193 us.
Test(realtime, costs_take_real_time) {
    start_real(0);
    uint64_t real = real_ns();
    for (int i = 0; i < 100; i++)
        OK(cuMemRelease(create(MIB(2))));
    cr_assert(real_ns() - real >= MS(19));
}

static void count(void *counter) {
    ++*(int *)counter;
}

Test(realtime, kernels_and_host_functions_act_when_it_is_time) {
    start_real(1);
    int kernels = 0, functions = 0;
    berm_cu_stream_t stream = stream_new(1);
    uint64_t real = real_ns();
    OK(simcuda_launch_fn(stream, MS(30), NULL, 0, count, &kernels));
    OK(cuLaunchHostFunc(stream, count, &functions));
    bool is_early = kernels == 0 && functions == 0;
    cr_assert(is_early || real_ns() - real >= MS(30) - SLACK_NS);
    sleep_ms(31);
    (void)simcuda_now_ns();
    cr_assert(kernels == 1 && functions == 1, "%d %d", kernels, functions);
}

Test(realtime, is_off_unless_asked_for) {
    start();
    uint64_t now = simcuda_now_ns(), real = real_ns();
    sleep_ms(5);
    cr_assert(simcuda_now_ns() == now);
    simcuda_advance_ns(MS(3600000));
    cr_assert(simcuda_now_ns() == now + MS(3600000));
    cr_assert(real_ns() - real < MS(3600000));
}

Test(realtime, the_environment_asks_for_it) {
    cr_assert(setenv("SIMCUDA_REALTIME", "1", 1) == 0);
    start();
    uint64_t now = simcuda_now_ns();
    sleep_ms(5);
    cr_assert(simcuda_now_ns() >= now + MS(5) - SLACK_NS);
}

Test(realtime, a_wrong_value_in_the_environment_is_refused) {
    cr_assert(setenv("SIMCUDA_REALTIME", "2", 1) == 0);
    FAILS(cuInit(0), BERM_CU_INVALID_VALUE);
}
