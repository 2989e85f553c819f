// SPDX-License-Identifier: Apache-2.0
// Each kind of hazard, and beside it the same thing done right, which is none.
#include <signal.h>
#include <string.h>

#include "sim_test.h"

static berm_cu_deviceptr_t block; // 2 MiB with access
static berm_cu_stream_t first, second;

static void start_two_streams(void) {
    start();
    block = reserve(MIB(8));
    (void)map_at(block, MIB(2));
    first = stream_new(1);
    second = stream_new(1);
}

static int uses(berm_cu_stream_t stream, int is_write) {
    return launch(stream, 1000, block, 4096, is_write);
}

static void expect(simcuda_hazard_kind_t kind) {
    HAZARDS(1);
    cr_assert(hazard_kind(0) == kind, "%s", simcuda_hazard_name(hazard_kind(0)));
}

Test(race, write_write) {
    start_two_streams();
    OK(uses(first, 1));
    OK(uses(second, 1));
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, write_read) {
    start_two_streams();
    OK(uses(first, 1));
    OK(uses(second, 0));
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, read_write) {
    start_two_streams();
    OK(uses(first, 0));
    OK(uses(second, 1));
    expect(SIMCUDA_HAZARD_RACE);
    simcuda_hazard_t hazard;
    cr_assert(simcuda_hazard_read(0, &hazard) == 0);
    cr_assert(hazard.addr == block);
    cr_assert(strstr(hazard.text, "write of 4096 bytes") != NULL, "%s", hazard.text);
    cr_assert(strstr(hazard.text, "after the read") != NULL, "%s", hazard.text);
    cr_assert(simcuda_hazard_read(1, &hazard) == -1);
    simcuda_hazards_clear();
    HAZARDS(0);
}

Test(race, an_early_read_is_not_forgotten) {
    start_two_streams();
    berm_cu_stream_t third = stream_new(1);
    OK(uses(first, 0));
    OK(uses(second, 0));
    berm_cu_event_t event = event_new();
    OK(cuEventRecord(event, second));
    OK(cuStreamWaitEvent(third, event, 0));
    OK(uses(third, 1)); // after the second's read, not after the first's
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, reads_do_not_conflict) {
    start_two_streams();
    OK(uses(first, 0));
    OK(uses(second, 0));
    HAZARDS(0);
}

Test(race, other_bytes_do_not_conflict) {
    start_two_streams();
    OK(launch(first, 1000, block, 512, 1));
    OK(launch(second, 1000, block + 512, 512, 1));
    OK(launch(second, 1000, block + 511, 1, 1)); // the last byte of the first's
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, one_stream_is_ordered) {
    start_two_streams();
    OK(uses(first, 1));
    OK(uses(first, 0));
    OK(uses(first, 1));
    HAZARDS(0);
}

Test(race, an_event_orders) {
    start_two_streams();
    berm_cu_event_t event = event_new();
    OK(uses(first, 1));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(uses(second, 1));
    HAZARDS(0);
    OK(uses(first, 0)); // nothing orders the way back
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, an_event_recorded_too_early_does_not_order) {
    start_two_streams();
    berm_cu_event_t event = event_new();
    OK(cuEventRecord(event, first));
    OK(uses(first, 1));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(uses(second, 1));
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, order_passes_through_a_third_stream) {
    start_two_streams();
    berm_cu_stream_t third = stream_new(1);
    berm_cu_event_t a = event_new(), b = event_new();
    OK(uses(first, 1));
    OK(cuEventRecord(a, first));
    OK(cuStreamWaitEvent(third, a, 0));
    OK(cuEventRecord(b, third));
    OK(cuStreamWaitEvent(second, b, 0));
    OK(uses(second, 1));
    HAZARDS(0);
}

Test(race, a_query_orders_only_when_it_succeeds) {
    start_two_streams();
    berm_cu_event_t event = event_new();
    OK(launch(first, 1000000, block, 4096, 1));
    OK(cuEventRecord(event, first));
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    simcuda_advance_ns(2000000);
    OK(cuEventQuery(event));
    OK(uses(second, 1));
    HAZARDS(0);
}

Test(race, time_alone_does_not_order) {
    start_two_streams();
    OK(uses(first, 1));
    simcuda_advance_ns(1000000000); // long done, but nobody looked
    OK(uses(second, 1));
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, waits_of_the_host_order) {
    start_two_streams();
    OK(uses(first, 1));
    OK(cuStreamSynchronize(first));
    OK(uses(second, 1));
    OK(cuCtxSynchronize());
    OK(uses(first, 1));
    simcuda_advance_ns(1000000);
    OK(cuStreamQuery(first));
    OK(uses(second, 1));
    HAZARDS(0);
}

Test(race, the_legacy_stream_orders_blocking_streams) {
    start_two_streams();
    berm_cu_stream_t blocking = stream_new(0), another = stream_new(0);
    OK(uses(blocking, 1));
    OK(uses(NULL, 1));
    OK(uses(another, 1));
    HAZARDS(0);
    OK(uses(first, 1)); // does not take part
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, a_context_event_orders) {
    start_two_streams();
    berm_cu_event_t event = event_new();
    OK(uses(first, 1));
    OK(cuCtxRecordEvent(NULL, event));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(uses(second, 1));
    HAZARDS(0);
}

Test(race, memory_given_to_another_stream_after_an_event) {
    start_two_streams();
    berm_cu_event_t event = event_new();
    for (int i = 0; i < 100; i++) { // what an allocator does
        OK(uses(i % 2 != 0 ? first : second, 1));
        OK(cuEventRecord(event, i % 2 != 0 ? first : second));
        while (cuEventQuery(event) == BERM_CU_NOT_READY)
            simcuda_advance_ns(100);
    }
    HAZARDS(0);
}

Test(race, a_destroyed_stream_still_counts) {
    start_two_streams();
    OK(uses(first, 1));
    OK(cuStreamDestroy_v2(first));
    first = stream_new(1);
    OK(uses(first, 1)); // a new stream, not ordered after the old one
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, many_streams) {
    start_two_streams();
    for (int i = 0; i < 100; i++) {
        berm_cu_stream_t stream = stream_new(1);
        OK(uses(stream, 1));
        OK(cuStreamSynchronize(stream));
        if (i % 2 == 0)
            OK(cuStreamDestroy_v2(stream));
    }
    HAZARDS(0);
    OK(uses(first, 1));
    OK(uses(second, 1));
    expect(SIMCUDA_HAZARD_RACE);
}

Test(race, work_behind_a_gate_is_ordered_like_other_work) {
    start_two_streams();
    uint64_t gate;
    simcuda_access_t access = {block, 4096, 1};
    berm_cu_event_t event = event_new();
    OK(simcuda_gate(first, &access, 1, &gate));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(uses(second, 1));
    HAZARDS(0);
    OK(simcuda_gate_open(gate));
    OK(cuCtxSynchronize());
}

// --- aliases -------------------------------------------------------------------------------------

static void map_alias(void) {
    berm_cu_mem_handle_t handle = 0;
    OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)block));
    OK(cuMemMap(block + MIB(4), MIB(2), 0, handle, 0));
    OK(cuMemSetAccess(block + MIB(4), MIB(2), &read_write, 1));
    OK(cuMemRelease(handle));
}

Test(alias, ordered_by_an_event_or_a_stream) {
    start_two_streams();
    map_alias();
    berm_cu_event_t event = event_new();
    OK(uses(first, 1));
    OK(launch(first, 1000, block + MIB(4), 4096, 1)); // the same stream
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(uses(second, 0));
    HAZARDS(0);
}

Test(alias, not_ordered) {
    start_two_streams();
    map_alias();
    OK(uses(first, 0));
    OK(launch(second, 1000, block + MIB(4) + 4095, 1, 1));
    expect(SIMCUDA_HAZARD_ALIAS);
    simcuda_hazard_t hazard;
    OK(simcuda_hazard_read(0, &hazard));
    cr_assert(hazard.addr == block + MIB(4) + 4095);
}

Test(alias, one_of_two_may_go_while_the_other_is_in_use) {
    start_two_streams();
    map_alias();
    OK(launch(first, 1000000, block + MIB(4), 4096, 1));
    OK(cuMemUnmap(block, MIB(2)));
    HAZARDS(0);
    OK(cuCtxSynchronize());
}

// --- memory taken away ---------------------------------------------------------------------------

Test(unmap, after_the_work_is_done) {
    start_two_streams();
    OK(uses(first, 1));
    simcuda_advance_ns(1000000); // done, though nobody asked: the hardware has no objection
    OK(cuMemUnmap(block, MIB(2)));
    HAZARDS(0);
    OK(cuCtxSynchronize());
}

Test(unmap, under_work_behind_a_gate) {
    start_two_streams();
    uint64_t gate;
    simcuda_access_t access = {block, 4096, 0};
    OK(simcuda_gate(first, NULL, 0, &gate));
    OK(simcuda_launch(first, 1000, &access, 1));
    simcuda_advance_ns(1000000);
    OK(cuMemUnmap(block, MIB(2)));
    expect(SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK);
    OK(simcuda_gate_open(gate));
    FAILS(cuStreamSynchronize(first), BERM_CU_ILLEGAL_ADDRESS);
}

Test(unmap, work_whose_gate_has_opened) {
    start_two_streams();
    uint64_t gate;
    simcuda_access_t access = {block, 4096, 0};
    OK(simcuda_gate(first, &access, 1, &gate));
    OK(simcuda_gate_open(gate));
    simcuda_advance_ns(1);
    OK(cuMemUnmap(block, MIB(2)));
    HAZARDS(0);
}

Test(unmap, neighbours_of_memory_in_use) {
    start_two_streams();
    (void)map_at(block + MIB(2), MIB(2));
    OK(launch(first, 1000000, block, MIB(2), 1));
    OK(cuMemUnmap(block + MIB(2), MIB(2)));
    HAZARDS(0);
}

Test(unmap, access_taken_away_under_work) {
    start_two_streams();
    berm_cu_mem_access_t none = read_write;
    none.flags = BERM_CU_MEM_ACCESS_NONE;
    OK(launch(first, 1000000, block, 8, 1));
    OK(cuMemSetAccess(block, MIB(2), &none, 1));
    expect(SIMCUDA_HAZARD_USE_NO_ACCESS);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
}

Test(unmap, an_event_query_sees_the_fault) {
    start_two_streams();
    berm_cu_event_t event = event_new();
    OK(cuEventRecord(event, second));
    OK(launch(first, 1000000, block, 8, 1));
    OK(cuMemUnmap(block, MIB(2)));
    FAILS(cuEventQuery(event), BERM_CU_ILLEGAL_ADDRESS);
}

Test(unmap, a_fault_is_seen_when_its_work_has_started) {
    start_two_streams();
    OK(launch(first, 1000000, 0, 0, 0));
    OK(launch(first, 10, block + MIB(4), 8, 0)); // nothing is there
    expect(SIMCUDA_HAZARD_USE_UNMAPPED);
    OK(cuStreamQuery(second));
    OK(cuStreamSynchronize(second));
    OK(launch(second, 1, 0, 0, 0));
    simcuda_advance_ns(1000000);
    FAILS(cuStreamQuery(second), BERM_CU_ILLEGAL_ADDRESS);
}

Test(use, freed_memory_of_malloc) {
    start_two_streams();
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAlloc_v2(&addr, 1000));
    OK(launch(first, 1000, addr, 1000, 1));
    OK(cuMemFree_v2(addr)); // waits
    HAZARDS(0);
    OK(launch(first, 1000, addr, 1000, 0));
    expect(SIMCUDA_HAZARD_USE_UNMAPPED);
}

Test(use, one_byte_past_the_end) {
    start_two_streams();
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAlloc_v2(&addr, 1000));
    OK(launch(first, 1000, addr, 1000, 1));
    HAZARDS(0);
    OK(launch(first, 1000, addr, 1001, 1));
    expect(SIMCUDA_HAZARD_USE_UNMAPPED);
}

Test(use, a_hole_in_the_middle) {
    start_two_streams();
    (void)map_at(block + MIB(4), MIB(2));
    OK(launch(first, 1000, block, MIB(6), 1));
    expect(SIMCUDA_HAZARD_USE_UNMAPPED);
    simcuda_hazard_t hazard;
    OK(simcuda_hazard_read(0, &hazard));
    cr_assert(hazard.addr == block + MIB(2));
}

Test(use, nothing_is_touched_by_empty_ranges) {
    start_two_streams();
    OK(launch(first, 1000, 0, 0, 1));
    OK(launch(first, 1000, block + MIB(3), 0, 1));
    HAZARDS(0);
}

Test(deadlock, waiting_for_a_closed_gate) {
    start_two_streams();
    uint64_t gate;
    berm_cu_event_t event = event_new();
    OK(simcuda_gate(first, NULL, 0, &gate));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(launch(second, 10, 0, 0, 0));
    OK(cuStreamSynchronize(second));
    expect(SIMCUDA_HAZARD_DEADLOCK);
    OK(cuStreamQuery(first));
    cr_assert(simcuda_hazard_count_of(SIMCUDA_HAZARD_DEADLOCK) == 1);
    cr_assert(simcuda_hazard_count_of(SIMCUDA_HAZARD_RACE) == 0);
    cr_assert(simcuda_hazard_count_of(SIMCUDA_HAZARD_KIND_COUNT) == 0);
    simcuda_hazards_clear();
    cr_assert(simcuda_hazard_count_of(SIMCUDA_HAZARD_DEADLOCK) == 0);
}

Test(deadlock, free_waits_for_a_closed_gate) {
    start_two_streams();
    uint64_t gate;
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAlloc_v2(&addr, 8));
    OK(simcuda_gate(first, NULL, 0, &gate));
    OK(simcuda_gate(first, NULL, 0, &gate));
    OK(cuMemFree_v2(addr));
    HAZARDS(2);
}

// --- the list ------------------------------------------------------------------------------------

Test(list, the_first_thousand_are_kept) {
    start_two_streams();
    simcuda_hazard_t hazard;
    for (int i = 0; i < 1200; i++)
        OK(uses(i % 2 != 0 ? first : second, 1));
    HAZARDS(1199);
    OK(simcuda_hazard_read(999, &hazard));
    FAILS(simcuda_hazard_read(1000, &hazard), -1);
}

Test(list, every_kind_has_a_name) {
    for (int kind = 0; kind < SIMCUDA_HAZARD_KIND_COUNT; kind++)
        cr_assert(strcmp(simcuda_hazard_name((simcuda_hazard_kind_t)kind), "unknown") != 0);
    cr_assert(strcmp(simcuda_hazard_name(SIMCUDA_HAZARD_KIND_COUNT), "unknown") == 0);
}

Test(list, strict_aborts_at_the_first, .signal = SIGABRT) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_strict = 1;
    start_with(&config);
    (void)cuMemRelease(77);
}

// Random uses against a table of bytes: which uses must be races.
enum {
    MODEL_BYTES = 64,
    MODEL_STREAMS = 3,
};

typedef struct model_byte {
    int writer; // stream of the last write, -1
    int readers[MODEL_STREAMS];
} model_byte_t;

static int model_conflicts(const model_byte_t *byte, int stream, int is_write) {
    if (byte->writer >= 0 && byte->writer != stream)
        return 1;
    for (int i = 0; is_write && i < MODEL_STREAMS; i++) {
        if (i != stream && byte->readers[i])
            return 1;
    }
    return 0;
}

static int model_use(model_byte_t *bytes, int stream, uint64_t start, uint64_t size, int is_write) {
    int conflicts = 0;
    for (uint64_t i = start; i < start + size; i++) {
        conflicts |= model_conflicts(&bytes[i], stream, is_write);
        if (is_write)
            bytes[i] = (model_byte_t){.writer = stream};
        else
            bytes[i].readers[stream] = 1;
    }
    return conflicts;
}

Test(model, random_uses_against_a_table_of_bytes) {
    start_two_streams();
    berm_cu_stream_t streams[MODEL_STREAMS] = {first, second, stream_new(1)};
    model_byte_t bytes[MODEL_BYTES];
    berm_rng_t rng = {4};
    uint64_t expected = 0;
    for (int round = 0; round < 200; round++) {
        OK(cuCtxSynchronize()); // from here on nothing conflicts with what was
        for (int i = 0; i < MODEL_BYTES; i++)
            bytes[i] = (model_byte_t){.writer = -1};
        for (int i = 0; i < 30; i++) {
            int stream = (int)berm__rng_below(&rng, MODEL_STREAMS);
            uint64_t start = berm__rng_below(&rng, MODEL_BYTES);
            uint64_t size = berm__rng_below(&rng, MODEL_BYTES - start) + 1;
            int is_write = (int)berm__rng_below(&rng, 4) == 0;
            expected += (uint64_t)model_use(bytes, stream, start, size, is_write);
            OK(launch(streams[stream], 1, block + start, size, is_write));
            cr_assert(simcuda_hazard_count() == expected, "round %d use %d", round, i);
        }
    }
    cr_assert(expected > 100);
}
