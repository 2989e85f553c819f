// SPDX-License-Identifier: Apache-2.0
// Clock, instruction counter and host bytes of the benchmarks: see meter.h.
//
// Instructions come from perf_event_open, which containers and kernel settings often forbid. The
// reference to jemalloc is weak: executables of a sanitizer build do not carry it.
// Locks: none; the counter belongs to the thread that opened it first. May fail: says so.
#include "stress/bench/meter.h"

#include <linux/perf_event.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern int mallctl(const char *name, void *old, size_t *old_length, void *new_, size_t new_length)
    __attribute__((weak));

uint64_t meter_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t meter_clock_cost_ns(void) {
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 200; i++) {
        uint64_t start_ns = meter_clock_ns();
        uint64_t spent_ns = meter_clock_ns() - start_ns;
        least_ns = spent_ns < least_ns ? spent_ns : least_ns;
    }
    return least_ns;
}

// -1: not permitted.
static int counter_open(void) {
    static int counter = -2;
    if (counter == -2) {
        struct perf_event_attr attributes = {
            .type = PERF_TYPE_HARDWARE,
            .size = sizeof attributes,
            .config = PERF_COUNT_HW_INSTRUCTIONS,
            .disabled = 1,
            .exclude_kernel = 1,
            .exclude_hv = 1,
        };
        counter = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    }
    return counter;
}

bool meter_instructions_start(void) {
    int counter = counter_open();
    return counter >= 0 && ioctl(counter, PERF_EVENT_IOC_RESET, 0) == 0 &&
           ioctl(counter, PERF_EVENT_IOC_ENABLE, 0) == 0;
}

bool meter_instructions_stop(uint64_t *count) {
    int counter = counter_open();
    return counter >= 0 && ioctl(counter, PERF_EVENT_IOC_DISABLE, 0) == 0 &&
           read(counter, count, sizeof *count) == (ssize_t)sizeof *count;
}

bool meter_host_bytes(uint64_t *bytes) {
    uint64_t epoch = 1;
    size_t allocated = 0, length = sizeof allocated;
    if (mallctl == NULL || mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl("stats.allocated", &allocated, &length, NULL, 0) != 0)
        return false;
    *bytes = allocated;
    return true;
}

double meter_mutex_pair_ns(uint64_t pairs) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    uint64_t start_ns = meter_clock_ns();
    for (uint64_t i = 0; i < pairs; i++) {
        (void)pthread_mutex_lock(&mutex);
        (void)pthread_mutex_unlock(&mutex);
    }
    return (double)(meter_clock_ns() - start_ns) / (double)pairs;
}

static int double_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double meter_median(double *values, uint32_t count) {
    if (count == 0)
        return -1;
    qsort(values, count, sizeof *values, double_compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
