// SPDX-License-Identifier: Apache-2.0
// Learned placement (policy/learn.c, planned.c, pages.c): work that comes again gets a plan, packed
// or aliased, and is served from it; and what becomes of plan and blocks under pressure, and when
// the plan ends. Each case runs with both kinds of plan.
#include "host/mem.h"
#include "tests/unit/learn_helpers.h"

// --- a plan, and what it serves ----------------------------------------------------------------

BOTH(a_period_is_served_from_its_plan) {
    begin(NULL);
    berm_stats_t before = stats_read();
    for (int i = 0; i < 3; i++)
        period_is_planned();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work.count; i++)
        bytes += work.size_bytes[i];
    berm_stats_t after = stats_read();
    cr_assert(after.planned_bytes - before.planned_bytes == 3 * bytes);
    cr_assert(after.plans == 1 && after.plans_dropped == 0);
    cr_assert(after.planned_mappings == planned()->plan->mapping_count);
    cr_assert(after.planning_ns > 0);
    for (uint32_t i = 0; i < work.count; i++)
        cr_assert(work.addr[i] == 0 || is_in_arena(work.addr[i]));
    end();
}

// After every request of a period the audit passes, and berm agrees with the device.
BOTH(both_ledgers_agree_all_the_time) {
    heap_begin_with(&(heap_fixture_options_t){0});
    for (uint32_t i = 0; i < 7 * work.count; i++) {
        cr_assert(periodic_step(&work) == BERM_OK);
        BERM_TEST_CHECK();
    }
    cr_assert(planned() != NULL);
    end();
}

// Work that begins and ends with nothing is known by its second period.
Test(learn, a_period_that_ends_with_nothing_is_planned_by_the_third) {
    kind = PACKED;
    heap_begin_with(&(heap_fixture_options_t){0});
    periodic_close(&work);
    periodic_run(&work, 2);
    cr_assert(planned() != NULL);
    periodic_run(&work, 1);
    period_is_planned();
    end();
}

// What a loop keeps until its next round has made its own, as `loss` of a training step: for a
// moment two of them are live, so they take turns at two places, in a plan of two periods.
static void rounds_run(berm_addr_t *kept, int rounds) {
    for (int round = 0; round < rounds; round++) {
        some_steps(40);
        berm_addr_t made = heap_alloc(BERM_MIB(4), stream);
        some_steps(7);
        if (*kept != 0)
            heap_free(*kept, stream);
        *kept = made;
        some_steps(work.count - 47);
    }
}

Test(learn, what_outlives_a_period_has_two_places) {
    kind = PACKED;
    heap_begin_with(&(heap_fixture_options_t){0});
    berm_addr_t kept = 0, before;
    rounds_run(&kept, 8);
    cr_assert(planned() != NULL && planned()->course.length == 2 * (work.count + 1));
    uint64_t calls = memory_calls();
    berm_stats_t old = stats_read();
    for (int round = 0; round < 4; round++) {
        before = kept;
        rounds_run(&kept, 1);
        cr_assert(kept != before && is_in_arena(kept));
    }
    cr_assert(memory_calls() == calls && stats_read().moved_bytes == old.moved_bytes);
    cr_assert(stats_read().planned_requests - old.planned_requests == 4 * (work.count + 1));
    heap_free(kept, stream);
    end();
}

BOTH(other_requests_do_not_enter_the_arena) {
    begin(NULL);
    uint64_t requests = stats_read().planned_requests;
    for (uint32_t i = 0; i < work.count; i++) {
        cr_assert(periodic_step(&work) == BERM_OK);
        berm_addr_t large = heap_alloc(BERM_MIB(9) + 512 * i, stream);
        berm_addr_t small = heap_alloc(3000, stream);
        cr_assert(!is_in_arena(large) && !is_in_arena(small));
        heap_use(stream, large, BERM_MIB(9), 1000);
        heap_free(large, stream);
        heap_free(small, stream);
    }
    BERM_TEST_CHECK();
    cr_assert(stats_read().planned_requests - requests >= work.count / 4);
    end();
}

// One that is none of the plan's counts once, though it is tried again with the driver's help.
BOTH(a_request_is_asked_for_once) {
    begin(NULL);
    const berm_learn_t *learn = heap_pool(stream)->learn;
    uint32_t asked = learn->asked;
    uint64_t calls = memory_calls();
    berm_addr_t large = heap_alloc(BERM_MIB(70), stream);
    cr_assert(memory_calls() > calls && learn->asked == asked + 1);
    heap_free(large, stream);
    end();
}

// A block with an alignment of its own has no place in a plan.
BOTH(aligned_requests_are_served_as_usual) {
    begin(NULL);
    berm_addr_t addr;
    uint32_t next = (uint32_t)(work.step % work.count);
    cr_assert(berm_alloc_aligned(work.size_bytes[next], BERM_MIB(1), 0, stream, &addr) == BERM_OK);
    cr_assert(addr % BERM_MIB(1) == 0 && !is_in_arena(addr));
    heap_free(addr, stream);
    periodic_run(&work, 2); // what it had of the arena comes back
    period_is_planned();
    end();
}

// --- pressure ----------------------------------------------------------------------------------

// All that the arena has serves one request of another size, and comes back.
static void arena_gives(uint64_t use_ns) {
    work.use_ns = use_ns;
    some_steps(work.count);
    periodic_free_all(&work);
    work.use_ns = 1000;
    uint64_t reserved = stats_read().reserved_bytes.current;
    cr_assert(berm_limit_set(0, reserved) == BERM_OK);
    berm_addr_t large = heap_alloc(reserved - GRANULE, stream);
    cr_assert(!is_in_arena(large));
    heap_use(stream, large, reserved - GRANULE, 1000);
    BERM_TEST_CHECK();
    heap_free(large, stream);
    periodic_run(&work, 2);
    BERM_TEST_CHECK();
    berm_stats_t stats = stats_read();
    cr_assert(stats.plans == 1 && stats.plans_dropped == 0, "the plan goes on");
    period_is_planned();
    cr_assert(stats.reserved_bytes.current <= reserved);
}

BOTH(pressure_takes_free_pages_of_the_arena) {
    begin(NULL);
    heap_context_synchronize();
    arena_gives(1000);
    end();
}

// The work of what was freed goes on: the request waits for it, or aliases.
BOTH(pressure_waits_for_pages_of_the_arena) {
    begin(NULL);
    arena_gives(5000000);
    end();
}

BOTH(edits_synchronize) {
    begin("sync_edits:on");
    arena_gives(1000);
    end();
}

BOTH(another_stream_has_pages_of_the_arena) {
    begin(NULL);
    periodic_free_all(&work);
    uint64_t reserved = stats_read().reserved_bytes.current;
    cr_assert(berm_limit_set(0, reserved) == BERM_OK);
    void *other = heap_stream_create();
    berm_addr_t large = heap_alloc(reserved - GRANULE, other);
    heap_use(other, large, reserved - GRANULE, 1000);
    heap_free(large, other);
    BERM_TEST_CHECK();
    heap_stream_synchronize(other);
    periodic_run(&work, 2);
    BERM_TEST_CHECK();
    end();
}

BOTH(a_limit_that_is_lowered_holds) {
    begin(NULL);
    uint64_t released_bytes, limit = stats_read().reserved_bytes.current - 4 * GRANULE;
    periodic_free_all(&work);
    cr_assert(berm_limit_set(0, limit) == BERM_OK);
    cr_assert(berm_trim(0, 0, &released_bytes) == BERM_OK);
    for (uint32_t i = 0; i < 3 * work.count; i++) {
        berm_status_t status = periodic_step(&work);
        cr_assert(status == BERM_OK || status == BERM_ERROR_LIMIT);
        cr_assert(stats_read().reserved_bytes.current <= limit);
    }
    BERM_TEST_CHECK();
    cr_assert(berm_limit_set(0, UINT64_MAX) == BERM_OK);
    for (uint32_t i = 0; i < 3 * work.count; i++)
        cr_assert(periodic_step(&work) == BERM_OK);
    end();
}

BOTH(trim_empties_the_arena_and_the_plan_fills_it_again) {
    begin(NULL);
    uint64_t released_bytes;
    some_steps(7);
    periodic_free_all(&work);
    cr_assert(berm_trim(0, 0, &released_bytes) == BERM_OK);
    cr_assert(stats_read().reserved_bytes.current == 0, "%llu bytes are still reserved",
              (unsigned long long)stats_read().reserved_bytes.current);
    BERM_TEST_CHECK();
    some_steps(2 * work.count - 7);
    berm_stats_t stats = stats_read();
    cr_assert(stats.plans == 1 && stats.plans_dropped == 0);
    period_is_planned();
    end();
}

static uint64_t clock_ns(void *arg) {
    return *(uint64_t *)arg;
}

BOTH(decay_empties_the_arena_and_the_plan_fills_it_again) {
    static uint64_t now_ns = 1;
    begin("decay_ms:100");
    cr_assert(berm_clock_set(clock_ns, &now_ns) == BERM_OK);
    some_steps(7);
    periodic_free_all(&work);
    heap_context_synchronize();
    for (int i = 0; i < 40; i++) {
        now_ns += 10000000;
        cr_assert(berm_decay_tick(0) == BERM_OK);
    }
    cr_assert(stats_read().reserved_bytes.current == 0, "%llu bytes are still reserved",
              (unsigned long long)stats_read().reserved_bytes.current);
    BERM_TEST_CHECK();
    some_steps(2 * work.count - 7);
    cr_assert(stats_read().plans == 1);
    period_is_planned();
    cr_assert(berm_clock_set(NULL, NULL) == BERM_OK);
    end();
}

// --- the end of a plan -------------------------------------------------------------------------

BOTH(a_plan_that_nobody_follows_is_dropped) {
    begin(NULL);
    some_steps(30);
    const berm_segment_t *segment = planned()->segment;
    other_work_run(5 * work.count);
    BERM_TEST_CHECK();
    cr_assert(stats_read().plans_dropped == 1);
    if (kind == PACKED)
        cr_assert(planned() == NULL && segment->planned == NULL && !segment->has_views,
                  "the arena is a segment like others");
    else // pages behind live blocks stay until they are free
        cr_assert(planned()->is_ending);
    uint64_t requests = stats_read().planned_requests;
    periodic_free_all(&work);
    heap_context_synchronize();
    other_work_run(60);
    cr_assert(stats_read().planned_requests == requests);
    cr_assert(planned() == NULL && !segment->has_views);
    cr_assert(kind == PACKED || segment->mapped_bytes == 0);
    BERM_TEST_CHECK();
    end();
}

// What the dropped plan's segment has serves others.
Test(learn, the_segment_of_a_dropped_plan_serves_others) {
    kind = PACKED;
    begin(NULL);
    some_steps(30);
    const berm_segment_t *segment = planned()->segment;
    other_work_run(5 * work.count);
    periodic_free_all(&work);
    cr_assert(planned() == NULL);
    bool is_used = false;
    berm_addr_t blocks[40];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++) {
        blocks[i] = heap_alloc(BERM_KIB(700), stream);
        is_used |= blocks[i] >= segment->base && blocks[i] < segment->base + segment->span_bytes;
    }
    cr_assert(is_used);
    end();
}

// A A A B, and again: the plan of A goes, one of all four comes.
static void longer_period_run(periodic_t *b, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) {
        periodic_run(&work, 3);
        periodic_free_all(&work);
        periodic_run(b, 1);
        periodic_free_all(b);
    }
}

Test(learn, a_longer_period_takes_the_place_of_a_shorter_one) {
    static periodic_t b;
    kind = PACKED;
    begin(NULL);
    uint32_t length = heap_pool(stream)->learn->active_length;
    periodic_init(&b, stream, 120, 512, 300, 7000, 25, 77);
    longer_period_run(&b, 12);
    BERM_TEST_CHECK();
    cr_assert(planned() != NULL && stats_read().plans >= 2);
    cr_assert(heap_pool(stream)->learn->active_length > 2 * length, "a plan for %u requests",
              heap_pool(stream)->learn->active_length);
    end();
}

BOTH(the_option_switches_it_off) {
    begin(NULL);
    some_steps(30);
    cr_assert(berm_option_set("learned_placement", "off") == BERM_OK);
    uint64_t requests = stats_read().planned_requests;
    BERM_TEST_CHECK();
    periodic_run(&work, 3);
    heap_context_synchronize();
    periodic_run(&work, 3);
    BERM_TEST_CHECK();
    cr_assert(stats_read().planned_requests == requests);
    cr_assert(heap_pool(stream)->learn == NULL, "nothing of it is left");
    cr_assert(berm_option_set("learned_placement", "on") == BERM_OK);
    plan_await(60); // once enough was missed
    cr_assert(stats_read().plans == 2);
    end();
}

// What was planned with aliases is not served without: neither a plan in force, nor one that was
// being made.
Test(learn_alias, without_remap_alias_there_are_no_aliased_plans) {
    kind = ALIASED;
    begin(NULL);
    some_steps(30);
    cr_assert(berm_option_set("remap", "passed") == BERM_OK);
    uint64_t requests = stats_read().planned_requests;
    BERM_TEST_CHECK();
    periodic_run(&work, 3);
    BERM_TEST_CHECK();
    cr_assert(stats_read().planned_requests == requests);
    end();
    for (uint32_t steps = 200; steps < 260; steps += 3) {
        heap_begin_with(&(heap_fixture_options_t){0});
        some_steps(steps);
        cr_assert(berm_option_set("remap", "passed") == BERM_OK);
        periodic_run(&work, 3);
        cr_assert(planned() == NULL || !planned()->plan->is_aliased, "after %u steps", steps);
        end();
    }
}

Test(learn, off_from_the_start_watches_nothing) {
    kind = PACKED;
    heap_begin_with(&(heap_fixture_options_t){.berm = "learned_placement:off"});
    periodic_run(&work, 6);
    cr_assert(heap_pool(stream)->learn == NULL && stats_read().plans == 0);
    end();
}

BOTH(a_stream_is_retired_with_blocks_in_the_arena) {
    begin(NULL);
    some_steps(30);
    berm_pool_t *pool = heap_pool(stream);
    cr_assert(berm_stream_retire(0, stream) == BERM_OK);
    BERM_TEST_CHECK();
    for (uint32_t i = 0; i < work.count; i++) {
        if (work.addr[i] == 0)
            continue;
        heap_free(work.addr[i], BERM_STREAM_NONE);
        work.addr[i] = 0;
        BERM_TEST_CHECK();
    }
    uint64_t released_bytes;
    cr_assert(berm_trim(0, 0, &released_bytes) == BERM_OK);
    cr_assert(stats_read().reserved_bytes.current == 0);
    heap_stream_destroy(stream);
    stream = heap_stream_create();
    work_init(&work, stream);
    periodic_run(&work, 12);
    cr_assert(heap_pool(stream) == pool, "the pool serves a new stream");
    BERM_TEST_CHECK();
    cr_assert(stats_read().plans == 2 && planned() != NULL);
    period_is_planned();
    end();
}

BOTH(shutdown_with_blocks_in_the_arena) {
    begin(NULL);
    some_steps(30);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

BOTH(shutdown_while_a_plan_is_made) {
    for (uint32_t steps = 1; steps < 6 * 100; steps += 37) {
        heap_begin_with(&(heap_fixture_options_t){0});
        some_steps(steps);
        heap_context_synchronize();
        BERM_TEST_END_INSIDE();
    }
}

BOTH(a_device_that_is_lost) {
    heap_begin_with(&(heap_fixture_options_t){.is_lenient = 1});
    plan_make();
    some_steps(30);
    simcuda_device_lose(0);
    berm_addr_t addr;
    for (uint32_t i = 0; i < work.count; i++)
        if (work.addr[i] != 0)
            (void)berm_free(work.addr[i], BERM_DEVICE_ANY, stream);
    cr_assert(berm_alloc(BERM_MIB(200), 0, stream, &addr) == BERM_ERROR_DEVICE_LOST);
    for (uint32_t i = 0; i < 2 * work.count; i++) {
        berm_status_t status = berm_alloc(work.size_bytes[i % work.count], 0, stream, &addr);
        cr_assert(status == BERM_OK || status == BERM_ERROR_DEVICE_LOST);
    }
    int invariant = 0;
    cr_assert(berm_audit(&invariant) == BERM_OK, "I%d: %s", invariant, berm_error_message());
    (void)berm_shutdown(NULL);
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}

// --- blocks with ties --------------------------------------------------------------------------

// Blocks that another stream uses keep their places until it is done.
BOTH(blocks_that_other_streams_use) {
    begin(NULL);
    void *other = heap_stream_create();
    for (uint32_t i = 0; i < 3 * work.count; i++) {
        cr_assert(periodic_step(&work) == BERM_OK);
        berm_addr_t addr = work.addr[(work.step - 1) % work.count];
        if (i % 3 != 0)
            continue;
        heap_stream_follow(other, stream);
        heap_use(other, addr, 1000, 20000);
        cr_assert(berm_record_stream(addr, other) == BERM_OK);
        BERM_TEST_CHECK();
    }
    heap_stream_synchronize(other);
    periodic_run(&work, 2);
    period_is_planned();
    end();
}

BOTH(blocks_that_are_freed_without_a_stream) {
    begin(NULL);
    for (uint32_t i = 0; i < 2 * work.count; i++) {
        cr_assert(periodic_step(&work) == BERM_OK);
        uint32_t last = (uint32_t)((work.step - 1) % work.count);
        if (i % 5 != 0)
            continue;
        heap_free(work.addr[last], BERM_STREAM_NONE);
        work.addr[last] = 0;
        BERM_TEST_CHECK();
    }
    end();
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)addr;
    (void)size_bytes;
    ++*(unsigned *)arg;
}

// A pinned block is held where it is, and its pages do not move; the request that would be there is
// served elsewhere.
BOTH(blocks_that_are_pinned) {
    static unsigned told;
    begin(NULL);
    some_steps(10);
    berm_addr_t pinned[10];
    for (uint32_t i = 0; i < 10; i++) {
        pinned[i] = work.addr[(work.step - 1 - i) % work.count];
        if (pinned[i] != 0)
            cr_assert(berm_pin(pinned[i], pin_told, &told) == BERM_OK);
    }
    BERM_TEST_CHECK();
    for (uint32_t i = 0; i < 2 * work.count; i++) {
        cr_assert(periodic_step(&work) == BERM_OK);
        BERM_TEST_CHECK();
    }
    for (uint32_t i = 0; i < 10; i++)
        if (pinned[i] != 0)
            (void)berm_unpin(pinned[i], pin_told, &told);
    BERM_TEST_CHECK();
    heap_context_synchronize();
    periodic_run(&work, 3);
    period_is_planned();
    end();
}

BOTH(what_an_address_is_and_a_snapshot_say_the_same) {
    begin(NULL);
    some_steps(30);
    uint64_t live = 0;
    for (uint32_t i = 0; i < work.count; i++) {
        berm_whatis_t whatis = {.size = sizeof whatis};
        if (work.addr[i] == 0)
            continue;
        cr_assert(berm_whatis(work.addr[i] + 100, &whatis) == BERM_OK);
        cr_assert(whatis.kind == BERM_ADDRESS_LIVE && whatis.requested_bytes == work.size_bytes[i]);
        live += work.size_bytes[i];
    }
    cr_assert(stats_read().requested_bytes.current == live);
    uint64_t free_bytes, obtainable_bytes;
    cr_assert(berm_largest_free_read(0, stream, &free_bytes) == BERM_OK);
    cr_assert(berm_largest_obtainable_read(0, stream, &obtainable_bytes) == BERM_OK);
    cr_assert(free_bytes <= obtainable_bytes);
    heap_free(heap_alloc(obtainable_bytes, stream), stream);
    BERM_TEST_CHECK();
    end();
}
