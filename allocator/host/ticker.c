// SPDX-License-Identifier: Apache-2.0
// The background thread: see ticker.h.
#include "host/ticker.h"

#include <signal.h>

static void *ticker_main(void *argument) {
    berm_ticker_t *ticker = argument;
    berm__mutex_lock(&ticker->lock);
    while (!ticker->is_stopping) {
        ticker->is_woken = false;
        berm__mutex_unlock(&ticker->lock);
        uint64_t rest_ns = ticker->tick(ticker->context);
        berm__mutex_lock(&ticker->lock);
        if (!ticker->is_woken && !ticker->is_stopping)
            berm__cond_wait(&ticker->changed, &ticker->lock, rest_ns);
    }
    berm__mutex_unlock(&ticker->lock);
    return NULL;
}

bool berm__ticker_start(berm_ticker_t *ticker, const char *name, uint64_t (*tick)(void *context),
                        void *context) {
    berm__mutex_init(&ticker->lock, BERM_LOCK_TICKER, "ticker");
    berm__cond_init(&ticker->changed);
    ticker->is_stopping = ticker->is_woken = false;
    ticker->tick = tick;
    ticker->context = context;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    ticker->is_running = pthread_create(&ticker->thread, NULL, ticker_main, ticker) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ticker->is_running) {
        (void)pthread_setname_np(ticker->thread, name);
    } else {
        berm__cond_destroy(&ticker->changed);
        berm__mutex_destroy(&ticker->lock);
    }
    return ticker->is_running;
}

void berm__ticker_wake(berm_ticker_t *ticker) {
    if (!ticker->is_running)
        return;
    berm__mutex_lock(&ticker->lock);
    ticker->is_woken = true;
    berm__cond_signal(&ticker->changed);
    berm__mutex_unlock(&ticker->lock);
}

void berm__ticker_stop(berm_ticker_t *ticker) {
    if (!ticker->is_running)
        return;
    berm__mutex_lock(&ticker->lock);
    ticker->is_stopping = true;
    berm__cond_signal(&ticker->changed);
    berm__mutex_unlock(&ticker->lock);
    (void)pthread_join(ticker->thread, NULL);
    ticker->is_running = false;
    berm__cond_destroy(&ticker->changed);
    berm__mutex_destroy(&ticker->lock);
}
