// SPDX-License-Identifier: Apache-2.0
// What moving pages must not cost: more driver calls than runs, more stale mappings or addresses
// than bounded, and what happens at the driver's own ceilings.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "tests/support/heap_inside.h"

#define GRANULE BERM_MIB(2)

static void *stream;

static void begin(uint64_t memory_bytes, uint64_t granule_bytes, const char *conf) {
    heap_fixture_begin(&(heap_fixture_options_t){
        .memory_bytes = memory_bytes, .granule_bytes = granule_bytes, .berm = conf});
    stream = heap_stream_create();
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

// --- driver calls ------------------------------------------------------------------------------

// 4 blocks of 4 granules with one granule between them; the 4 are freed and their work is over.
static void four_runs_begin(const char *conf) {
    berm_addr_t runs[4];
    begin(0, 0, conf);
    for (int i = 0; i < 4; i++) {
        runs[i] = heap_alloc(4 * GRANULE, stream);
        (void)heap_alloc(GRANULE, stream);
    }
    for (int i = 0; i < 4; i++)
        heap_free(runs[i], stream);
    heap_context_synchronize();
    cr_assert(berm__stream_seal(heap_pool(stream)->stream) == BERM_OK);
}

typedef struct calls {
    uint64_t map, set_access, unmap, create;
} calls_t;

static calls_t calls_read(void) {
    return (calls_t){simcuda_calls("cuMemMap"), simcuda_calls("cuMemSetAccess"),
                     simcuda_calls("cuMemUnmap"), simcuda_calls("cuMemCreate")};
}

// 16 granules of four runs move to one: four unmaps, one grant of access, whatever the number of
// handles.
Test(bounds, a_move_costs_one_call_a_run) {
    four_runs_begin("growth_handle:2M,headroom:0");
    const calls_t before = calls_read();
    cr_assert(heap_alloc(16 * GRANULE, stream) != 0);
    const calls_t after = calls_read();
    cr_assert(after.create == before.create, "nothing is created");
    cr_assert(after.map - before.map == 16, "%llu maps",
              (unsigned long long)(after.map - before.map));
    cr_assert(after.set_access - before.set_access == 1, "%llu calls for one run",
              (unsigned long long)(after.set_access - before.set_access));
    cr_assert(after.unmap - before.unmap == 4, "%llu calls for four runs",
              (unsigned long long)(after.unmap - before.unmap));
    BERM_TEST_END_INSIDE();
}

// Growth: one grant of access for all the handles of a block.
Test(bounds, growth_costs_one_grant_of_access) {
    begin(0, 0, "growth_handle:2M");
    const calls_t before = calls_read();
    cr_assert(heap_alloc(40 * GRANULE, stream) != 0);
    const calls_t after = calls_read();
    cr_assert(after.create - before.create == 40 && after.map - before.map == 40);
    cr_assert(after.set_access - before.set_access == 1);
    BERM_TEST_END_INSIDE();
}

// What goes back to the driver: one unmap a run.
Test(bounds, a_trim_costs_one_unmap_a_run) {
    uint64_t released = 0;
    four_runs_begin("growth_handle:2M,headroom:0");
    const calls_t before = calls_read();
    cr_assert(berm_trim(0, 0, &released) == BERM_OK && released == 16 * GRANULE);
    cr_assert(calls_read().unmap - before.unmap == 4);
    BERM_TEST_END_INSIDE();
}

// --- stale mappings ----------------------------------------------------------------------------

// Pages of 64 KiB are freed under work and taken for larger blocks, over and over, while nothing
// ends: the number of stale mappings, and the bytes of their addresses, stop at their bounds, and
// from then on requests wait.
static void stale_at_most(uint64_t memory_bytes, uint64_t granule_bytes, uint64_t block_granules,
                          uint64_t *mappings, uint64_t *bytes) {
    enum {
        BLOCKS_MAX = 2048
    };
    static berm_addr_t blocks[BLOCKS_MAX];
    char conf[96];
    (void)snprintf(conf, sizeof conf,
                   "growth_handle:%llu,headroom:0,remap:alias,learned_placement:off",
                   (unsigned long long)granule_bytes);
    begin(memory_bytes, granule_bytes, conf);
    uint64_t block_bytes = block_granules * granule_bytes, count = memory_bytes / block_bytes;
    berm_rng_t rng;
    *mappings = *bytes = 0;
    cr_assert(count <= BLOCKS_MAX);
    berm__rng_seed(&rng, 1);
    for (uint64_t i = 0; i < count; i++)
        blocks[i] = heap_alloc(block_bytes, stream);
    const berm_phys_t *phys = &heap_device()->phys;
    for (unsigned round = 0; round < 400 && stats_read().host_waits == 0; round++) {
        uint64_t freed = 0, wanted = 0;
        for (uint64_t i = 0; i < count; i++) {
            if (blocks[i] == 0 || berm__rng_below(&rng, 4) != 0)
                continue;
            heap_use(stream, blocks[i], block_bytes, 1000000000);
            heap_free(blocks[i], stream);
            blocks[i] = 0;
            freed += block_bytes;
        }
        // One large block takes what lies apart, and is freed and cut up again.
        wanted = freed / 2;
        berm_addr_t large = heap_alloc(wanted, stream);
        *mappings = berm__max_u64(*mappings, phys->stale_mappings);
        *bytes = berm__max_u64(*bytes, phys->stale_bytes);
        heap_use(stream, large, wanted, 1000);
        heap_free(large, stream);
        for (uint64_t i = 0; i < count; i++)
            if (blocks[i] == 0 && berm_alloc(block_bytes, 0, stream, &blocks[i]) != BERM_OK)
                break;
    }
    cr_assert(stats_read().host_waits > 0, "the bound was reached");
    BERM_TEST_CHECK();
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

Test(bounds, stale_mappings_are_bounded_in_number) {
    uint64_t mappings, bytes;
    stale_at_most(BERM_MIB(1536), 64 << 10, 16, &mappings, &bytes);
    cr_assert(mappings <= 1 << 14 && mappings > 1 << 13, "%llu", (unsigned long long)mappings);
}

Test(bounds, stale_mappings_are_bounded_in_bytes) {
    uint64_t mappings, bytes;
    stale_at_most(BERM_MIB(64), 64 << 10, 4, &mappings, &bytes);
    cr_assert(bytes <= BERM_MIB(64) && bytes > BERM_MIB(32), "%llu", (unsigned long long)bytes);
    cr_assert(mappings < 1 << 13);
}

// --- ceilings ----------------------------------------------------------------------------------

// No more handles can be had, though there is memory: pages move instead.
Test(bounds, at_the_ceiling_of_handles_pages_move) {
    berm_addr_t blocks[4], out;
    simcuda_ledger_t ledger;
    heap_fixture_begin(
        &(heap_fixture_options_t){.handles_max = 8, .berm = "growth_handle:2M,headroom:1000"});
    for (int i = 0; i < 4; i++)
        blocks[i] = heap_alloc(2 * GRANULE, NULL);
    heap_free(blocks[0], NULL);
    heap_free(blocks[2], NULL);
    cr_assert(berm_alloc(4 * GRANULE, 0, NULL, &out) == BERM_OK, "%s", berm_error_message());
    cr_assert(stats_read().moved_bytes > 0);
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.handles == 8);
    cr_assert(berm_alloc(GRANULE, 0, NULL, &out) != BERM_OK && out == 0);
    heap_free(blocks[1], NULL);
    cr_assert(berm_alloc(2 * GRANULE, 0, NULL, &out) == BERM_OK);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// Stale mappings count against the driver's ceiling. A request that has no more mappings, with work
// running on what it could move, is refused with the right status or waits; nothing is lost.
Test(bounds, at_the_ceiling_of_mappings_with_stale_ones) {
    static const unsigned sizes[] = {4, 1, 4};
    berm_addr_t blocks[3], out = 7;
    simcuda_ledger_t ledger;
    heap_fixture_begin(&(heap_fixture_options_t){
        .mappings_max = 10, .berm = "growth_handle:2M,headroom:0,remap:alias"});
    for (int i = 0; i < 3; i++)
        blocks[i] = heap_alloc(sizes[i] * GRANULE, NULL);
    for (int i = 0; i < 3; i += 2) {
        heap_use(NULL, blocks[i], 4 * GRANULE, 5000000);
        heap_free(blocks[i], NULL);
    }
    berm_status_t status = berm_alloc(7 * GRANULE, 0, NULL, &out);
    cr_assert(status == BERM_OK || status == BERM_ERROR_CEILING, "%s", berm_error_message());
    cr_assert(berm_audit(NULL) == BERM_OK, "%s", berm_error_message());
    simcuda_advance_ns(20000000);
    if (status != BERM_OK)
        cr_assert(berm_alloc(7 * GRANULE, 0, NULL, &out) == BERM_OK, "%s", berm_error_message());
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.mappings_peak <= 10 && stats_read().mappings <= 10);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// --- addresses ---------------------------------------------------------------------------------

// A program that allocates a thousand times the addresses there are, on a device that is nearly
// full, so that pages move all the time.
static void addresses_recycle(const char *conf) {
    enum {
        BLOCKS = 64,
        STEPS = 30000
    };
    const uint64_t memory_bytes = BERM_MIB(256), address_bytes = BERM_GIB(2);
    berm_addr_t blocks[BLOCKS] = {0};
    uint64_t allocated_bytes = 0, live_bytes = 0, sizes[BLOCKS];
    berm_rng_t rng;
    berm__rng_seed(&rng, 3);
    heap_fixture_begin(&(heap_fixture_options_t){
        .memory_bytes = memory_bytes, .address_bytes = address_bytes, .berm = conf});
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t i = berm__rng_below(&rng, BLOCKS);
        if (blocks[i] != 0) {
            heap_use(NULL, blocks[i], sizes[i], 1000);
            heap_free(blocks[i], NULL);
            blocks[i] = 0;
            live_bytes -= sizes[i];
            continue;
        }
        sizes[i] = (1 + berm__rng_below(&rng, 24 << 10)) << 10;
        if (live_bytes + sizes[i] > memory_bytes * 9 / 10)
            continue;
        berm_status_t status = berm_alloc(sizes[i], 0, NULL, &blocks[i]);
        cr_assert(status != BERM_ERROR_OUT_OF_ADDRESSES, "after %llu MiB",
                  (unsigned long long)(allocated_bytes >> 20));
        if (status != BERM_OK)
            continue;
        allocated_bytes += sizes[i];
        live_bytes += sizes[i];
    }
    const berm_stats_t stats = stats_read();
    cr_assert(allocated_bytes > 20 * address_bytes && stats.moved_bytes > 4 * address_bytes,
              "%llu MiB allocated, %llu moved", (unsigned long long)(allocated_bytes >> 20),
              (unsigned long long)(stats.moved_bytes >> 20));
    cr_assert(stats.address_bytes <= address_bytes && stats.poisoned_bytes == 0);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

Test(bounds, addresses_are_recycled) {
    addresses_recycle("headroom:0,growth_handle:2M");
}

Test(bounds, addresses_are_recycled_with_alias) {
    addresses_recycle("headroom:0,growth_handle:2M,remap:alias");
}

Test(bounds, addresses_are_recycled_with_default_options) {
    addresses_recycle("");
}
