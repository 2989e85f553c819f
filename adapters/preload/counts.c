// SPDX-License-Identifier: Apache-2.0
// The counts: see counts.h. The line at exit calls no driver, and is written while other threads
// may still be at work.
#include "counts.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "berm_introspect.h"
#include "option.h"

enum {
    COUNT_DEVICES_MAX = 64
};

static atomic_uint_fast64_t counts[COUNT_KINDS];
static pid_t counts_of; // the process that asked for the line; its forked children print none

static uint64_t read_count(preload_count_t kind) {
    return atomic_load_explicit(&counts[kind], memory_order_relaxed);
}

static void counts_print(void) {
    uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0, live = 0;
    if (getpid() != counts_of)
        return;
    for (int device = 0; device < COUNT_DEVICES_MAX; device++) {
        berm_stats_t stats = BERM_STATS_INIT;
        if (berm_stats_read(device, &stats) != BERM_OK)
            break;
        peak_allocated_bytes += stats.allocated_bytes.peak;
        peak_reserved_bytes += stats.reserved_bytes.peak;
        live += stats.blocks.current;
    }
    PRELOAD_SAY("served %" PRIu64 " requests of %" PRIu64 " bytes, refused %" PRIu64
                ", passed %" PRIu64 " to the driver; frees: served %" PRIu64 ", refused %" PRIu64
                ", passed %" PRIu64 "; %" PRIu64
                " blocks live; peak allocated %.1f MiB, reserved %.1f MiB",
                read_count(COUNT_SERVED), read_count(COUNT_SERVED_BYTES), read_count(COUNT_REFUSED),
                read_count(COUNT_PASSED), read_count(COUNT_FREED), read_count(COUNT_FREES_REFUSED),
                read_count(COUNT_FREES_PASSED), live, (double)peak_allocated_bytes / 0x1p20,
                (double)peak_reserved_bytes / 0x1p20);
}

static void counts_begin(void) {
    preload_options_complain();
    counts_of = getpid();
    if (preload_options()->prints_stats)
        (void)atexit(counts_print);
}

void preload_count(preload_count_t kind, uint64_t by) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, counts_begin);
    atomic_fetch_add_explicit(&counts[kind], by, memory_order_relaxed);
}
