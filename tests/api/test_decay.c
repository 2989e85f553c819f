// SPDX-License-Identifier: Apache-2.0
// berm_decay_tick, berm_clock_set and the options behind them, from outside.
#include <unistd.h>

#include "tests/api/api_test.h"

Test(decay, tick_wants_a_device) {
    EXPECT(BERM_ERROR_DEVICE, berm_decay_tick(-1));
    EXPECT(BERM_ERROR_DEVICE, berm_decay_tick(64));
    EXPECT(BERM_OK, berm_decay_tick(63)); // berm does not run: nothing to do
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_DEVICE, berm_decay_tick(1));
    EXPECT_MESSAGE("device 1");
    EXPECT(BERM_OK, berm_decay_tick(0)); // not used yet
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_decay_tick(0));
}

Test(decay, tick_on_a_lost_device) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "decay_ms:0", .is_lenient = 1});
    heap_free(heap_alloc(1 << 20, NULL), NULL);
    simcuda_device_lose(0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_decay_tick(0));
    EXPECT_MESSAGE("device 0");
}

Test(decay, option_text) {
    char value[32];
    heap_fixture_begin(NULL);
    cr_assert(berm_option_get("decay_ms", value, sizeof value) == BERM_OK);
    cr_assert_str_eq(value, "-1");
    cr_assert(berm_option_set("decay_ms", "5000") == BERM_OK);
    cr_assert(berm_option_get("decay_ms", value, sizeof value) == BERM_OK);
    cr_assert_str_eq(value, "5000");
    static const char *const bad[] = {"-2", "", "x", "5s", "1000000001", "--1", "1 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert(berm_option_set("decay_ms", bad[i]) == BERM_ERROR_OPTION_VALUE, "%s", bad[i]);
    cr_assert(berm_option_set("decay_ms", "-1") == BERM_OK);
    cr_assert(berm_option_set("background_thread", "on") == BERM_ERROR_STATE);
    BERM_TEST_END();
}

// The simulated device finishes work when its clock moves; the thread needs no other call.
Test(decay, the_thread_gives_back_by_itself, .timeout = 60) {
    heap_fixture_begin(
        &(heap_fixture_options_t){.berm = "decay_ms:20,background_thread:on", .has_caches = 1});
    heap_free(heap_alloc(40 << 20, NULL), NULL);
    heap_free(heap_alloc(1000, NULL), NULL);
    while (stats_of(0).reserved_bytes.current > 0)
        (void)usleep(1000);
    BERM_TEST_END();
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "background_thread:on"});
    heap_free(heap_alloc(4 << 20, NULL), NULL);
    cr_assert(berm_option_set("decay_ms", "0") == BERM_OK, "the thread wakes");
    while (stats_of(0).reserved_bytes.current > 0)
        (void)usleep(1000);
    BERM_TEST_END();
}
