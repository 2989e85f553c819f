// SPDX-License-Identifier: Apache-2.0
// Benchmarks of allocators against each other, on the device that is open: see `berm bench --help`
// for what each measures. The figures of one benchmark come from rounds in which every allocator is
// measured in turn, so that a machine that is busy for a while disturbs them alike.
#ifndef STRESS_BENCH_BENCH_H
#define STRESS_BENCH_BENCH_H

#include "stress/allocator.h"

enum {
    BENCH_ALLOCATORS_MAX = 16,
    BENCH_ROUNDS_MAX = 99,
};

typedef enum bench_kind {
    BENCH_PAIR,   // an allocation and its free, `size_bytes` each
    BENCH_CHURN,  // with `live` blocks of mixed sizes: one of them is freed, another allocated
    BENCH_LOCAL,  // churn with 100 blocks in each of `threads` threads, each on its own stream
    BENCH_REMOTE, // one thread allocates, another frees
    BENCH_MISS,   // with `live` granules reserved, every second one free: a block over many of them
} bench_kind_t;

typedef struct bench_case {
    const char *name;
    bench_kind_t kind;
    uint64_t size_bytes, live;
    int threads;
    uint64_t operations, operations_quick; // of a round
    bool is_read; // meanwhile another thread reads the statistics every millisecond: berm only
    bool is_ring; // with the event ring off and on, in turns: berm only; the figures are those with
                  // it on
} bench_case_t;

extern const bench_case_t bench_cases[];
extern const size_t bench_case_count;
const bench_case_t *bench_case_find(const char *name); // NULL if unknown

// An allocator that can be made once a process, with its streams, between benchmarks.
typedef struct bench_kept {
    stress_allocator_t *allocator;
    void *streams[2];
    char failure[128]; // why it could not be made: it is not tried again
} bench_kept_t;

typedef struct bench_options {
    const stress_allocator_ops_t *allocators[BENCH_ALLOCATORS_MAX];
    size_t allocator_count;
    const char *conf; // of every allocator
    double headroom_pct;
    uint32_t rounds;
    bool is_quick;
    uint64_t seed;
    bench_kept_t kept[BENCH_ALLOCATORS_MAX]; // by bench_run; zero at first
} bench_options_t;

// One allocator in one benchmark. A figure below 0 is unknown.
typedef struct bench_row {
    const bench_case_t *benchmark;
    const char *allocator;
    uint64_t operations;             // measured, of all rounds
    double mean_ns;                  // median over rounds; several threads: wall time an operation
    double p50_ns, p99_ns, p999_ns;  // of single operations
    double per_mutex_pair;           // mean over that of an uncontended lock and unlock, same round
    double ratio;                    // mean over that of the first allocator, same round
    double instructions;             // an operation
    double off_ns, off_instructions; // of is_ring, with the ring off
    double over_off;                 // mean over that with the ring off, same round
    double host_bytes;               // a live block, over what the allocator holds with none
    char note[128];
} bench_row_t;

// Runs one benchmark; `rows` has room for allocator_count. 0, or -1 with a line in `error` when
// it could not run at all; an allocator that cannot has a note and no figures.
int bench_run(const bench_case_t *benchmark, bench_options_t *options, bench_row_t *rows,
              char *error, size_t error_capacity);

// Destroys what was kept; to be called after the last run.
void bench_end(bench_options_t *options);

// `operations` operations of a benchmark with one thread, after its preparation and nothing else:
// what is run under an instruction counter. 0, or -1 with a line.
int bench_run_bare(const bench_case_t *benchmark, bench_options_t *options, uint64_t operations,
                   char *error, size_t error_capacity);

// Whether this process may count instructions by itself.
bool bench_counts_instructions(void);

#endif
