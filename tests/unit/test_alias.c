// SPDX-License-Identifier: Apache-2.0
// remap:alias (policy/alias.c): what moves at once, what becomes of the old addresses, and who may
// not have the pages yet.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "policy/alias.h"
#include "tests/support/heap_inside.h"

#define GRANULE BERM_MIB(2)
#define BUSY_NS 5000000

static void *stream;
static berm_pool_t *pool;
static berm_segment_t *segment;
static berm_addr_t blocks[3]; // 4 granules, 1, 4: the first and the last were freed, and are in use

static void busy_begin(const char *options) {
    char conf[96];
    (void)snprintf(conf, sizeof conf, "growth_handle:2M,headroom:0,remap:alias%s", options);
    heap_fixture_begin(&(heap_fixture_options_t){.berm = conf});
    stream = heap_stream_create();
    static const unsigned sizes[] = {4, 1, 4};
    for (int i = 0; i < 3; i++)
        blocks[i] = heap_alloc(sizes[i] * GRANULE, stream);
    for (int i = 0; i < 3; i += 2) {
        heap_use(stream, blocks[i], 4 * GRANULE, BUSY_NS);
        heap_free(blocks[i], stream);
    }
    pool = heap_pool(stream);
    segment = heap_segment(pool);
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

static berm_address_kind_t kind_of(berm_addr_t addr) {
    berm_whatis_t whatis = {.size = sizeof whatis};
    cr_assert(berm_whatis(addr, &whatis) == BERM_OK);
    return whatis.kind;
}

Test(alias, pages_in_use_move_at_once) {
    busy_begin("");
    uint64_t before_ns = simcuda_now_ns(), unmaps = simcuda_calls("cuMemUnmap");
    berm_addr_t block = heap_alloc(6 * GRANULE, stream);
    cr_assert(simcuda_now_ns() - before_ns < BUSY_NS, "nothing waits for the work");
    heap_use(stream, block, 6 * GRANULE, 1000);
    berm_stats_t stats = stats_read();
    cr_assert(stats.host_waits == 0 && stats.moved_bytes > 0);
    cr_assert(stats.reserved_bytes.current <= 9 * GRANULE, "what is mapped twice counts once");
    cr_assert(simcuda_calls("cuMemUnmap") == unmaps, "nothing is unmapped under the work");
    cr_assert(pool->device->phys.stale_mappings > 0 && kind_of(blocks[0]) == BERM_ADDRESS_STALE);
    BERM_TEST_CHECK();
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// Once the work is done the next miss unmaps the old addresses, one call a run, and they serve
// again.
Test(alias, stale_addresses_come_back) {
    busy_begin("");
    berm_addr_t block = heap_alloc(6 * GRANULE, stream);
    heap_context_synchronize();
    cr_assert(berm__stream_seal(pool->stream) == BERM_OK);
    heap_free(block, stream);
    berm_addr_t next = heap_alloc(8 * GRANULE, stream);
    cr_assert(next != 0 && kind_of(blocks[0]) != BERM_ADDRESS_STALE);
    heap_use(stream, next, 8 * GRANULE, 1000);
    BERM_TEST_CHECK();
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// What the window has beyond the block is free, and as much in use as before.
Test(alias, another_stream_waits_for_the_work) {
    busy_begin(",limit:18M");
    berm_addr_t block = heap_alloc(6 * GRANULE, stream);
    heap_free(block, stream);
    void *other = heap_stream_create();
    uint64_t before_ns = simcuda_now_ns();
    berm_addr_t taken = heap_alloc(6 * GRANULE, other);
    cr_assert(simcuda_now_ns() - before_ns > BUSY_NS / 2, "another stream has no order with it");
    heap_use(other, taken, 6 * GRANULE, 1000);
    cr_assert(stats_read().host_waits > 0);
    BERM_TEST_CHECK();
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

Test(alias, memory_without_a_stream_does_not_alias) {
    busy_begin(",limit:18M");
    uint64_t before_ns = simcuda_now_ns();
    berm_addr_t block = heap_alloc(6 * GRANULE, BERM_STREAM_NONE);
    cr_assert(block != 0 && simcuda_now_ns() - before_ns > BUSY_NS / 2);
    cr_assert(pool->device->phys.stale_mappings == 0);
    heap_free(block, BERM_STREAM_NONE);
    BERM_TEST_END_INSIDE();
}

Test(alias, passed_waits_where_alias_does_not) {
    busy_begin("");
    cr_assert(berm_option_set("remap", "passed") == BERM_OK);
    uint64_t before_ns = simcuda_now_ns();
    cr_assert(heap_alloc(6 * GRANULE, stream) != 0);
    cr_assert(simcuda_now_ns() - before_ns > BUSY_NS / 2 && stats_read().host_waits > 0);
    BERM_TEST_END_INSIDE();
}

// A map that fails leaves the pages with the pool: the next request has them, others when they have
// passed.
Test(alias, a_map_that_fails_loses_nothing) {
    berm_addr_t addr;
    busy_begin("");
    cr_assert(simcuda_fault_nth("cuMemMap", 1, 1, 999) == 0);
    cr_assert(berm_alloc(6 * GRANULE, 0, stream, &addr) == BERM_ERROR_DRIVER && addr == 0);
    simcuda_faults_clear();
    cr_assert(pool->aliased.small_count > 0);
    BERM_TEST_CHECK();
    cr_assert(heap_alloc(6 * GRANULE, stream) != 0);
    cr_assert(stats_read().reserved_bytes.current <= 9 * GRANULE);
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

Test(alias, what_nobody_mapped_anew_is_anyones_when_it_has_passed) {
    berm_addr_t addr;
    busy_begin(",limit:18M");
    cr_assert(simcuda_fault_nth("cuMemSetAccess", 1, 1, 999) == 0);
    cr_assert(berm_alloc(6 * GRANULE, 0, stream, &addr) == BERM_ERROR_DRIVER);
    simcuda_faults_clear();
    void *other = heap_stream_create();
    berm_addr_t block = heap_alloc(7 * GRANULE, other);
    heap_use(other, block, 7 * GRANULE, 1000);
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

Test(alias, a_stale_address_that_cannot_be_unmapped_is_poisoned) {
    busy_begin("");
    cr_assert(heap_alloc(6 * GRANULE, stream) != 0);
    heap_context_synchronize();
    cr_assert(berm__stream_seal(pool->stream) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, 999) == 0);
    (void)berm_trim(0, 0, NULL);
    simcuda_faults_clear();
    cr_assert(stats_read().poisoned_bytes > 0 && kind_of(blocks[0]) == BERM_ADDRESS_POISONED);
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

Test(alias, trim_waits_and_leaves_nothing_stale) {
    uint64_t released = 0;
    busy_begin("");
    heap_free(heap_alloc(6 * GRANULE, stream), stream);
    cr_assert(berm_trim(0, 0, &released) == BERM_OK && released == 8 * GRANULE);
    cr_assert(pool->device->phys.stale_mappings == 0 && segment->stale == NULL);
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

Test(alias, a_stream_retires_with_stale_addresses) {
    busy_begin("");
    heap_free(heap_alloc(6 * GRANULE, stream), stream);
    cr_assert(berm_stream_retire(0, stream) == BERM_OK);
    cr_assert(pool->device->phys.stale_mappings == 0);
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

Test(alias, obtainable_counts_what_is_aliased) {
    uint64_t before, after;
    berm_addr_t addr;
    busy_begin(",limit:18M");
    cr_assert(berm_largest_obtainable_read(0, stream, &before) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuMemMap", 1, 1, 999) == 0);
    cr_assert(berm_alloc(6 * GRANULE, 0, stream, &addr) == BERM_ERROR_DRIVER);
    simcuda_faults_clear();
    cr_assert(berm_largest_obtainable_read(0, stream, &after) == BERM_OK);
    cr_assert(before == 8 * GRANULE && after == before);
    BERM_TEST_END_INSIDE();
}

// --- the audit ---------------------------------------------------------------------------------

static void audit_expect(int number) {
    char error[200] = "";
    int broken = berm__audit_run(error, sizeof error);
    cr_assert(broken == number, "I%d, not I%d: %s", broken, number, error);
}

#define BREAKS(member, value)                                                                      \
    do {                                                                                           \
        __typeof__(member) kept_ = (member);                                                       \
        (member) = (value);                                                                        \
        audit_expect(30);                                                                          \
        (member) = kept_;                                                                          \
        audit_expect(0);                                                                           \
    } while (0)

Test(alias, I30_stale_ranges_and_aliased_handles) {
    berm_addr_t addr;
    busy_begin("");
    cr_assert(heap_alloc(5 * GRANULE, stream) != 0);
    cr_assert(simcuda_fault_nth("cuMemMap", 1, 1, 999) == 0);
    cr_assert(berm_alloc(3 * GRANULE + 512, 0, stream, &addr) == BERM_ERROR_DRIVER);
    simcuda_faults_clear();
    audit_expect(0);
    berm_range_t *stale = segment->stale;
    cr_assert(stale != NULL && pool->aliased.small_count > 0);
    BREAKS(segment->stale, stale->as.stale.next);
    BREAKS(stale->as.stale.ticket, pool->stream->open_ticket + 1);
    BREAKS(stale->mappings, stale->mappings + 1);
    BREAKS(pool->device->phys.stale_mappings, 0);
    BREAKS(pool->device->phys.stale_bytes, 0);
    BREAKS(pool->aliased.small_count, pool->aliased.small_count + 1);
    berm_phys_handle_t *handle =
        BERM_CONTAINER_OF(pool->aliased.small.next, berm_phys_handle_t, link);
    BREAKS(handle->aliased, NULL);
    BREAKS(handle->segment, segment);
    BERM_TEST_END_INSIDE();
}
