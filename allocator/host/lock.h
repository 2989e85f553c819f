// SPDX-License-Identifier: Apache-2.0
// Mutexes with ranks. A thread takes locks in strictly rising rank only (docs/locking.md); debug
// builds (BERM_CHECK_LEVEL >= 1) check that, and abort with the names of both locks if it is
// broken. Under clang the attributes let -Wthread-safety check who holds what.
#ifndef BERM_HOST_LOCK_H
#define BERM_HOST_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/defs.h"

#if defined(__clang__)
#define BERM_LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define BERM_LOCK_ATTRIBUTE(x)
#endif

// For variables at file scope (clang resolves no sibling members in C): protected by the mutex m.
// For functions: the caller holds m.
#define BERM_GUARDED_BY(m)      BERM_LOCK_ATTRIBUTE(guarded_by(m))
#define BERM_REQUIRES(m)        BERM_LOCK_ATTRIBUTE(requires_capability(m))
#define BERM_ACQUIRES(m)        BERM_LOCK_ATTRIBUTE(acquire_capability(m))
#define BERM_RELEASES(m)        BERM_LOCK_ATTRIBUTE(release_capability(m))
#define BERM_ASSERTS_HELD(m)    BERM_LOCK_ATTRIBUTE(assert_capability(m))
#define BERM_NO_THREAD_ANALYSIS BERM_LOCK_ATTRIBUTE(no_thread_safety_analysis)

// Outermost first.
typedef enum berm_lock_rank {
    BERM_LOCK_INSTANCE, // start, end and options of the process-wide instance
    BERM_LOCK_ROUTE,    // the list of routes
    BERM_LOCK_DEVICE,  // a device's slow path: physical memory, events, lists of pools and segments
    BERM_LOCK_STREAM,  // the list of a device's streams
    BERM_LOCK_POOL,    // free ranges and blocks of one pool
    BERM_LOCK_SEGMENT, // writers of the address directory
    BERM_LOCK_FIGURES, // a device's figures
    BERM_LOCK_RING,    // the chunks of the event ring
    BERM_LOCK_TICKER,  // start and end of a background thread
    BERM_LOCK_CALLBACK, // the application's callbacks, and NVML
    BERM_LOCK_HOST,     // host memory
    BERM_LOCK_LOG,      // leaf
} berm_lock_rank_t;

typedef struct BERM_LOCK_ATTRIBUTE(capability("mutex")) berm_mutex {
    pthread_mutex_t mutex;
    berm_lock_rank_t rank; // constant after init
    const char *name;      // constant after init
    _Atomic(void *) owner; // debug builds: mark of the holding thread; NULL when free
} berm_mutex_t;

// For a mutex with static storage; needs no destroy.
#define BERM_MUTEX_INITIALIZER(rank_, name_)                                                       \
    { PTHREAD_MUTEX_INITIALIZER, rank_, name_, NULL }

// `name` is a static string. Cannot fail.
void berm__mutex_init(berm_mutex_t *mutex, berm_lock_rank_t rank, const char *name);
void berm__mutex_destroy(berm_mutex_t *mutex);
void berm__mutex_lock(berm_mutex_t *mutex) BERM_ACQUIRES(mutex);
void berm__mutex_unlock(berm_mutex_t *mutex) BERM_RELEASES(mutex);
// Takes the mutex if nobody has it. Order cannot deadlock here, but is checked all the same.
BERM_NODISCARD bool berm__mutex_trylock(berm_mutex_t *mutex)
    BERM_LOCK_ATTRIBUTE(try_acquire_capability(true, mutex));

// One more of a rank of which others are held already: for who stops all pools of a device, which
// is allowed to one thread at a time, the one that holds the device's lock. Given back by the
// unlock of the same kind.
void berm__mutex_lock_also(berm_mutex_t *mutex) BERM_NO_THREAD_ANALYSIS;
void berm__mutex_unlock_also(berm_mutex_t *mutex) BERM_NO_THREAD_ANALYSIS;

// To sleep on, with one mutex; timed by the system's monotonic clock.
typedef struct berm_cond {
    pthread_cond_t cond;
} berm_cond_t;

void berm__cond_init(berm_cond_t *cond);
void berm__cond_destroy(berm_cond_t *cond);
void berm__cond_signal(berm_cond_t *cond);
void berm__cond_broadcast(berm_cond_t *cond);
// Gives the mutex back, sleeps until a signal or for `timeout_ns` (UINT64_MAX: no end), takes it
// again. It may wake for no reason. No other lock is held.
void berm__cond_wait(berm_cond_t *cond, berm_mutex_t *mutex, uint64_t timeout_ns)
    BERM_REQUIRES(mutex);

// Debug builds: aborts unless this thread holds the mutex. Otherwise nothing.
void berm__mutex_assert_held(berm_mutex_t *mutex) BERM_ASSERTS_HELD(mutex);

#endif
