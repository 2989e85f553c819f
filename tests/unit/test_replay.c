// SPDX-License-Identifier: Apache-2.0
// Hand-made traces with known figures on the simulated device, and broken allocators that a replay
// must find out.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/defs.h"
#include "stress/baselines/baselines.h"
#include "stress/fit.h"
#include "stress/replay.h"
#include "stress/trace/input.h"

#define HEAD "event_index,op,id,size_bytes,stream\n"

static char error[512];

static trace_t *trace_of(const char *text) {
    const trace_read_options_t options = {.scale = 1, .device = -1};
    trace_t *trace = trace_read_memory("hand", text, strlen(text), &options, error, sizeof error);
    cr_assert(trace != NULL, "%s", error);
    return trace;
}

static void open_device(uint64_t capacity_bytes) {
    const stress_device_options_t device = {.name = "sim", .capacity_bytes = capacity_bytes};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
}

static stress_replay_options_t options_of(const stress_allocator_ops_t *ops) {
    stress_replay_options_t options;
    stress_replay_options_default(&options);
    options.ops = ops;
    options.check = STRESS_CHECK_FULL;
    return options;
}

static stress_replay_result_t replay(const char *text, const stress_replay_options_t *options) {
    trace_t *trace = trace_of(text);
    stress_replay_result_t result;
    int status = stress_replay(trace, options, &result, error, sizeof error);
    cr_assert(status == 0, "%s", error);
    trace_destroy(trace);
    return result;
}

// Peak live 4 MiB at event 1; two segments (2 and 20 MiB) for PyTorch.
static const char small_trace[] = HEAD "0,alloc,1,1048576,0\n"
                                       "1,alloc,2,3145728,0\n"
                                       "2,free,1,1048576,0\n"
                                       "3,alloc,3,1000,0\n"
                                       "4,free,2,3145728,0\n";

// A block that a side stream uses until event 4.
static const char deferred_trace[] = HEAD "0,alloc,1,20971520,0\n"
                                          "1,free,1,20971520,0\n"
                                          "2,alloc,2,20971520,0\n"
                                          "3,free,2,20971520,0\n"
                                          "4,free_done,1,20971520,0\n"
                                          "5,alloc,3,20971520,0\n"
                                          "6,alloc,4,20971520,0\n"
                                          "7,free,3,20971520,0\n"
                                          "8,free,4,20971520,0\n";

static uint64_t calls(const stress_replay_result_t *r, berm_drv_kind_t kind) {
    return r->driver_calls.of[kind];
}

Test(replay, pytorch_figures) {
    open_device(BERM_GIB(1));
    stress_replay_options_t options = options_of(&stress_pytorch_ops);
    options.repeats = 3;
    stress_replay_result_t r = replay(small_trace, &options);
    cr_assert(stress_replay_is_good(&r), "%s", r.first_check_failure);
    cr_assert(r.events == 5 && r.per_repeat_count == 3);
    cr_assert(r.peak_live_bytes == BERM_MIB(4));
    cr_assert(r.peak_allocated_bytes == BERM_MIB(4));
    cr_assert(r.peak_reserved_bytes == BERM_MIB(22));
    cr_assert(r.reserved_over_live == 5.5);
    // Event 2 leaves 3 MiB live, which is at least half of the peak.
    cr_assert(r.worst_reserved_over_live > 7.33 && r.worst_reserved_over_live < 7.34);
    cr_assert(r.allocated_bytes_total == 3 * (BERM_MIB(4) + 1000));
    cr_assert(r.moved_bytes_total == 0 && r.host_waits == 0 && r.host_wait_ns == 0);
    cr_assert(calls(&r, BERM_DRV_MALLOC) == 2 && stress_calls_memory(&r.driver_calls) == 2);
    cr_assert(calls(&r, BERM_DRV_SYNCHRONIZE) == 0 && calls(&r, BERM_DRV_EVENT_RECORD) == 0);
    cr_assert(r.per_repeat[0].memory_calls == 2 && r.per_repeat[1].memory_calls == 0);
    cr_assert(r.per_repeat[2].peak_reserved_bytes == BERM_MIB(22));
    cr_assert(r.largest_free_at_peak_bytes == BERM_MIB(17));
    cr_assert(r.largest_free_end_bytes == BERM_MIB(20));
    cr_assert(r.largest_obtainable_bytes == BERM_GIB(1) - BERM_MIB(2));
    cr_assert(r.driver_ns > 0);
    stress_replay_result_destroy(&r);
}

Test(replay, cudamalloc_figures) {
    open_device(BERM_GIB(1));
    stress_replay_options_t options = options_of(&stress_cudamalloc_ops);
    options.work.work_ns = 1000000; // longer than a cuMemFree, which waits for it
    stress_replay_result_t r = replay(small_trace, &options);
    cr_assert(stress_replay_is_good(&r), "%s", r.first_check_failure);
    cr_assert(r.peak_reserved_bytes == BERM_MIB(6), "1 and 3 MiB in whole granules");
    cr_assert(calls(&r, BERM_DRV_MALLOC) == 3 && calls(&r, BERM_DRV_FREE) == 3);
    cr_assert(r.host_waits == 3 && r.host_wait_ns > 0);
    cr_assert(r.largest_free_end_bytes == 0);
    stress_replay_result_destroy(&r);
}

Test(replay, naive_moves_pages_at_a_hard_limit) {
    // 16 MiB; four blocks of 4 MiB, two that do not touch freed, one of 8 MiB wanted.
    static const char text[] = HEAD "0,alloc,1,4194304,0\n"
                                    "1,alloc,2,4194304,0\n"
                                    "2,alloc,3,4194304,0\n"
                                    "3,alloc,4,4194304,0\n"
                                    "4,free,1,4194304,0\n"
                                    "5,free,3,4194304,0\n"
                                    "6,alloc,5,8388608,0\n";
    open_device(BERM_MIB(16));
    const stress_replay_options_t options = options_of(&stress_naive_ops);
    stress_replay_result_t r = replay(text, &options);
    cr_assert(stress_replay_is_good(&r), "%s %s", r.first_check_failure, r.first_hazard);
    cr_assert(r.peak_reserved_bytes == BERM_MIB(16));
    cr_assert(r.moved_bytes_total == BERM_MIB(8));
    cr_assert(r.host_waits == 1 && calls(&r, BERM_DRV_SYNCHRONIZE) == 1);
    cr_assert(calls(&r, BERM_DRV_CREATE) == 8 && calls(&r, BERM_DRV_MAP) == 12);
    cr_assert(calls(&r, BERM_DRV_UNMAP) == 2 && calls(&r, BERM_DRV_RELEASE) == 0);
    cr_assert(calls(&r, BERM_DRV_RESERVE) == 1);
    cr_assert(r.mappings_peak == 8 && r.va_peak_bytes == BERM_MIB(64));
    stress_replay_result_destroy(&r);
}

Test(replay, reports_out_of_memory) {
    open_device(BERM_MIB(16));
    const stress_replay_options_t options = options_of(&stress_pytorch_ops);
    stress_replay_result_t r = replay(small_trace, &options);
    cr_assert(!r.completed && !stress_replay_is_good(&r) && r.failure[0] == '\0');
    cr_assert(r.oom_event == 1 && r.oom_size_bytes == BERM_MIB(3) && r.oom_repeat == 0);
    cr_assert(r.leaked_blocks == 0 && r.hazards == 0 && r.check_failures == 0);
    stress_replay_result_destroy(&r);
}

// The recording of a failed alloc of its own is passed over.
Test(replay, passes_over_recorded_failures) {
    open_device(BERM_GIB(1));
    const stress_replay_options_t options = options_of(&stress_pytorch_ops);
    stress_replay_result_t r = replay(HEAD "0,alloc,1,512,0\n1,oom,2,99999999999,0\n"
                                           "2,free,1,512,0\n",
                                      &options);
    cr_assert(stress_replay_is_good(&r));
    cr_assert(r.source_oom_events == 1 && r.peak_live_bytes == 512);
    stress_replay_result_destroy(&r);
}

Test(replay, defers_frees_as_recorded) {
    static const stress_allocator_ops_t *const all[] = {&stress_pytorch_ops, &stress_naive_ops,
                                                        &stress_cudamalloc_ops};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(all); i++) {
        open_device(BERM_GIB(1));
        const stress_replay_options_t options = options_of(all[i]);
        stress_replay_result_t r = replay(deferred_trace, &options);
        cr_assert(stress_replay_is_good(&r), "%s: %s %s", all[i]->name, r.first_check_failure,
                  r.first_hazard);
        cr_assert(r.peak_reserved_bytes == BERM_MIB(40), "%s", all[i]->name);
        if (all[i]->record_stream != NULL) {
            cr_assert(calls(&r, BERM_DRV_EVENT_RECORD) == 1, "the harness's are not counted");
            cr_assert(calls(&r, BERM_DRV_MALLOC) == 2);
        }
        stress_replay_result_destroy(&r);
        stress_device_close();
    }
}

// With 20 MiB the second block needs the first one's memory while a side stream uses it: the
// allocator waits, and that is no finding.
// An allocator whose frees wait for the whole device meets a closed gate each time; that is no
// hazard, however often, also beyond the hazards whose words are kept.
Test(replay, gates_that_a_wait_opens_are_no_hazard_however_many) {
    static char text[300000];
    size_t used = (size_t)snprintf(text, sizeof text, HEAD);
    for (int i = 0; i < 2400; i += 2)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "0,alloc,%d,4096,0\n0,alloc,%d,4096,1\n0,free,%d,4096,0\n"
                                 "0,free,%d,4096,1\n0,free_done,%d,4096,0\n",
                                 i, i + 1, i, i + 1, i);
    cr_assert(used < sizeof text - 1);
    open_device(BERM_GIB(1));
    stress_replay_options_t options = options_of(&stress_cudamalloc_ops);
    options.stops_at_hazard = true;
    stress_replay_result_t r = replay(text, &options);
    cr_assert(stress_simcuda()->hazard_count() > 1000, "%llu",
              (unsigned long long)stress_simcuda()->hazard_count());
    cr_assert(stress_replay_is_good(&r) && r.hazards == 0 && r.first_hazard[0] == '\0', "%s%s",
              r.failure, r.first_hazard);
    stress_replay_result_destroy(&r);
    stress_device_close();
}

Test(replay, lets_an_allocator_in_need_wait) {
    open_device(BERM_MIB(20));
    const stress_replay_options_t options = options_of(&stress_pytorch_ops);
    stress_replay_result_t r = replay(HEAD "0,alloc,1,20971520,0\n1,free,1,20971520,0\n"
                                           "2,alloc,2,20971520,0\n3,free_done,1,20971520,0\n",
                                      &options);
    cr_assert(stress_replay_is_good(&r), "%s", r.first_hazard);
    cr_assert(r.host_waits > 0);
    stress_replay_result_destroy(&r);
}

Test(replay, repeats_what_was_live_before) {
    open_device(BERM_GIB(1));
    stress_replay_options_t options = options_of(&stress_pytorch_ops);
    options.repeats = 2;
    stress_replay_result_t r = replay(HEAD "0,alloc,1,1048576,0\n1,alloc,2,1048576,0\n", &options);
    cr_assert(stress_replay_is_good(&r));
    cr_assert(r.peak_live_bytes == BERM_MIB(2) && r.peak_reserved_bytes == BERM_MIB(2));
    cr_assert(r.allocated_bytes_total == BERM_MIB(4));
    stress_replay_result_destroy(&r);
}

Test(replay, refuses_bad_options) {
    open_device(BERM_GIB(1));
    trace_t *trace = trace_of(small_trace);
    stress_replay_options_t options = options_of(&stress_naive_ops);
    options.conf = "victims:none";
    stress_replay_result_t r;
    cr_assert(stress_replay(trace, &options, &r, error, sizeof error) == -1);
    cr_assert(strstr(error, "victims") != NULL);
    trace_destroy(trace);
}

// --- broken allocators
// -----------------------------------------------------------------------------

// cudamalloc with one fault each.
static stress_allocator_ops_t broken;
static uint64_t last_addr;

static stress_result_t free_nothing(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                    void *stream) {
    (void)a, (void)addr, (void)size_bytes, (void)stream;
    return STRESS_OK;
}

static stress_result_t alloc_twice_the_same(stress_allocator_t *a, uint64_t size_bytes,
                                            void *stream, uint64_t *addr) {
    if (last_addr != 0) {
        *addr = last_addr;
        return STRESS_OK;
    }
    stress_result_t result = stress_cudamalloc_ops.alloc(a, size_bytes, stream, addr);
    last_addr = *addr;
    return result;
}

static stress_result_t alloc_unaligned(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                       uint64_t *addr) {
    stress_result_t result = stress_cudamalloc_ops.alloc(a, size_bytes + 256, stream, addr);
    *addr += 256;
    return result;
}

static stress_result_t free_unaligned(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                      void *stream) {
    return stress_cudamalloc_ops.free(a, addr - 256, size_bytes, stream);
}

static void figures_of_less(stress_allocator_t *a, stress_figures_t *figures) {
    stress_cudamalloc_ops.figures(a, figures);
    figures->reserved_bytes /= 2;
}

static stress_result_t record_nothing(stress_allocator_t *a, uint64_t addr, void *stream) {
    (void)a, (void)addr, (void)stream;
    return STRESS_OK;
}

static stress_result_t alloc_fails(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                   uint64_t *addr) {
    (void)a, (void)size_bytes, (void)stream, (void)addr;
    return STRESS_ERROR;
}

static int audit_fails(stress_allocator_t *a, char *text, size_t capacity) {
    (void)a;
    (void)snprintf(text, capacity, "it is broken");
    return 3;
}

static stress_replay_result_t replay_broken(const char *text) {
    open_device(BERM_GIB(1));
    const stress_replay_options_t options = options_of(&broken);
    stress_replay_result_t r = replay(text, &options);
    cr_assert(!stress_replay_is_good(&r));
    return r;
}

Test(replay, finds_leaks) {
    broken = stress_cudamalloc_ops;
    broken.free = free_nothing;
    stress_replay_result_t r = replay_broken(small_trace);
    cr_assert(r.completed && r.leaked_blocks > 0);
    stress_replay_result_destroy(&r);
}

Test(replay, finds_overlap) {
    broken = stress_cudamalloc_ops;
    broken.alloc = alloc_twice_the_same;
    broken.free = free_nothing;
    stress_replay_result_t r = replay_broken(small_trace);
    cr_assert(strstr(r.first_check_failure, "overlaps") != NULL);
    stress_replay_result_destroy(&r);
}

Test(replay, finds_bad_alignment) {
    broken = stress_cudamalloc_ops;
    broken.alloc = alloc_unaligned;
    broken.free = free_unaligned;
    stress_replay_result_t r = replay_broken(small_trace);
    cr_assert(strstr(r.first_check_failure, "aligned") != NULL);
    stress_replay_result_destroy(&r);
}

Test(replay, finds_ledgers_that_differ) {
    broken = stress_cudamalloc_ops;
    broken.figures = figures_of_less;
    stress_replay_result_t r = replay_broken(small_trace);
    cr_assert(strstr(r.first_check_failure, "the device says") != NULL);
    stress_replay_result_destroy(&r);
}

Test(replay, finds_audits_that_fail) {
    broken = stress_cudamalloc_ops;
    broken.audit = audit_fails;
    stress_replay_result_t r = replay_broken(small_trace);
    cr_assert(strstr(r.first_check_failure, "it is broken") != NULL);
    cr_assert(r.check_failures == r.events + 1);
    stress_replay_result_destroy(&r);
}

// PyTorch's allocator without its events hands a block out while a side stream reads it.
Test(replay, finds_hazards) {
    broken = stress_pytorch_ops;
    broken.record_stream = record_nothing;
    stress_replay_result_t r = replay_broken(deferred_trace);
    cr_assert(r.completed && r.hazards > 0 && r.first_hazard[0] != '\0');
    stress_replay_result_destroy(&r);
}

Test(replay, stops_at_the_first_hazard_if_asked) {
    broken = stress_pytorch_ops;
    broken.record_stream = record_nothing;
    open_device(BERM_GIB(1));
    stress_replay_options_t options = options_of(&broken);
    options.stops_at_hazard = true;
    stress_replay_result_t r = replay(deferred_trace, &options);
    cr_assert(!r.completed && strstr(r.failure, "event 2: ") != NULL, "%s", r.failure);
    stress_replay_result_destroy(&r);
}

Test(replay, reports_errors_that_are_not_out_of_memory) {
    broken = stress_cudamalloc_ops;
    broken.alloc = alloc_fails;
    stress_replay_result_t r = replay_broken(small_trace);
    cr_assert(!r.completed && strstr(r.failure, "event 0: alloc") != NULL);
    stress_replay_result_destroy(&r);
}

// --- fit -----------------------------------------------------------------------------------------

static stress_fit_result_t fit(const char *text, const stress_allocator_ops_t *ops) {
    open_device(0);
    stress_replay_options_t options = options_of(ops);
    trace_t *trace = trace_of(text);
    stress_fit_result_t result;
    cr_assert(stress_fit(trace, &options, &result, error, sizeof error) == 0, "%s", error);
    trace_destroy(trace);
    return result;
}

Test(replay, fit_finds_the_smallest_capacity) {
    stress_fit_result_t r = fit(small_trace, &stress_cudamalloc_ops);
    cr_assert(r.min_capacity_bytes == BERM_MIB(6) && r.capacity_over_live == 1.5);
    cr_assert(r.is_monotone && r.highest_failing_bytes == BERM_MIB(4) && r.findings == 0);
    r = fit(small_trace, &stress_pytorch_ops);
    cr_assert(r.min_capacity_bytes == BERM_MIB(22));
    r = fit(small_trace, &stress_naive_ops);
    cr_assert(r.min_capacity_bytes == BERM_MIB(4) && r.capacity_over_live == 1.0);
}

// Finishes at 32 MiB and from 40 MiB on.
static stress_result_t alloc_moody(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                   uint64_t *addr) {
    size_t free_bytes = 0, total_bytes = 0;
    (void)stress_driver()->mem_get_info(&free_bytes, &total_bytes);
    if (total_bytes < BERM_MIB(32) || (total_bytes > BERM_MIB(32) && total_bytes < BERM_MIB(40)))
        return STRESS_OUT_OF_MEMORY;
    return stress_cudamalloc_ops.alloc(a, size_bytes, stream, addr);
}

Test(replay, fit_says_when_it_is_not_monotone) {
    broken = stress_cudamalloc_ops;
    broken.alloc = alloc_moody;
    stress_fit_result_t r = fit(small_trace, &broken);
    cr_assert(!r.is_monotone);
    cr_assert(r.min_capacity_bytes == BERM_MIB(32) && r.highest_failing_bytes == BERM_MIB(38));
}

Test(replay, fit_says_when_it_never_finishes) {
    open_device(0);
    stress_replay_options_t options = options_of(&stress_cudamalloc_ops);
    options.capacity_bytes = BERM_MIB(64);
    trace_t *trace = trace_of(HEAD "0,alloc,1,1073741824,0\n");
    stress_fit_result_t result;
    cr_assert(stress_fit(trace, &options, &result, error, sizeof error) == 1);
    cr_assert_str_eq(error, "cudamalloc: no allocator could finish: peak live is 1024.0 MiB, "
                            "--capacity 64.0 MiB");
    cr_assert(!result.is_fitting && result.runs == 0);
    trace_destroy(trace);

    options = options_of(&stress_pytorch_ops);
    options.capacity_bytes = BERM_MIB(8);
    trace = trace_of(small_trace);
    cr_assert(stress_fit(trace, &options, &result, error, sizeof error) == 1);
    cr_assert_str_eq(error, "pytorch: does not finish with 8.0 MiB; give more with --capacity");
    cr_assert(!result.is_fitting && result.runs == 1 && result.most_bytes == BERM_MIB(8));
    trace_destroy(trace);
}

Test(replay, out_of_memory_in_words) {
    char text[256];
    stress_replay_result_t r = {.capacity_bytes = BERM_MIB(10),
                                .repeats = 1,
                                .oom_event = 7,
                                .oom_size_bytes = BERM_MIB(4),
                                .oom_live_bytes = BERM_MIB(6),
                                .oom_reserved_bytes = BERM_MIB(8),
                                .oom_largest_free_bytes = BERM_MIB(1)};
    stress_replay_oom_text(&r, text, sizeof text);
    cr_assert_str_eq(text, "out of memory at event 7: asked for 4.0 MiB with 6.0 MiB live, 10.0 of "
                           "10.0 MiB: 8.0 MiB reserved, largest free 1.0 MiB");
    r.repeats = 3;
    r.oom_repeat = 1;
    r.oom_size_bytes = 512;
    r.oom_live_bytes = BERM_MIB(10);
    stress_replay_oom_text(&r, text, sizeof text);
    cr_assert_str_eq(text, "out of memory at event 7 of repeat 2: asked for 512 bytes with 10.0 "
                           "MiB live, 10.0 of 10.0 MiB: no allocator could");
}
