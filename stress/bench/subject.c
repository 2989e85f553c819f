// SPDX-License-Identifier: Apache-2.0
// The allocator under a benchmark, its live blocks, and the loops with one thread. Those with
// several are threads.c, rounds and medians bench.c.
//
// Nothing is drawn, and no memory taken, inside a measured loop: sizes and slots come from the
// plan. Locks: none here. May fail: host memory, the allocator; the subject keeps the first
// failure.
#include "stress/bench/subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/defs.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "stress/baselines/baselines.h"
#include "stress/bench/meter.h"
#include "stress/device.h"

#define CHURN_SIZE_MIN 512.0
#define CHURN_SIZE_MAX 4194304.0 // 4 MiB

enum {
    LOCAL_SLOTS = 100,
    MISS_SLOTS = 512, // more would find no hole any more
    WARM_STEPS_MAX = 100000,
    CLOCK_STEPS = 1024, // between looks at the clock
};

#define TIME_MAX_NS UINT64_C(60000000000)

// --- the plan ------------------------------------------------------------------------------------

// Uniform in the logarithm.
static uint64_t size_draw(berm_rng_t *rng) {
    double logarithm =
        log(CHURN_SIZE_MIN) + berm__rng_unit(rng) * (log(CHURN_SIZE_MAX) - log(CHURN_SIZE_MIN));
    return (uint64_t)exp(logarithm);
}

bool bench_plan_create(bench_plan_t *plan, const bench_case_t *benchmark, uint64_t operations,
                       uint64_t seed) {
    *plan = (bench_plan_t){.benchmark = benchmark, .operations = operations};
    if (benchmark->kind == BENCH_PAIR || benchmark->kind == BENCH_REMOTE)
        return true;
    plan->slots = benchmark->kind == BENCH_LOCAL ? LOCAL_SLOTS : benchmark->live;
    if (benchmark->kind == BENCH_MISS)
        plan->slots += MISS_SLOTS;
    plan->sizes = calloc(plan->slots, sizeof *plan->sizes);
    plan->steps = calloc(operations, sizeof *plan->steps);
    if (plan->sizes == NULL || plan->steps == NULL) {
        bench_plan_destroy(plan);
        return false;
    }
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    for (uint64_t i = 0; i < plan->slots; i++)
        plan->sizes[i] = benchmark->kind != BENCH_MISS ? size_draw(&rng)
                         : i < benchmark->live         ? BERM_MIB(2)
                                                       : 0;
    for (uint64_t i = 0; i < operations; i++)
        plan->steps[i] =
            (bench_step_t){size_draw(&rng), (uint32_t)berm__rng_below(&rng, plan->slots)};
    return true;
}

void bench_plan_destroy(bench_plan_t *plan) {
    free(plan->sizes);
    free(plan->steps);
    plan->sizes = NULL;
    plan->steps = NULL;
}

// --- life ----------------------------------------------------------------------------------------

void bench_subject_fail(bench_subject_t *subject, const char *what) {
    if (!subject->has_failed)
        (void)snprintf(subject->failure, sizeof subject->failure, "%.120s", what);
    subject->has_failed = true;
}

// Takes the time since *start_ns off what is left; false, and a failure, when that is used up.
static bool time_take(bench_subject_t *subject, uint64_t *start_ns) {
    uint64_t now_ns = meter_clock_ns();
    uint64_t spent_ns = now_ns - *start_ns;
    *start_ns = now_ns;
    subject->left_ns = spent_ns < subject->left_ns ? subject->left_ns - spent_ns : 0;
    if (subject->left_ns == 0)
        bench_subject_fail(subject, "took more than a minute");
    return subject->left_ns > 0;
}

// What the allocator's own records take on the host; berm says it, of others jemalloc knows what
// the process allocated, but for jemalloc's arenas of device memory, which it counts too.
static bool host_bytes_read(const bench_subject_t *subject, uint64_t *bytes) {
    if (subject->ops == &stress_jemalloc_ops)
        return false;
    if (subject->ops != &stress_berm_ops)
        return meter_host_bytes(bytes);
    berm_stats_t stats = {.size = sizeof stats};
    if (berm_stats_read(stress_device_ordinal(), &stats) != BERM_OK)
        return false;
    *bytes = stats.host_metadata_bytes;
    return true;
}

static void subject_fill(bench_subject_t *subject, const bench_plan_t *plan, int thread) {
    subject->slots[thread] = calloc(plan->slots + 1, sizeof *subject->slots[thread]);
    if (subject->slots[thread] == NULL) {
        bench_subject_fail(subject, "no memory");
        return;
    }
    uint64_t before = 0, after = 0;
    bool is_known = host_bytes_read(subject, &before);
    uint64_t start_ns = meter_clock_ns();
    for (uint64_t i = 0; i < plan->slots && !subject->has_failed; i++) {
        if (i % CLOCK_STEPS == 0 && !time_take(subject, &start_ns))
            break;
        bench_block_t *block = &subject->slots[thread][i];
        block->size_bytes = plan->sizes[i];
        if (block->size_bytes > 0 &&
            subject->ops->alloc(subject->allocator, block->size_bytes, subject->streams[thread],
                                &block->addr) != STRESS_OK) {
            block->addr = 0;
            bench_subject_fail(subject, "could not hold that many blocks");
        }
    }
    is_known = is_known && host_bytes_read(subject, &after);
    if (is_known && after >= before && plan->benchmark->kind == BENCH_CHURN)
        subject->host_bytes = (double)(after - before) / (double)plan->slots;
}

// The allocator and a stream for each thread, new or as the last benchmark left them.
static void subject_create(bench_subject_t *subject, const bench_options_t *options, int threads) {
    if (subject->kept != NULL && subject->kept->allocator != NULL) {
        subject->allocator = subject->kept->allocator;
        memcpy(subject->streams, subject->kept->streams, sizeof subject->streams);
    } else if (subject->kept != NULL && subject->kept->failure[0] != '\0') {
        bench_subject_fail(subject, subject->kept->failure);
    } else {
        const stress_allocator_options_t create = {.device = stress_device_ordinal(),
                                                   .conf = options->conf,
                                                   .headroom_pct = options->headroom_pct,
                                                   .limit_bytes = UINT64_MAX};
        char error[256] = "";
        subject->allocator = subject->ops->create(&create, error, sizeof error);
        if (subject->allocator == NULL)
            bench_subject_fail(subject, error);
        if (subject->allocator == NULL && subject->kept != NULL)
            memcpy(subject->kept->failure, subject->failure, sizeof subject->kept->failure);
    }
    for (int i = 0; i < threads && !subject->has_failed; i++) {
        berm_cu_stream_t stream = subject->streams[i];
        if (stream == NULL && stress_driver_raw()->stream_create(
                                  &stream, BERM_CU_STREAM_NON_BLOCKING) != BERM_CU_SUCCESS)
            bench_subject_fail(subject, "no stream");
        subject->streams[i] = stream;
    }
}

void bench_subject_open(bench_subject_t *subject, bench_options_t *options, size_t number,
                        const bench_plan_t *plan) {
    memset(subject, 0, sizeof *subject);
    int threads = plan->benchmark->threads;
    subject->ops = options->allocators[number];
    subject->kept = subject->ops->is_per_process ? &options->kept[number] : NULL;
    subject->instructions = subject->off_instructions = subject->host_bytes = -1;
    subject->left_ns = TIME_MAX_NS;
    subject->is_locked = threads > 1 && subject->ops != &stress_berm_ops;
    (void)pthread_mutex_init(&subject->lock, NULL);
    subject_create(subject, options, threads);
    for (int i = 0; i < threads && plan->slots > 0 && !subject->has_failed; i++)
        subject_fill(subject, plan, i);
    if (!subject->has_failed && plan->benchmark->kind == BENCH_MISS)
        (void)bench_miss_prepare(subject, plan);
    else if (!subject->has_failed && plan->benchmark->kind != BENCH_REMOTE)
        (void)bench_batch(subject, plan, berm__min_u64(plan->operations, WARM_STEPS_MAX));
}

static void streams_destroy(void **streams) {
    for (int i = 0; i < 2; i++)
        if (streams[i] != NULL)
            (void)stress_driver_raw()->stream_destroy(streams[i]);
}

void bench_end(bench_options_t *options) {
    for (size_t i = 0; i < options->allocator_count; i++) {
        bench_kept_t *kept = &options->kept[i];
        uint64_t live_blocks;
        if (kept->allocator == NULL)
            continue;
        options->allocators[i]->destroy(kept->allocator, &live_blocks);
        streams_destroy(kept->streams);
        *kept = (bench_kept_t){0};
    }
}

void bench_subject_close(bench_subject_t *subject, const bench_plan_t *plan) {
    for (int i = 0; i < 2; i++) {
        for (uint64_t j = 0; subject->slots[i] != NULL && j < plan->slots; j++) {
            const bench_block_t *block = &subject->slots[i][j];
            if (block->addr != 0 &&
                subject->ops->free(subject->allocator, block->addr, block->size_bytes,
                                   subject->streams[i]) != STRESS_OK)
                bench_subject_fail(subject, "a free failed");
        }
        free(subject->slots[i]);
        subject->slots[i] = NULL;
    }
    (void)pthread_mutex_destroy(&subject->lock);
    if (subject->kept != NULL) {
        subject->kept->allocator = subject->allocator;
        memcpy(subject->kept->streams, subject->streams, sizeof subject->streams);
        return;
    }
    uint64_t live_blocks = 0;
    if (subject->allocator != NULL)
        subject->ops->destroy(subject->allocator, &live_blocks);
    subject->allocator = NULL;
    if (live_blocks > 0)
        bench_subject_fail(subject, "blocks were live at the end by its own count");
    streams_destroy(subject->streams);
}

// --- one operation -------------------------------------------------------------------------------

static bool pair(bench_subject_t *subject, uint64_t size_bytes) {
    uint64_t addr = 0;
    return subject->ops->alloc(subject->allocator, size_bytes, subject->streams[0], &addr) ==
               STRESS_OK &&
           subject->ops->free(subject->allocator, addr, size_bytes, subject->streams[0]) ==
               STRESS_OK;
}

static bool step(bench_subject_t *subject, const bench_step_t *at) {
    bench_block_t *block = &subject->slots[0][at->slot];
    if (subject->ops->free(subject->allocator, block->addr, block->size_bytes,
                           subject->streams[0]) != STRESS_OK)
        return false;
    block->addr = 0;
    block->size_bytes = at->size_bytes;
    return subject->ops->alloc(subject->allocator, at->size_bytes, subject->streams[0],
                               &block->addr) == STRESS_OK;
}

bool bench_batch(bench_subject_t *subject, const bench_plan_t *plan, uint64_t operations) {
    bool is_good = true;
    uint64_t start_ns = meter_clock_ns();
    for (uint64_t i = 0; i < operations && is_good; i++) {
        is_good = plan->steps == NULL ? pair(subject, plan->benchmark->size_bytes)
                                      : step(subject, &plan->steps[i]);
        if (i % CLOCK_STEPS == CLOCK_STEPS - 1)
            is_good = time_take(subject, &start_ns) && is_good;
    }
    if (!is_good)
        bench_subject_fail(subject, "an allocation or a free failed");
    return is_good;
}

bool bench_singles(bench_subject_t *subject, const bench_plan_t *plan, uint64_t operations,
                   uint64_t clock_cost_ns) {
    bool is_good = true;
    uint64_t loop_start_ns = meter_clock_ns();
    for (uint64_t i = 0; i < operations && is_good; i++) {
        if (i % CLOCK_STEPS == CLOCK_STEPS - 1)
            is_good = time_take(subject, &loop_start_ns);
        uint64_t start_ns = meter_clock_ns();
        is_good = (plan->steps == NULL ? pair(subject, plan->benchmark->size_bytes)
                                       : step(subject, &plan->steps[i])) &&
                  is_good;
        uint64_t spent_ns = meter_clock_ns() - start_ns;
        histogram_add(&subject->times, spent_ns > clock_cost_ns ? spent_ns - clock_cost_ns : 0);
    }
    if (!is_good)
        bench_subject_fail(subject, "an allocation or a free failed");
    return is_good;
}
