// SPDX-License-Identifier: Apache-2.0
// One allocator during one benchmark, and the loops that are measured.
#ifndef STRESS_BENCH_SUBJECT_H
#define STRESS_BENCH_SUBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include "stress/bench/bench.h"
#include "stress/histogram.h"

// What a round of churn does: the same for every allocator.
typedef struct bench_step {
    uint64_t size_bytes; // allocated in place of
    uint32_t slot;       // what is freed
} bench_step_t;

typedef struct bench_plan {
    const bench_case_t *benchmark;
    uint64_t operations; // of a round
    uint64_t slots;      // live blocks of a thread
    uint64_t *sizes;     // of each slot at first
    bench_step_t *steps; // of a round
} bench_plan_t;

bool bench_plan_create(bench_plan_t *plan, const bench_case_t *benchmark, uint64_t operations,
                       uint64_t seed);
void bench_plan_destroy(bench_plan_t *plan);

typedef struct bench_block {
    uint64_t addr, size_bytes;
} bench_block_t;

typedef struct bench_subject {
    const stress_allocator_ops_t *ops;
    bench_kept_t *kept; // where the allocator stays, if it can be made only once
    stress_allocator_t *allocator;
    bool is_locked; // calls of several threads go through `lock`
    pthread_mutex_t lock;
    void *streams[2];        // one for each thread
    bench_block_t *slots[2]; // live blocks of each thread
    uint64_t misses;         // blocks of BENCH_MISS so far
    double driver_ns;        // of an operation of BENCH_MISS; 0: not measured
    uint64_t left_ns;        // of the time this benchmark may take it, a minute
    bool has_failed;
    char failure[128];
    histogram_t times;
    double instructions;
    double host_bytes;
    double means[BENCH_ROUNDS_MAX], per_mutex[BENCH_ROUNDS_MAX], ratios[BENCH_ROUNDS_MAX];
    // Of local work in two threads: how many times that of one, and the machine's.
    double scaling[BENCH_ROUNDS_MAX], machine_scaling[BENCH_ROUNDS_MAX];
    // With the event ring off: means, and those with it on over them; instructions.
    double off_means[BENCH_ROUNDS_MAX], over_off[BENCH_ROUNDS_MAX], off_instructions;
    uint32_t rounds;
} bench_subject_t;

// Creates the options' allocator of that number and fills its slots. A failure is kept in the
// subject.
void bench_subject_open(bench_subject_t *subject, bench_options_t *options, size_t number,
                        const bench_plan_t *plan);
void bench_subject_close(bench_subject_t *subject, const bench_plan_t *plan);
void bench_subject_fail(bench_subject_t *subject, const char *what);

// `operations` operations, at most the plan's, in this thread as a batch; false when the allocator
// failed.
bool bench_batch(bench_subject_t *subject, const bench_plan_t *plan, uint64_t operations);
// The same, each operation timed by itself.
bool bench_singles(bench_subject_t *subject, const bench_plan_t *plan, uint64_t operations,
                   uint64_t clock_cost_ns);
// A round of BENCH_LOCAL or BENCH_REMOTE in `count` threads, 1 or 2; wall time in ns, or -1 when
// something failed.
double bench_threads(bench_subject_t *subject, const bench_plan_t *plan, int count);
// A thread that reads the statistics of the subject's allocator every millisecond, as a monitor
// would. False when it cannot, which fails the subject.
typedef struct bench_reader {
    pthread_t thread;
    atomic_bool is_stopped;
    bool has_failed;
} bench_reader_t;
bool bench_reader_start(bench_reader_t *reader, bench_subject_t *subject);
bool bench_reader_stop(bench_reader_t *reader, bench_subject_t *subject);

// Frees every second block, and asks for the first blocks that find holes only; one such request;
// the same driver calls alone, in ns, or -1.
bool bench_miss_prepare(bench_subject_t *subject, const bench_plan_t *plan);
bool bench_miss_one(bench_subject_t *subject, const bench_plan_t *plan);
double bench_miss_driver_ns(const bench_plan_t *plan);

// How many times the work of one thread two threads do on this machine now, when they share
// nothing: each locks and unlocks a mutex of its own. -1: unknown.
double bench_machine_scaling(void);

#endif
