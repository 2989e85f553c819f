// SPDX-License-Identifier: Apache-2.0
// Ranked mutexes over pthread ones. In debug builds each thread keeps the locks it holds, sorted by
// rank since they are taken in rising rank, and each mutex the mark of its holder.
//
// L1  a thread's list of held locks rises strictly in rank, so it never has more than one per rank
//
// A broken rule aborts with both names; nothing else can fail.
#include "host/lock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/insist.h"

#if BERM_CHECK_LEVEL >= 1

static const char *const rank_names[] = {
    "INSTANCE", "ROUTE", "DEVICE", "STREAM",   "POOL", "SEGMENT",
    "FIGURES",  "RING",  "TICKER", "CALLBACK", "HOST", "LOG",
};

enum {
    RANK_COUNT = BERM_LOCK_LOG + 1
};

_Static_assert(BERM_ARRAY_LENGTH(rank_names) == RANK_COUNT, "a name for each rank");

typedef struct held_locks {
    unsigned count;
    const berm_mutex_t *locks[RANK_COUNT]; // L1
} held_locks_t;

static _Thread_local held_locks_t held; // its address is the mark of the thread

static void lock_complain(const char *what, const berm_mutex_t *mutex, const berm_mutex_t *other) {
    char text[256];
    (void)snprintf(text, sizeof text, "%s \"%s\" (rank %s) while \"%s\" (rank %s) is held", what,
                   mutex->name, rank_names[mutex->rank], other->name, rank_names[other->rank]);
    berm__insist_fail(__FILE__, __LINE__, "lock order", text);
}

static void held_check(berm_mutex_t *mutex) {
    if (atomic_load_explicit(&mutex->owner, memory_order_relaxed) == &held)
        return;
    char text[256];
    (void)snprintf(text, sizeof text, "\"%s\" (rank %s) is not held by this thread", mutex->name,
                   rank_names[mutex->rank]);
    berm__insist_fail(__FILE__, __LINE__, "lock held", text);
}

static void lock_before(const berm_mutex_t *mutex) {
    const berm_mutex_t *last = held.count > 0 ? held.locks[held.count - 1] : NULL;
    if (last != NULL && last->rank >= mutex->rank)
        lock_complain(last == mutex ? "taking again" : "taking", mutex, last);
}

static void lock_after(berm_mutex_t *mutex) {
    held.locks[held.count++] = mutex;
    atomic_store_explicit(&mutex->owner, &held, memory_order_relaxed);
}

static void lock_also_before(const berm_mutex_t *mutex) {
    bool is_device_held = false;
    for (unsigned i = 0; i < held.count; i++)
        is_device_held |= held.locks[i]->rank == BERM_LOCK_DEVICE;
    if (!is_device_held)
        lock_before(mutex);
}

static void lock_also_after(berm_mutex_t *mutex) {
    atomic_store_explicit(&mutex->owner, &held, memory_order_relaxed);
}

static void unlock_also_before(berm_mutex_t *mutex) {
    held_check(mutex);
    atomic_store_explicit(&mutex->owner, NULL, memory_order_relaxed);
}

static void unlock_before(berm_mutex_t *mutex) {
    held_check(mutex);
    unsigned at = 0;
    while (held.locks[at] != mutex)
        at++;
    for (held.count--; at < held.count; at++)
        held.locks[at] = held.locks[at + 1];
    atomic_store_explicit(&mutex->owner, NULL, memory_order_relaxed);
}

#else

static void held_check(berm_mutex_t *mutex) {
    (void)mutex;
}

static void lock_before(const berm_mutex_t *mutex) {
    (void)mutex;
}

static void lock_after(berm_mutex_t *mutex) {
    (void)mutex;
}

static void unlock_before(berm_mutex_t *mutex) {
    (void)mutex;
}

static void lock_also_before(const berm_mutex_t *mutex) {
    (void)mutex;
}

static void lock_also_after(berm_mutex_t *mutex) {
    (void)mutex;
}

static void unlock_also_before(berm_mutex_t *mutex) {
    (void)mutex;
}

#endif

void berm__mutex_init(berm_mutex_t *mutex, berm_lock_rank_t rank, const char *name) {
    // Adaptive: sections are short, so a waiter spins a little before it sleeps in the kernel.
    pthread_mutexattr_t attributes;
    int failed = pthread_mutexattr_init(&attributes);
    failed |= pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    failed |= pthread_mutex_init(&mutex->mutex, &attributes);
    BERM_INSIST(failed == 0, "mutex init");
    (void)pthread_mutexattr_destroy(&attributes);
    mutex->rank = rank;
    mutex->name = name;
    atomic_init(&mutex->owner, NULL);
}

void berm__mutex_destroy(berm_mutex_t *mutex) {
    int failed = pthread_mutex_destroy(&mutex->mutex);
    BERM_INSIST(failed == 0, "a mutex is free when it is destroyed");
}

BERM_NO_THREAD_ANALYSIS void berm__mutex_lock(berm_mutex_t *mutex) {
    lock_before(mutex);
    int failed = pthread_mutex_lock(&mutex->mutex);
    BERM_INSIST(failed == 0, "mutex lock");
    lock_after(mutex);
}

BERM_NO_THREAD_ANALYSIS void berm__mutex_unlock(berm_mutex_t *mutex) {
    unlock_before(mutex);
    int failed = pthread_mutex_unlock(&mutex->mutex);
    BERM_INSIST(failed == 0, "mutex unlock");
}

BERM_NO_THREAD_ANALYSIS bool berm__mutex_trylock(berm_mutex_t *mutex) {
    lock_before(mutex);
    int failed = pthread_mutex_trylock(&mutex->mutex);
    BERM_INSIST(failed == 0 || failed == EBUSY, "mutex trylock");
    if (failed == 0)
        lock_after(mutex);
    return failed == 0;
}

BERM_NO_THREAD_ANALYSIS void berm__mutex_lock_also(berm_mutex_t *mutex) {
    lock_also_before(mutex);
    int failed = pthread_mutex_lock(&mutex->mutex);
    BERM_INSIST(failed == 0, "mutex lock");
    lock_also_after(mutex);
}

BERM_NO_THREAD_ANALYSIS void berm__mutex_unlock_also(berm_mutex_t *mutex) {
    unlock_also_before(mutex);
    int failed = pthread_mutex_unlock(&mutex->mutex);
    BERM_INSIST(failed == 0, "mutex unlock");
}

BERM_NO_THREAD_ANALYSIS void berm__mutex_assert_held(berm_mutex_t *mutex) {
    held_check(mutex);
}

// --- conditions --------------------------------------------------------------------------------

void berm__cond_init(berm_cond_t *cond) {
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    failed |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    failed |= pthread_cond_init(&cond->cond, &attributes);
    BERM_INSIST(failed == 0, "condition init");
    (void)pthread_condattr_destroy(&attributes);
}

void berm__cond_destroy(berm_cond_t *cond) {
    (void)pthread_cond_destroy(&cond->cond);
}

void berm__cond_signal(berm_cond_t *cond) {
    (void)pthread_cond_signal(&cond->cond);
}

void berm__cond_broadcast(berm_cond_t *cond) {
    (void)pthread_cond_broadcast(&cond->cond);
}

BERM_NO_THREAD_ANALYSIS void berm__cond_wait(berm_cond_t *cond, berm_mutex_t *mutex,
                                             uint64_t timeout_ns) {
    const uint64_t second_ns = 1000000000;
    unlock_before(mutex);
    if (timeout_ns == UINT64_MAX) {
        (void)pthread_cond_wait(&cond->cond, &mutex->mutex);
    } else {
        struct timespec until;
        int failed = clock_gettime(CLOCK_MONOTONIC, &until);
        BERM_INSIST(failed == 0, "the system has a monotonic clock");
        uint64_t fraction_ns = (uint64_t)until.tv_nsec + timeout_ns % second_ns;
        until.tv_sec += (time_t)(timeout_ns / second_ns + fraction_ns / second_ns);
        until.tv_nsec = (long)(fraction_ns % second_ns);
        failed = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &until);
        BERM_INSIST(failed == 0 || failed == ETIMEDOUT, "a timed wait");
    }
    lock_before(mutex);
    lock_after(mutex);
}
