// SPDX-License-Identifier: Apache-2.0
// Quotas by tag, and berm_would_fit: what is refused, that nothing else is touched, and by what a
// request would be served.

#include "berm_diagnose.h"
#include "tests/api/api_test.h"

static berm_quota_t quota_of(const char *name) {
    berm_quota_t quota = BERM_QUOTA_INIT;
    EXPECT(BERM_OK, berm_quota_get(0, name, &quota));
    return quota;
}

Test(quota, is_the_most_that_a_tag_may_have) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    berm_addr_t a, b, c = 7, other;
    EXPECT(BERM_OK, berm_quota_set(0, "tenant", 10 * MIB));
    EXPECT(BERM_OK, berm_tag_push("tenant"));
    EXPECT(BERM_OK, berm_alloc(6 * MIB, 0, NULL, &a));
    EXPECT(BERM_OK, berm_alloc(4 * MIB, 0, NULL, &b));
    uint64_t calls = memory_calls(), reserved = stats_of(0).reserved_bytes.current;
    EXPECT(BERM_ERROR_QUOTA, berm_alloc(1, 0, NULL, &c));
    EXPECT_MESSAGE("'tenant': its quota is 10485760 bytes, of which 10485760 are live");
    cr_assert(c == 0 && memory_calls() == calls);
    cr_assert(stats_of(0).reserved_bytes.current == reserved && stats_of(0).out_of_memory == 0);
    EXPECT(BERM_OK, berm_tag_push("guest"));
    EXPECT(BERM_OK, berm_alloc(20 * MIB, 0, NULL, &other)); // another tag has none
    EXPECT(BERM_OK, berm_tag_pop());
    cr_assert(quota_of("tenant").live_bytes == 10 * MIB && quota_of("tenant").refused == 1);
    cr_assert(quota_of("guest").quota_bytes == UINT64_MAX);
    EXPECT(BERM_OK, berm_free(b, 0, NULL));
    EXPECT(BERM_ERROR_QUOTA, berm_alloc(4 * MIB + 1, 0, NULL, &c));
    EXPECT(BERM_OK, berm_alloc(4 * MIB, 0, NULL, &b));
    // What lives stays above a lower one; with none everything goes.
    EXPECT(BERM_OK, berm_quota_set(0, "tenant", MIB));
    EXPECT(BERM_ERROR_QUOTA, berm_alloc(1, 0, NULL, &c));
    EXPECT(BERM_ERROR_QUOTA, berm_alloc_aligned(1, 4096, 0, NULL, &c));
    EXPECT(BERM_ERROR_QUOTA, berm_alloc_from((berm_pool_id_t){0, 0}, 1, 512, 0, NULL, &c));
    EXPECT(BERM_OK, berm_quota_set(0, "tenant", UINT64_MAX));
    EXPECT(BERM_OK, berm_alloc(MIB, 0, NULL, &c));
    EXPECT(BERM_OK, berm_tag_pop());
    const berm_addr_t all[] = {a, b, c, other};
    for (size_t i = 0; i < 4; i++)
        EXPECT(BERM_OK, berm_free(all[i], 0, NULL));
    BERM_TEST_END();
}

Test(quota, wrong_arguments_and_ends) {
    heap_fixture_begin(NULL);
    berm_quota_t quota = BERM_QUOTA_INIT;
    EXPECT(BERM_ERROR_ARGUMENT, berm_quota_set(0, NULL, 1));
    EXPECT(BERM_ERROR_ARGUMENT, berm_quota_set(0, "", 1));
    EXPECT(BERM_ERROR_DEVICE, berm_quota_set(1, "x", 1));
    EXPECT(BERM_ERROR_ARGUMENT, berm_quota_get(0, NULL, &quota));
    EXPECT(BERM_ERROR_ARGUMENT, berm_quota_get(0, "x", NULL));
    quota.size = 3;
    EXPECT(BERM_ERROR_VERSION, berm_quota_get(0, "x", &quota));
    EXPECT(BERM_OK, berm_quota_set(0, "x", 0));
    EXPECT(BERM_OK, berm_tag_push("x"));
    berm_addr_t addr;
    EXPECT(BERM_ERROR_QUOTA, berm_alloc(1, 0, NULL, &addr));
    BERM_TEST_END();
    heap_fixture_begin(NULL); // it ended with berm
    EXPECT(BERM_OK, berm_alloc(1, 0, NULL, &addr));
    EXPECT(BERM_OK, berm_free(addr, 0, NULL));
    EXPECT(BERM_OK, berm_tag_pop());
    BERM_TEST_END();
}

static berm_fit_t fit_of(const uint64_t *sizes, size_t count) {
    berm_fit_t fit = BERM_FIT_INIT;
    EXPECT(BERM_OK, berm_would_fit(0, NULL, sizes, count, &fit));
    return fit;
}

static berm_fit_t fit_one(uint64_t size_bytes) {
    return fit_of(&size_bytes, 1);
}

Test(would_fit, says_by_what) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    cr_assert(fit_one(1).step == BERM_FIT_GROWN && fit_one(64 * MIB).step == BERM_FIT_GROWN);
    cr_assert(fit_one(64 * MIB + 1).step == BERM_FIT_NOT);
    cr_assert(fit_one(66 * MIB).missing_bytes == 2 * MIB);
    berm_addr_t blocks[8], addr;
    for (int i = 0; i < 8; i++)
        blocks[i] = heap_alloc(4 * MIB, NULL);
    for (int i = 0; i < 8; i += 2)
        EXPECT(BERM_OK, berm_free(blocks[i], 0, NULL));
    cr_assert(fit_one(4 * MIB).step == BERM_FIT_NOW && fit_one(4 * MIB).modelled_us == 0);
    cr_assert(fit_one(16 * MIB).step == BERM_FIT_MOVED && fit_one(16 * MIB).modelled_us > 0);
    cr_assert(fit_one(48 * MIB).step == BERM_FIT_GROWN);
    cr_assert(fit_one(48 * MIB + 1).step == BERM_FIT_NOT);
    const uint64_t sizes[] = {16 * MIB, 1, 1, 20 * MIB};
    cr_assert(fit_of(sizes, 4).step == BERM_FIT_GROWN);
    const uint64_t many[] = {16 * MIB, 1, 1, 20 * MIB, 9 * MIB};
    cr_assert(fit_of(many, 5).step == BERM_FIT_NOT && fit_of(many, 5).missing_bytes == 2 * MIB);
    // It is true.
    EXPECT(BERM_OK, berm_alloc(48 * MIB, 0, NULL, &addr));
    EXPECT(BERM_OK, berm_free(addr, 0, NULL));
    for (int i = 1; i < 8; i += 2)
        EXPECT(BERM_OK, berm_free(blocks[i], 0, NULL));
    BERM_TEST_END();
}

Test(would_fit, knows_quotas_and_limits) {
    heap_fixture_begin(NULL);
    EXPECT(BERM_OK, berm_quota_set(0, "tenant", 10 * MIB));
    EXPECT(BERM_OK, berm_tag_push("tenant"));
    cr_assert(fit_one(10 * MIB).step == BERM_FIT_GROWN);
    cr_assert(fit_one(12 * MIB).step == BERM_FIT_QUOTA);
    cr_assert(fit_one(12 * MIB).missing_bytes == 2 * MIB);
    EXPECT(BERM_OK, berm_tag_pop());
    cr_assert(fit_one(12 * MIB).step == BERM_FIT_GROWN);
    EXPECT(BERM_OK, berm_limit_set(0, 8 * MIB));
    cr_assert(fit_one(12 * MIB).step == BERM_FIT_NOT && fit_one(12 * MIB).missing_bytes == 4 * MIB);
    BERM_TEST_END();
}

Test(would_fit, wrong_arguments) {
    heap_fixture_begin(NULL);
    berm_fit_t fit = BERM_FIT_INIT;
    uint64_t size = 1, zero = 0, huge[] = {(uint64_t)1 << 62, 1};
    EXPECT(BERM_ERROR_ARGUMENT, berm_would_fit(0, NULL, NULL, 1, &fit));
    EXPECT(BERM_ERROR_ARGUMENT, berm_would_fit(0, NULL, &size, 1, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_would_fit(0, NULL, &size, 0, &fit));
    EXPECT(BERM_ERROR_ARGUMENT, berm_would_fit(0, NULL, &size, SIZE_MAX, &fit));
    EXPECT(BERM_ERROR_ARGUMENT, berm_would_fit(0, NULL, &zero, 1, &fit));
    EXPECT(BERM_ERROR_SIZE_TOO_LARGE, berm_would_fit(0, NULL, huge, 2, &fit));
    EXPECT(BERM_ERROR_DEVICE, berm_would_fit(9, NULL, &size, 1, &fit));
    fit.size = 5;
    EXPECT(BERM_ERROR_VERSION, berm_would_fit(0, NULL, &size, 1, &fit));
    BERM_TEST_END();
}
