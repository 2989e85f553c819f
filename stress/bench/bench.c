// SPDX-License-Identifier: Apache-2.0
// Rounds and figures of the benchmarks: see bench.h. The loops are subject.c and threads.c, what
// they are measured with meter.c.
//
// Each round measures every allocator once, starting with another one each time, and the mutex pair
// just before each. A mean is taken over a batch, percentiles over operations timed one by one. The
// figures are medians over rounds; ratios are taken inside a round first.
// Bounds: rounds x allocators x operations. Locks: none. May fail: host memory; allocators, whose
// failure is their row's note.
#include "stress/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/defs.h"
#include "berm.h"
#include "stress/baselines/baselines.h"
#include "stress/bench/meter.h"
#include "stress/bench/subject.h"

enum {
    MUTEX_PAIRS = 2000
};

const bench_case_t bench_cases[] = {
    {"pair_512B", BENCH_PAIR, 512, 0, 1, 100000, 500, false, false},
    {"pair_512B_read", BENCH_PAIR, 512, 0, 1, 100000, 500, true, false},
    {"pair_512B_ring", BENCH_PAIR, 512, 0, 1, 100000, 2000, false, true},
    {"pair_1MiB_ring", BENCH_PAIR, BERM_MIB(1), 0, 1, 100000, 2000, false, true},
    {"pair_64KiB", BENCH_PAIR, BERM_KIB(64), 0, 1, 100000, 500, false, false},
    {"pair_1MiB", BENCH_PAIR, BERM_MIB(1), 0, 1, 100000, 500, false, false},
    {"pair_64MiB", BENCH_PAIR, BERM_MIB(64), 0, 1, 100000, 500, false, false},
    {"churn_100", BENCH_CHURN, 0, 100, 1, 200000, 500, false, false},
    {"churn_10000", BENCH_CHURN, 0, 10000, 1, 200000, 500, false, false},
    {"churn_10000_read", BENCH_CHURN, 0, 10000, 1, 200000, 500, true, false},
    {"churn_1000000", BENCH_CHURN, 0, 1000000, 1, 100000, 0, false, false},
    {"local_1_thread", BENCH_LOCAL, 0, 0, 1, 400000, 500, false, false},
    {"local_2_threads", BENCH_LOCAL, 0, 0, 2, 400000, 500, false, false},
    {"remote_free", BENCH_REMOTE, BERM_KIB(4), 0, 2, 50000, 500, false, false},
    {"miss_64_of_65536", BENCH_MISS, BERM_MIB(128), 65536, 1, 60, 6, false, false},
};
const size_t bench_case_count = BERM_ARRAY_LENGTH(bench_cases);

const bench_case_t *bench_case_find(const char *name) {
    for (size_t i = 0; i < bench_case_count; i++)
        if (strcmp(bench_cases[i].name, name) == 0)
            return &bench_cases[i];
    return NULL;
}

bool bench_counts_instructions(void) {
    uint64_t count = 0;
    return meter_instructions_start() && meter_instructions_stop(&count);
}

static bool case_has_threads(const bench_case_t *benchmark) {
    return benchmark->kind == BENCH_LOCAL || benchmark->kind == BENCH_REMOTE;
}

// Local work in two threads, beside that in one just before: its mean in ns, or -1.
static double scaling_round(bench_subject_t *subject, const bench_plan_t *plan) {
    double machine = bench_machine_scaling();
    double one_ns = bench_threads(subject, plan, 1);
    double two_ns = one_ns > 0 ? bench_threads(subject, plan, 2) : -1;
    if (two_ns <= 0)
        return -1;
    subject->machine_scaling[subject->rounds] = machine;
    subject->scaling[subject->rounds] = 2 * one_ns / two_ns;
    return two_ns / (double)plan->operations / 2;
}

// Misses of one allocator, each timed by itself: their mean in ns, or -1.
static double miss_round(bench_subject_t *subject, const bench_plan_t *plan,
                         uint64_t clock_cost_ns) {
    uint64_t total_ns = 0;
    for (uint64_t i = 0; i < plan->operations; i++) {
        uint64_t start_ns = meter_clock_ns();
        if (!bench_miss_one(subject, plan)) {
            bench_subject_fail(subject, "no more holes: fewer rounds");
            return -1;
        }
        uint64_t spent_ns = meter_clock_ns() - start_ns;
        histogram_add(&subject->times, spent_ns > clock_cost_ns ? spent_ns - clock_cost_ns : 0);
        total_ns += spent_ns;
    }
    double driver_ns = bench_miss_driver_ns(plan);
    if (subject->driver_ns == 0 || (driver_ns >= 0 && driver_ns < subject->driver_ns))
        subject->driver_ns = driver_ns;
    return (double)total_ns / (double)plan->operations;
}

enum {
    RING_SLICES = 10,
    RING_PAIRS = 1 << 20, // of 8 bytes each: all that the ring may have
};

// A part of a round with the event ring off or on: the mean in ns, or -1.
static double ring_slice(bench_subject_t *subject, const bench_plan_t *plan, const char *value,
                         double *instructions) {
    uint64_t count = 0, operations = plan->operations / RING_SLICES;
    if (berm_option_set("event_ring", value) != BERM_OK) {
        bench_subject_fail(subject, "the event ring cannot be switched");
        return -1;
    }
    bool is_counting = meter_instructions_start();
    uint64_t start_ns = meter_clock_ns();
    bool is_good = bench_batch(subject, plan, operations);
    uint64_t spent_ns = meter_clock_ns() - start_ns;
    if (is_counting && meter_instructions_stop(&count))
        *instructions = (double)count / (double)operations;
    return is_good ? (double)spent_ns / (double)operations : -1;
}

// Fills the ring, so that what is measured is its use and not the first touch of its memory.
static bool ring_fill(bench_subject_t *subject, const bench_plan_t *plan) {
    double unused;
    for (uint64_t pairs = 0; pairs < RING_PAIRS; pairs += plan->operations / RING_SLICES)
        if (ring_slice(subject, plan, "on", &unused) < 0)
            return false;
    return true;
}

// With the ring off and on in turns; the quickest slice of each counts, since a busy machine only
// makes slices longer. The mean with it on, or -1.
static double ring_round(bench_subject_t *subject, const bench_plan_t *plan) {
    double off_ns = -1, on_ns = -1;
    if (subject->ops != &stress_berm_ops) {
        bench_subject_fail(subject, "it has no event ring");
        return -1;
    }
    if (subject->rounds == 0 && !ring_fill(subject, plan))
        return -1;
    for (int i = 0; i < RING_SLICES; i++) {
        double off = ring_slice(subject, plan, "off", &subject->off_instructions);
        double on = off >= 0 ? ring_slice(subject, plan, "on", &subject->instructions) : -1;
        if (on < 0)
            return -1;
        off_ns = off_ns < 0 || off < off_ns ? off : off_ns;
        on_ns = on_ns < 0 || on < on_ns ? on : on_ns;
    }
    subject->off_means[subject->rounds] = off_ns;
    subject->over_off[subject->rounds] = on_ns / off_ns;
    return on_ns;
}

// One round of one allocator: its mean in ns, or -1.
static double subject_round(bench_subject_t *subject, const bench_plan_t *plan,
                            uint64_t clock_cost_ns) {
    const bench_case_t *benchmark = plan->benchmark;
    if (benchmark->kind == BENCH_LOCAL && benchmark->threads == 2)
        return scaling_round(subject, plan);
    if (benchmark->is_ring)
        return ring_round(subject, plan);
    if (benchmark->kind == BENCH_MISS)
        return miss_round(subject, plan, clock_cost_ns);
    if (case_has_threads(benchmark)) {
        double wall_ns = bench_threads(subject, plan, benchmark->threads);
        return wall_ns < 0 ? -1 : wall_ns / (double)plan->operations;
    }
    uint64_t count = 0;
    bench_reader_t reader;
    if (benchmark->is_read && !bench_reader_start(&reader, subject))
        return -1;
    bool is_counting = meter_instructions_start();
    uint64_t start_ns = meter_clock_ns();
    bool is_good = bench_batch(subject, plan, plan->operations);
    uint64_t spent_ns = meter_clock_ns() - start_ns;
    if (is_counting && meter_instructions_stop(&count))
        subject->instructions = (double)count / (double)plan->operations;
    is_good = is_good && bench_singles(subject, plan, plan->operations, clock_cost_ns);
    if (benchmark->is_read)
        is_good = bench_reader_stop(&reader, subject) && is_good;
    return is_good ? (double)spent_ns / (double)plan->operations : -1;
}

static void round_run(bench_subject_t *subjects, size_t count, const bench_plan_t *plan,
                      uint32_t round, uint64_t clock_cost_ns) {
    double means[BENCH_ALLOCATORS_MAX];
    for (size_t i = 0; i < count; i++) {
        size_t at = (i + round) % count;
        bench_subject_t *subject = &subjects[at];
        means[at] = -1;
        if (subject->has_failed)
            continue;
        double mutex_ns = meter_mutex_pair_ns(MUTEX_PAIRS);
        means[at] = subject_round(subject, plan, clock_cost_ns);
        if (means[at] < 0)
            continue;
        subject->means[subject->rounds] = means[at];
        subject->per_mutex[subject->rounds] = mutex_ns > 0 ? means[at] / mutex_ns : -1;
    }
    for (size_t i = 0; i < count; i++)
        if (means[i] >= 0)
            subjects[i].ratios[subjects[i].rounds++] = means[0] > 0 ? means[i] / means[0] : -1;
}

static void scaling_note(bench_row_t *row, bench_subject_t *subject) {
    size_t length = strlen(row->note);
    (void)snprintf(row->note + length, sizeof row->note - length,
                   "%s%.2f times one thread where the machine does %.2f", length > 0 ? "; " : "",
                   meter_median(subject->scaling, subject->rounds),
                   meter_median(subject->machine_scaling, subject->rounds));
}

static void row_fill(bench_row_t *row, bench_subject_t *subject, const bench_plan_t *plan) {
    *row = (bench_row_t){.benchmark = plan->benchmark,
                         .allocator = subject->ops->name,
                         .mean_ns = -1,
                         .p50_ns = -1,
                         .p99_ns = -1,
                         .p999_ns = -1,
                         .per_mutex_pair = -1,
                         .ratio = -1,
                         .instructions = subject->instructions,
                         .off_ns = -1,
                         .off_instructions = subject->off_instructions,
                         .over_off = -1,
                         .host_bytes = subject->host_bytes};
    if (subject->is_locked)
        (void)snprintf(row->note, sizeof row->note, "for one thread: called under one lock");
    if (subject->has_failed) {
        (void)snprintf(row->note, sizeof row->note, "skipped: %.110s", subject->failure);
        row->instructions = row->host_bytes = -1;
        return;
    }
    row->operations = plan->operations * subject->rounds;
    row->mean_ns = meter_median(subject->means, subject->rounds);
    row->per_mutex_pair = meter_median(subject->per_mutex, subject->rounds);
    row->ratio = meter_median(subject->ratios, subject->rounds);
    if (plan->benchmark->kind == BENCH_LOCAL && plan->benchmark->threads == 2)
        scaling_note(row, subject);
    if (plan->benchmark->is_ring) {
        row->off_ns = meter_median(subject->off_means, subject->rounds);
        row->over_off = meter_median(subject->over_off, subject->rounds);
    }
    if (plan->benchmark->kind == BENCH_MISS)
        (void)snprintf(row->note, sizeof row->note,
                       "64 unmaps, 64 maps and an access alone take %.0f ns", subject->driver_ns);
    if (subject->times.count > 0) {
        row->p50_ns = (double)histogram_quantile(&subject->times, 500);
        row->p99_ns = (double)histogram_quantile(&subject->times, 990);
        row->p999_ns = (double)histogram_quantile(&subject->times, 999);
    }
}

int bench_run(const bench_case_t *benchmark, bench_options_t *options, bench_row_t *rows,
              char *error, size_t error_capacity) {
    uint64_t operations = options->is_quick ? benchmark->operations_quick : benchmark->operations;
    bench_plan_t plan;
    bench_subject_t *subjects = calloc(options->allocator_count, sizeof *subjects);
    if (subjects == NULL || !bench_plan_create(&plan, benchmark, operations, options->seed)) {
        free(subjects);
        (void)snprintf(error, error_capacity, "%s: no memory", benchmark->name);
        return -1;
    }
    size_t count = options->allocator_count;
    for (size_t i = 0; i < count; i++)
        bench_subject_open(&subjects[i], options, i, &plan);
    uint64_t clock_cost_ns = meter_clock_cost_ns();
    for (uint32_t round = 0; round < options->rounds; round++)
        round_run(subjects, count, &plan, round, clock_cost_ns);
    for (size_t i = 0; i < count; i++) {
        bench_subject_close(&subjects[i], &plan);
        row_fill(&rows[i], &subjects[i], &plan);
    }
    bench_plan_destroy(&plan);
    free(subjects);
    return 0;
}

int bench_run_bare(const bench_case_t *benchmark, bench_options_t *options, uint64_t operations,
                   char *error, size_t error_capacity) {
    bench_plan_t plan;
    bench_subject_t *subject = calloc(1, sizeof *subject);
    if (subject == NULL || case_has_threads(benchmark) || benchmark->kind == BENCH_MISS ||
        !bench_plan_create(&plan, benchmark, berm__max_u64(operations, 1), options->seed)) {
        free(subject);
        (void)snprintf(error, error_capacity, "%s: cannot be run bare", benchmark->name);
        return -1;
    }
    // The warm-up is the same whatever `operations` is: two runs differ in the measured part alone.
    plan.operations = 1;
    bench_subject_open(subject, options, 0, &plan);
    plan.operations = berm__max_u64(operations, 1);
    if (!subject->has_failed)
        (void)bench_batch(subject, &plan, operations);
    bench_subject_close(subject, &plan);
    bench_plan_destroy(&plan);
    bool has_failed = subject->has_failed;
    if (has_failed)
        (void)snprintf(error, error_capacity, "%s: %s", benchmark->name, subject->failure);
    free(subject);
    return has_failed ? -1 : 0;
}
