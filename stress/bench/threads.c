// SPDX-License-Identifier: Apache-2.0
// The benchmarks with several threads: each with blocks of its own, and one that frees what another
// allocated. An allocator that is for one thread is called under one lock, as such allocators are.
//
// Layout: workers wait at a barrier, each on a processor of its own where the system has so many;
// the wall time runs from there to the last one's end. Producer and consumer share a ring of
// addresses, each with its own end of it; where one has to wait it yields the processor.
// Locks: the subject's, if it needs one. May fail: threads, contexts, the allocator.
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "berm_introspect.h"
#include "stress/baselines/baselines.h"
#include "stress/bench/meter.h"
#include "stress/bench/subject.h"
#include "stress/device.h"

enum {
    RING_SLOTS = 1024
};

typedef struct ring {
    _Atomic(uint64_t) addrs[RING_SLOTS]; // 0: empty
    _Atomic(bool) is_broken;             // one end gave up
} ring_t;

typedef struct worker {
    bench_subject_t *subject;
    const bench_plan_t *plan;
    pthread_barrier_t *barrier;
    ring_t *ring;
    int index;
    bool has_failed;
    uint64_t start_ns, end_ns;
} worker_t;

static stress_result_t subject_alloc(bench_subject_t *s, uint64_t size_bytes, void *stream,
                                     uint64_t *addr) {
    if (!s->is_locked)
        return s->ops->alloc(s->allocator, size_bytes, stream, addr);
    (void)pthread_mutex_lock(&s->lock);
    stress_result_t result = s->ops->alloc(s->allocator, size_bytes, stream, addr);
    (void)pthread_mutex_unlock(&s->lock);
    return result;
}

static stress_result_t subject_free(bench_subject_t *s, uint64_t addr, uint64_t size_bytes,
                                    void *stream) {
    if (!s->is_locked)
        return s->ops->free(s->allocator, addr, size_bytes, stream);
    (void)pthread_mutex_lock(&s->lock);
    stress_result_t result = s->ops->free(s->allocator, addr, size_bytes, stream);
    (void)pthread_mutex_unlock(&s->lock);
    return result;
}

static bool local_run(worker_t *w) {
    bench_subject_t *s = w->subject;
    void *stream = s->streams[w->index];
    for (uint64_t i = 0; i < w->plan->operations; i++) {
        const bench_step_t *at = &w->plan->steps[i];
        bench_block_t *block = &s->slots[w->index][at->slot];
        if (subject_free(s, block->addr, block->size_bytes, stream) != STRESS_OK)
            return false;
        *block = (bench_block_t){0, at->size_bytes};
        if (subject_alloc(s, at->size_bytes, stream, &block->addr) != STRESS_OK)
            return false;
    }
    return true;
}

static bool producer_run(worker_t *w) {
    for (uint64_t i = 0; i < w->plan->operations; i++) {
        uint64_t addr = 0;
        if (subject_alloc(w->subject, w->plan->benchmark->size_bytes, w->subject->streams[0],
                          &addr) != STRESS_OK)
            return false;
        _Atomic(uint64_t) *slot = &w->ring->addrs[i % RING_SLOTS];
        while (atomic_load_explicit(slot, memory_order_acquire) != 0) {
            if (atomic_load_explicit(&w->ring->is_broken, memory_order_relaxed))
                return false;
            (void)sched_yield();
        }
        atomic_store_explicit(slot, addr, memory_order_release);
    }
    return true;
}

static bool consumer_run(worker_t *w) {
    for (uint64_t i = 0; i < w->plan->operations; i++) {
        _Atomic(uint64_t) *slot = &w->ring->addrs[i % RING_SLOTS];
        uint64_t addr;
        while ((addr = atomic_load_explicit(slot, memory_order_acquire)) == 0) {
            if (atomic_load_explicit(&w->ring->is_broken, memory_order_relaxed))
                return false;
            (void)sched_yield();
        }
        if (subject_free(w->subject, addr, w->plan->benchmark->size_bytes,
                         w->subject->streams[0]) != STRESS_OK)
            return false;
        atomic_store_explicit(slot, 0, memory_order_release);
    }
    return true;
}

// The system starts threads where it likes, and moves them only after milliseconds: two of them may
// share a processor for a whole round.
static void processor_choose(int index) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &allowed) || index-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        (void)sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static void *worker_main(void *argument) {
    worker_t *w = argument;
    processor_choose(w->index);
    const stress_driver_t *d = stress_driver_raw();
    berm_cu_device_t device;
    berm_cu_context_t context = NULL;
    bool has_context = d->device_get(&device, stress_device_ordinal()) == BERM_CU_SUCCESS &&
                       d->ctx_retain(&context, device) == BERM_CU_SUCCESS;
    w->has_failed = !has_context || d->ctx_set_current(context) != BERM_CU_SUCCESS;
    (void)pthread_barrier_wait(w->barrier);
    w->start_ns = meter_clock_ns();
    if (!w->has_failed) {
        bool is_remote = w->plan->benchmark->kind == BENCH_REMOTE;
        w->has_failed = !(is_remote && w->index == 0 ? producer_run(w)
                          : is_remote                ? consumer_run(w)
                                                     : local_run(w));
    }
    w->end_ns = meter_clock_ns();
    if (w->has_failed)
        atomic_store_explicit(&w->ring->is_broken, true, memory_order_relaxed);
    if (has_context)
        (void)d->ctx_release(device);
    return NULL;
}

// What a broken round left in the ring.
static void ring_drain(bench_subject_t *subject, ring_t *ring, uint64_t size_bytes) {
    for (size_t i = 0; i < RING_SLOTS; i++) {
        uint64_t addr = atomic_load(&ring->addrs[i]);
        if (addr != 0)
            (void)subject->ops->free(subject->allocator, addr, size_bytes, subject->streams[0]);
    }
}

double bench_threads(bench_subject_t *subject, const bench_plan_t *plan, int count) {
    int started = 0;
    pthread_t threads[2];
    worker_t workers[2];
    pthread_barrier_t barrier;
    ring_t *ring = calloc(1, sizeof *ring);
    if (ring == NULL || pthread_barrier_init(&barrier, NULL, (unsigned)count) != 0) {
        free(ring);
        bench_subject_fail(subject, "no memory");
        return -1;
    }
    for (; started < count; started++) {
        workers[started] = (worker_t){
            .subject = subject, .plan = plan, .barrier = &barrier, .ring = ring, .index = started};
        if (pthread_create(&threads[started], NULL, worker_main, &workers[started]) != 0)
            break;
    }
    bool is_good = started == count;
    atomic_store(&ring->is_broken, !is_good);
    // One that started waits for the other, which could not be: this thread stands in.
    if (!is_good && started == 1)
        (void)pthread_barrier_wait(&barrier);
    uint64_t start_ns = UINT64_MAX, end_ns = 0;
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
        is_good = is_good && !workers[i].has_failed;
        start_ns = workers[i].start_ns < start_ns ? workers[i].start_ns : start_ns;
        end_ns = workers[i].end_ns > end_ns ? workers[i].end_ns : end_ns;
    }
    ring_drain(subject, ring, plan->benchmark->size_bytes);
    (void)pthread_barrier_destroy(&barrier);
    free(ring);
    if (is_good)
        return (double)(end_ns - start_ns);
    bench_subject_fail(subject, "a thread could not do its part");
    return -1;
}

// --- a monitor -----------------------------------------------------------------------------------

static void *reader_main(void *argument) {
    bench_reader_t *reader = argument;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!atomic_load_explicit(&reader->is_stopped, memory_order_relaxed)) {
        berm_stats_t stats = {.size = sizeof stats};
        if (berm_stats_read(stress_device_ordinal(), &stats) != BERM_OK)
            reader->has_failed = true;
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

bool bench_reader_start(bench_reader_t *reader, bench_subject_t *subject) {
    *reader = (bench_reader_t){0};
    if (subject->ops != &stress_berm_ops) {
        bench_subject_fail(subject, "no other thread may read its statistics meanwhile");
        return false;
    }
    if (pthread_create(&reader->thread, NULL, reader_main, reader) != 0) {
        bench_subject_fail(subject, "no thread");
        return false;
    }
    return true;
}

bool bench_reader_stop(bench_reader_t *reader, bench_subject_t *subject) {
    atomic_store(&reader->is_stopped, true);
    (void)pthread_join(reader->thread, NULL);
    if (reader->has_failed)
        bench_subject_fail(subject, "its statistics could not be read");
    return !reader->has_failed;
}

// --- what the machine does -----------------------------------------------------------------------

enum {
    MACHINE_PAIRS = 200000
};

typedef struct machine_worker {
    pthread_barrier_t *barrier;
    int index;
    double pair_ns;
} machine_worker_t;

static void *machine_main(void *argument) {
    machine_worker_t *w = argument;
    processor_choose(w->index);
    (void)pthread_barrier_wait(w->barrier);
    w->pair_ns = meter_mutex_pair_ns(MACHINE_PAIRS);
    return NULL;
}

// The slower one's mean of `count` threads at once, or -1.
static double machine_pair_ns(int count) {
    pthread_t threads[2];
    machine_worker_t workers[2];
    pthread_barrier_t barrier;
    int started = 0;
    if (pthread_barrier_init(&barrier, NULL, (unsigned)count) != 0)
        return -1;
    for (; started < count; started++) {
        workers[started] = (machine_worker_t){.barrier = &barrier, .index = started};
        if (pthread_create(&threads[started], NULL, machine_main, &workers[started]) != 0)
            break;
    }
    if (started == 1 && count == 2)
        (void)pthread_barrier_wait(&barrier);
    double slowest_ns = started == count ? 0 : -1;
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
        if (slowest_ns >= 0 && workers[i].pair_ns > slowest_ns)
            slowest_ns = workers[i].pair_ns;
    }
    (void)pthread_barrier_destroy(&barrier);
    return slowest_ns;
}

double bench_machine_scaling(void) {
    double one_ns = machine_pair_ns(1), two_ns = machine_pair_ns(2);
    return one_ns > 0 && two_ns > 0 ? 2 * one_ns / two_ns : -1;
}
