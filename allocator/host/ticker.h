// SPDX-License-Identifier: Apache-2.0
// A thread that calls a function again and again, until it is stopped. Signals are blocked in it. A
// child of fork() does not have the thread; its ticker is of no use there and must be let be.
//
// Thread safety: wake from any thread; start and stop by one at a time.
#ifndef BERM_HOST_TICKER_H
#define BERM_HOST_TICKER_H

#include <stdbool.h>

#include "host/lock.h"

typedef struct berm_ticker {
    berm_mutex_t lock;
    berm_cond_t changed;
    pthread_t thread;
    bool is_running; // the caller's of start and stop
    // Under the lock.
    bool is_stopping, is_woken;
    // Constant while it runs. `tick` returns after how many nanoseconds it wants to be called
    // again; UINT64_MAX: when it is woken. It is called without a lock.
    uint64_t (*tick)(void *context);
    void *context;
} berm_ticker_t;

// False where the system has no thread to give. `name` is at most 15 characters.
bool berm__ticker_start(berm_ticker_t *ticker, const char *name, uint64_t (*tick)(void *context),
                        void *context);
// Makes the next call come at once. Nothing if it does not run.
void berm__ticker_wake(berm_ticker_t *ticker);
// Waits for the call that is running, and ends the thread. Nothing if it does not run.
void berm__ticker_stop(berm_ticker_t *ticker);

#endif
