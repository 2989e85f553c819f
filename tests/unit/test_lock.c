// SPDX-License-Identifier: Apache-2.0
// host/lock.h: exclusion always; the order checker where it is compiled in.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/insist.h"
#include "host/lock.h"

static berm_mutex_t pool = BERM_MUTEX_INITIALIZER(BERM_LOCK_POOL, "a pool");
static uint64_t counter;

// Most tests break the rules that clang's analysis checks, so it does not see their locking.
static BERM_NO_THREAD_ANALYSIS void lock_take(berm_mutex_t *mutex) {
    berm__mutex_lock(mutex);
}

static BERM_NO_THREAD_ANALYSIS void lock_give(berm_mutex_t *mutex) {
    berm__mutex_unlock(mutex);
}

static void *thread_count(void *unused) {
    for (int i = 0; i < 20000; i++) {
        lock_take(&pool);
        counter++;
        lock_give(&pool);
    }
    return unused;
}

Test(lock, excludes) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert(pthread_create(&threads[i], NULL, thread_count, NULL) == 0);
    for (int i = 0; i < 4; i++)
        cr_assert(pthread_join(threads[i], NULL) == 0);
    cr_assert(counter == 80000);
}

Test(lock, init_and_destroy) {
    berm_mutex_t mutex;
    for (int i = 0; i < 3; i++) {
        berm__mutex_init(&mutex, BERM_LOCK_STREAM, "a stream");
        lock_take(&mutex);
        berm__mutex_assert_held(&mutex);
        lock_give(&mutex);
        berm__mutex_destroy(&mutex);
    }
}

// Every rank in order, given back in another one.
Test(lock, rising_ranks_and_any_order_of_unlocks) {
    enum {
        COUNT = BERM_LOCK_LOG + 1
    };
    berm_mutex_t mutexes[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        berm__mutex_init(&mutexes[i], (berm_lock_rank_t)i, "ranked");
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++)
            lock_take(&mutexes[i]);
        for (unsigned i = 0; i < COUNT; i++)
            lock_give(&mutexes[(i + COUNT / 2) % COUNT]);
    }
    for (unsigned i = 0; i < COUNT; i++)
        berm__mutex_destroy(&mutexes[i]);
}

static void *thread_try(void *was_taken) {
    *(bool *)was_taken = berm__mutex_trylock(&pool);
    if (*(bool *)was_taken)
        lock_give(&pool);
    return NULL;
}

static bool other_thread_gets_it(void) {
    pthread_t thread;
    bool was_taken = false;
    cr_assert(pthread_create(&thread, NULL, thread_try, &was_taken) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    return was_taken;
}

Test(lock, trying_does_not_wait) {
    lock_take(&pool);
    cr_assert(!other_thread_gets_it());
    lock_give(&pool);
    cr_assert(other_thread_gets_it());
}

// Many of one rank, for who holds the device's; they exclude as the others do.
Test(lock, all_pools_of_a_device) {
    berm_mutex_t device, more[20];
    berm__mutex_init(&device, BERM_LOCK_DEVICE, "device");
    lock_take(&device);
    berm__mutex_lock_also(&pool);
    for (int i = 0; i < 20; i++) {
        berm__mutex_init(&more[i], BERM_LOCK_POOL, "another pool");
        berm__mutex_lock_also(&more[i]);
    }
    cr_assert(!other_thread_gets_it());
    for (int i = 0; i < 20; i++)
        berm__mutex_unlock_also(&more[i]);
    berm__mutex_unlock_also(&pool);
    lock_give(&device);
    cr_assert(other_thread_gets_it());
}

Test(lock, destroy_while_held_aborts, .signal = SIGABRT) {
    berm_mutex_t mutex;
    berm__mutex_init(&mutex, BERM_LOCK_POOL, "held");
    lock_take(&mutex);
    berm__mutex_destroy(&mutex);
}

#if BERM_CHECK_LEVEL >= 1

static berm_mutex_t figures = BERM_MUTEX_INITIALIZER(BERM_LOCK_FIGURES, "the figures");
static int saved_stderr[2];

// The failure message is written to a pipe, read back by a handler of the abort.
static void on_abort(int signal_number) {
    char text[512];
    ssize_t length = read(saved_stderr[0], text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    bool both = strstr(text, "a pool") != NULL && strstr(text, "the figures") != NULL &&
                strstr(text, "POOL") != NULL && strstr(text, "FIGURES") != NULL;
    _exit(both && signal_number == SIGABRT ? 42 : 43);
}

Test(lock, falling_rank_names_both_locks, .exit_code = 42) {
    cr_assert(pipe(saved_stderr) == 0 && dup2(saved_stderr[1], STDERR_FILENO) >= 0);
    (void)signal(SIGABRT, on_abort);
    lock_take(&figures);
    lock_take(&pool);
}

Test(lock, equal_rank_aborts, .signal = SIGABRT) {
    berm_mutex_t other;
    berm__mutex_init(&other, BERM_LOCK_POOL, "another pool");
    lock_take(&pool);
    lock_take(&other);
}

Test(lock, several_pools_without_the_device_abort, .signal = SIGABRT) {
    berm_mutex_t other;
    berm__mutex_init(&other, BERM_LOCK_POOL, "another pool");
    lock_take(&pool);
    berm__mutex_lock_also(&other);
}

Test(lock, the_same_lock_twice_aborts, .signal = SIGABRT) {
    lock_take(&pool);
    lock_take(&pool);
}

Test(lock, unlock_without_lock_aborts, .signal = SIGABRT) {
    lock_give(&pool);
}

Test(lock, assert_held_without_lock_aborts, .signal = SIGABRT) {
    berm__mutex_assert_held(&pool);
}

static void *thread_lock(void *unused) {
    lock_take(&figures);
    return unused;
}

Test(lock, held_by_another_thread_is_not_held, .signal = SIGABRT) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_lock, NULL) == 0 && pthread_join(thread, NULL) == 0)
        berm__mutex_assert_held(&figures);
}

Test(lock, out_of_order_unlock_keeps_the_check, .signal = SIGABRT) {
    berm_mutex_t device;
    berm__mutex_init(&device, BERM_LOCK_DEVICE, "device");
    lock_take(&device);
    lock_take(&figures);
    lock_give(&device);
    lock_take(&pool);
}

#endif
