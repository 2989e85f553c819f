// SPDX-License-Identifier: Apache-2.0
// berm_pressure_register: who is asked, in which order, what a callback may do, and what other
// threads see meanwhile. That it saves a request is in test_ladder.c.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/api/api_test.h"

typedef struct keeper {
    char name;
    int gives; // times it frees a block of 16 MiB
    berm_addr_t blocks[4];
    unsigned calls;
    void (*then)(struct keeper *keeper);
} keeper_t;

static char asked[32]; // names in the order of calls

static bool keeper_ask(void *arg, int device, uint64_t needed_bytes) {
    keeper_t *keeper = arg;
    size_t length = strlen(asked);
    cr_assert(device == 0 && needed_bytes > 0);
    if (length + 1 < sizeof asked)
        asked[length] = keeper->name;
    keeper->calls++;
    if (keeper->then != NULL)
        keeper->then(keeper);
    if (keeper->gives == 0)
        return false;
    heap_free(keeper->blocks[--keeper->gives], NULL);
    return true;
}

static void keeper_fill(keeper_t *keeper, int count) {
    for (int i = 0; i < count; i++)
        keeper->blocks[keeper->gives++] = heap_alloc(16 * MIB, NULL);
}

static void begin(void) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    memset(asked, 0, sizeof asked);
}

static void refuse(uint64_t size_bytes) {
    berm_addr_t out = 7;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(size_bytes, 0, NULL, &out));
    cr_assert(out == 0);
}

Test(pressure, refuses_bad_arguments) {
    keeper_t keeper = {.name = 'a'};
    EXPECT(BERM_ERROR_ARGUMENT, berm_pressure_unregister(0, keeper_ask, &keeper));
    begin();
    EXPECT(BERM_ERROR_ARGUMENT, berm_pressure_register(0, NULL, &keeper));
    EXPECT(BERM_ERROR_DEVICE, berm_pressure_register(1, keeper_ask, &keeper));
    EXPECT(BERM_ERROR_DEVICE, berm_pressure_register(-2, keeper_ask, &keeper));
    EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &keeper));
    EXPECT(BERM_ERROR_STATE, berm_pressure_register(0, keeper_ask, &keeper));
    EXPECT_MESSAGE("registered for the device already");
    EXPECT(BERM_OK, berm_pressure_register(BERM_DEVICE_ANY, keeper_ask, &keeper));
    EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &asked));
    EXPECT(BERM_OK, berm_pressure_unregister(0, keeper_ask, &asked));
    EXPECT(BERM_OK, berm_pressure_unregister(0, keeper_ask, &keeper));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pressure_unregister(0, keeper_ask, &keeper));
    EXPECT(BERM_OK, berm_pressure_unregister(BERM_DEVICE_ANY, keeper_ask, &keeper));
    (void)heap_alloc(40 * MIB, NULL);
    refuse(40 * MIB);
    cr_assert(keeper.calls == 0, "none is left");
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pressure_register(0, keeper_ask, &keeper));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pressure_unregister(0, keeper_ask, &keeper));
}

Test(pressure, each_is_asked_once_in_order) {
    keeper_t a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    begin();
    EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &b));
    EXPECT(BERM_OK, berm_pressure_register(BERM_DEVICE_ANY, keeper_ask, &a));
    EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &c));
    keeper_fill(&b, 2);
    keeper_fill(&a, 1);
    keeper_fill(&c, 1);
    berm_addr_t first = heap_alloc(16 * MIB, NULL); // one of b's is enough
    cr_assert_str_eq(asked, "b");
    (void)heap_alloc(48 * MIB, NULL); // all of it: b, a and c give one each
    cr_assert_str_eq(asked, "bbac");
    refuse(16 * MIB);
    cr_assert_str_eq(asked, "bbacbac");
    cr_assert(a.gives + b.gives + c.gives == 0);
    heap_free(first, NULL);
    berm_addr_t out;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(70 * MIB, 0, NULL, &out));
    cr_assert_str_eq(asked, "bbacbac", "no device of this kind could serve it: nobody is asked");
    BERM_TEST_END();
}

Test(pressure, another_device_is_not_asked_for) {
    keeper_t keeper = {.name = 'a'};
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .devices = 2});
    EXPECT(BERM_OK, berm_pressure_register(1, keeper_ask, &keeper));
    (void)heap_alloc(40 * MIB, NULL);
    refuse(40 * MIB);
    cr_assert(keeper.calls == 0);
    BERM_TEST_END();
}

Test(pressure, the_limit_counts_as_short) {
    keeper_t keeper = {.name = 'a'};
    begin();
    keeper_fill(&keeper, 2);
    EXPECT(BERM_OK, berm_limit_set(0, 36 * MIB));
    EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &keeper));
    (void)heap_alloc(20 * MIB, NULL);
    cr_assert(keeper.calls == 1 && stats_of(0).reserved_bytes.peak <= 36 * MIB);
    BERM_TEST_END();
}

// --- what a callback may do ----------------------------------------------------------------------

static void then_trim(keeper_t *keeper) {
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    (void)keeper;
}

// A request of its own that cannot be served fails, and asks nobody.
static void then_alloc(keeper_t *keeper) {
    unsigned calls = keeper->calls;
    refuse(50 * MIB);
    heap_free(heap_alloc(512, NULL), NULL);
    cr_assert(keeper->calls == calls);
}

static void then_unregister(keeper_t *keeper) {
    EXPECT(BERM_OK, berm_pressure_unregister(0, keeper_ask, keeper));
}

static void then_register(keeper_t *keeper) {
    static keeper_t another = {.name = 'n'};
    if (keeper->calls == 1)
        EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &another));
}

static void asks_and_then(void (*then)(keeper_t *keeper), const char *asked_want) {
    keeper_t keeper = {.name = 'a', .then = then};
    begin();
    keeper_fill(&keeper, 1);
    (void)heap_alloc(44 * MIB, NULL);
    EXPECT(BERM_OK, berm_pressure_register(0, keeper_ask, &keeper));
    berm_addr_t block = heap_alloc(16 * MIB, NULL);
    BERM_TEST_CHECK();
    refuse(16 * MIB);
    heap_free(block, NULL);
    cr_assert_str_eq(asked, asked_want);
    BERM_TEST_END();
}

Test(pressure, a_callback_may_call_berm) {
    asks_and_then(then_trim, "aa");
    asks_and_then(then_alloc, "aa");
    asks_and_then(then_unregister, "a");
    asks_and_then(then_register, "aan"); // the new one is asked from the next request on
}

// --- threads -------------------------------------------------------------------------------------

static atomic_int stage; // 1: a callback is in, 2: it may end
static keeper_t shared;

static bool ask_slowly(void *arg, int device, uint64_t needed_bytes) {
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2)
        (void)usleep(100);
    return keeper_ask(arg, device, needed_bytes);
}

static void *alloc_16(void *out) {
    EXPECT(BERM_OK, berm_alloc(16 * MIB, 0, NULL, out));
    return NULL;
}

// A request that would fail while another thread's callback is giving back waits for it, and asks
// only if that was not enough. The thread that asked is served first.
Test(pressure, other_threads_wait_for_what_is_given, .timeout = 60) {
    pthread_t threads[2];
    berm_addr_t out[2];
    begin();
    shared = (keeper_t){.name = 's'};
    keeper_fill(&shared, 2);
    (void)heap_alloc(32 * MIB, NULL);
    EXPECT(BERM_OK, berm_pressure_register(0, ask_slowly, &shared));
    cr_assert(pthread_create(&threads[0], NULL, alloc_16, &out[0]) == 0);
    while (atomic_load(&stage) != 1)
        (void)usleep(100);
    cr_assert(pthread_create(&threads[1], NULL, alloc_16, &out[1]) == 0);
    (void)usleep(20000);
    cr_assert(shared.calls == 0, "the other thread does not ask meanwhile");
    atomic_store(&stage, 2);
    while (shared.gives > 0) { // the second call
        int in = 1;
        (void)atomic_compare_exchange_strong(&stage, &in, 2);
        (void)usleep(100);
    }
    for (int i = 0; i < 2; i++)
        cr_assert(pthread_join(threads[i], NULL) == 0);
    cr_assert(shared.calls == 2);
    BERM_TEST_END();
}

static atomic_bool has_ended;

static void *unregister(void *unused) {
    (void)unused;
    EXPECT(BERM_OK, berm_pressure_unregister(0, ask_slowly, &shared));
    atomic_store(&has_ended, true);
    return NULL;
}

Test(pressure, unregister_waits_for_a_call, .timeout = 60) {
    pthread_t threads[2];
    berm_addr_t out;
    begin();
    shared = (keeper_t){.name = 's'};
    keeper_fill(&shared, 2);
    (void)heap_alloc(32 * MIB, NULL);
    EXPECT(BERM_OK, berm_pressure_register(0, ask_slowly, &shared));
    cr_assert(pthread_create(&threads[0], NULL, alloc_16, &out) == 0);
    while (atomic_load(&stage) != 1)
        (void)usleep(100);
    cr_assert(pthread_create(&threads[1], NULL, unregister, NULL) == 0);
    (void)usleep(20000);
    cr_assert(!atomic_load(&has_ended), "the callback is in it");
    atomic_store(&stage, 2);
    for (int i = 0; i < 2; i++)
        cr_assert(pthread_join(threads[i], NULL) == 0);
    cr_assert(atomic_load(&has_ended) && shared.calls == 1);
    BERM_TEST_END();
}

// The same of pins: a thread that is telling one has the memory that another needs.
static void pin_slowly(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)arg;
    (void)addr;
    (void)size_bytes;
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2)
        (void)usleep(100);
}

Test(pressure, other_threads_wait_for_a_pin_that_is_told, .timeout = 60) {
    pthread_t threads[2];
    berm_addr_t out[2];
    begin();
    berm_addr_t block = heap_alloc(40 * MIB, NULL);
    (void)heap_alloc(24 * MIB, NULL);
    EXPECT(BERM_OK, berm_pin(block, pin_slowly, NULL));
    heap_free(block, NULL);
    cr_assert(pthread_create(&threads[0], NULL, alloc_16, &out[0]) == 0);
    while (atomic_load(&stage) != 1)
        (void)usleep(100);
    cr_assert(pthread_create(&threads[1], NULL, alloc_16, &out[1]) == 0);
    (void)usleep(20000);
    cr_assert(stats_of(0).out_of_memory == 0);
    atomic_store(&stage, 2);
    for (int i = 0; i < 2; i++)
        cr_assert(pthread_join(threads[i], NULL) == 0);
    BERM_TEST_END();
}
