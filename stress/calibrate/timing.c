// SPDX-License-Identifier: Apache-2.0
// Measures the host time of each driver call that berm uses. Fitting costs to it is left to
// costs.c.
//
// Time is the host's monotonic clock less what reading it costs, and on a simulated device its
// virtual clock. One repeat makes every call in every size once, on an idle device; the first is
// thrown away. Sizes are 1, 4 and 16 units (a unit is 2 MiB, or the granule where larger), and runs
// of 16 and 256 mappings of one unit each, so that what is per call, per mapping and per byte can
// be told apart. The device needs HANDLES + 16 units free.
//
// Bounds: STRESS_CALIBRATE_POINTS_MAX points of `repeats` samples. Locks: none; one thread.
// May fail: any driver call (what was made is given back), host memory for the samples.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/defs.h"
#include "stress/calibrate/calibrate.h"

enum {
    HANDLES = 256,
};

// As in the table of costs.c.
enum {
    CALL_RESERVE,
    CALL_ADDRESS_FREE,
    CALL_CREATE,
    CALL_RELEASE,
    CALL_MAP,
    CALL_SET_ACCESS,
    CALL_UNMAP,
    CALL_MALLOC,
    CALL_FREE,
    CALL_EVENT_RECORD,
    CALL_EVENT_QUERY,
    CALL_STREAM_WAIT,
    CALL_SYNCHRONIZE,
    CALL_MEM_INFO,
    CALL_OTHER,
};

typedef struct session {
    const stress_calibrate_driver_t *c;
    stress_calibrate_timing_t *timing;
    uint64_t *samples; // [point][repeat]
    unsigned repeats, repeat;
    bool is_kept; // not the first repeat
    uint64_t clock_ns;
    berm_cu_mem_handle_t handles[HANDLES];
    size_t handle_count;
    berm_cu_stream_t stream;
    berm_cu_event_t event;
    const char *failed; // the call that failed
    int result;
} session_t;

uint64_t stress_calibrate_now_ns(void) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim != NULL)
        return sim->now_ns();
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// What two readings of the clock in a row are apart.
static uint64_t clock_cost_ns(void) {
    uint64_t apart[101];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(apart); i++) {
        uint64_t start = stress_calibrate_now_ns();
        apart[i] = stress_calibrate_now_ns() - start;
    }
    qsort(apart, BERM_ARRAY_LENGTH(apart), sizeof apart[0], compare_u64);
    return apart[BERM_ARRAY_LENGTH(apart) / 2];
}

static void sample(session_t *s, int call, uint64_t mappings, uint64_t bytes, uint64_t ns) {
    stress_calibrate_timing_t *t = s->timing;
    size_t i = 0;
    while (i < t->count && (t->points[i].index != call || t->points[i].mappings != mappings ||
                            t->points[i].bytes != bytes))
        i++;
    if (!s->is_kept || i == STRESS_CALIBRATE_POINTS_MAX)
        return;
    if (i == t->count) {
        t->points[i] = (stress_calibrate_point_t){.call = stress_calibrate_call_name(call),
                                                  .function = stress_calibrate_call_function(call),
                                                  .index = call,
                                                  .mappings = mappings,
                                                  .bytes = bytes};
        t->count++;
    }
    s->samples[i * s->repeats + s->repeat] = ns > s->clock_ns ? ns - s->clock_ns : 0;
}

static bool check(session_t *s, const char *function, int result) {
    if (result == BERM_CU_SUCCESS)
        return true;
    if (s->failed == NULL) {
        s->failed = function;
        s->result = result;
    }
    return false;
}

// Makes a call, notes its time, and is false when it fails.
#define TIMED(ok, s, call, mappings, bytes, expression)                                            \
    do {                                                                                           \
        uint64_t timed_start_ = stress_calibrate_now_ns();                                         \
        int timed_result_ = (expression);                                                          \
        uint64_t timed_ns_ = stress_calibrate_now_ns() - timed_start_;                             \
        (ok) = check(s, stress_calibrate_call_function(call), timed_result_);                      \
        if (ok)                                                                                    \
            sample(s, call, mappings, bytes, timed_ns_);                                           \
    } while (0)

// One handle through its whole life.
static bool measure_single(session_t *s, uint64_t bytes) {
    const stress_driver_t *d = s->c->d;
    berm_cu_deviceptr_t addr = 0;
    berm_cu_mem_handle_t handle = 0;
    bool ok = false, is_ended = false;
    TIMED(ok, s, CALL_RESERVE, 0, bytes, d->address_reserve(&addr, bytes, 0, 0, 0));
    if (!ok)
        return false;
    TIMED(ok, s, CALL_CREATE, 0, bytes, d->mem_create(&handle, bytes, &s->c->prop, 0));
    if (ok) {
        TIMED(ok, s, CALL_MAP, 1, bytes, d->mem_map(addr, bytes, 0, handle, 0));
        if (ok) {
            TIMED(ok, s, CALL_SET_ACCESS, 1, bytes, d->set_access(addr, bytes, &s->c->access, 1));
            TIMED(is_ended, s, CALL_UNMAP, 1, bytes, d->mem_unmap(addr, bytes));
            ok = ok && is_ended;
        }
        TIMED(is_ended, s, CALL_RELEASE, 0, bytes, d->mem_release(handle));
        ok = ok && is_ended;
    }
    TIMED(is_ended, s, CALL_ADDRESS_FREE, 0, bytes, d->address_free(addr, bytes));
    return ok && is_ended;
}

// `count` handles of a unit side by side: one SetAccess and one unmap over all.
static bool measure_run(session_t *s, size_t count) {
    const stress_driver_t *d = s->c->d;
    uint64_t unit = s->c->unit_bytes, bytes = count * unit;
    berm_cu_deviceptr_t addr = 0;
    bool ok = false, is_ended = false;
    TIMED(ok, s, CALL_RESERVE, 0, bytes, d->address_reserve(&addr, bytes, 0, 0, 0));
    if (!ok)
        return false;
    size_t mapped = 0;
    while (mapped < count &&
           check(s, "cuMemMap", d->mem_map(addr + mapped * unit, unit, 0, s->handles[mapped], 0)))
        mapped++;
    ok = mapped == count;
    if (ok) {
        TIMED(ok, s, CALL_SET_ACCESS, count, bytes, d->set_access(addr, bytes, &s->c->access, 1));
        TIMED(is_ended, s, CALL_UNMAP, count, bytes, d->mem_unmap(addr, bytes));
        ok = ok && is_ended;
    }
    for (size_t i = 0; i < mapped && !is_ended; i++)
        (void)d->mem_unmap(addr + i * unit, unit);
    TIMED(is_ended, s, CALL_ADDRESS_FREE, 0, bytes, d->address_free(addr, bytes));
    return ok && is_ended;
}

static bool measure_plain(session_t *s, uint64_t bytes) {
    berm_cu_deviceptr_t addr = 0;
    bool ok = false;
    TIMED(ok, s, CALL_MALLOC, 0, bytes, s->c->d->mem_alloc(&addr, bytes));
    if (ok)
        TIMED(ok, s, CALL_FREE, 0, bytes, s->c->d->mem_free(addr));
    return ok;
}

// Asked until the event has passed; what is measured is the answer "yes".
static bool measure_query(session_t *s) {
    bool ok = check(s, "cuEventSynchronize", s->c->d->event_synchronize(s->event));
    if (ok)
        TIMED(ok, s, CALL_EVENT_QUERY, 0, 0, s->c->d->event_query(s->event));
    return ok;
}

static bool measure_order(session_t *s) {
    const stress_driver_t *d = s->c->d;
    size_t free_bytes = 0, total_bytes = 0;
    bool ok = false;
    TIMED(ok, s, CALL_EVENT_RECORD, 0, 0, d->event_record(s->event, s->stream));
    if (ok)
        TIMED(ok, s, CALL_STREAM_WAIT, 0, 0, d->stream_wait_event(s->stream, s->event, 0));
    ok = ok && measure_query(s);
    ok = ok && check(s, "cuStreamSynchronize", d->stream_synchronize(s->stream));
    if (ok)
        TIMED(ok, s, CALL_SYNCHRONIZE, 0, 0, d->stream_synchronize(s->stream));
    if (ok)
        TIMED(ok, s, CALL_MEM_INFO, 0, 0, d->mem_get_info(&free_bytes, &total_bytes));
    if (ok)
        TIMED(ok, s, CALL_OTHER, 0, 0, d->ctx_set_current(s->c->context));
    return ok;
}

static bool measure_once(session_t *s) {
    static const unsigned sizes[] = {1, 4, 16};
    bool ok = true;
    for (size_t i = 0; ok && i < BERM_ARRAY_LENGTH(sizes); i++)
        ok = measure_single(s, sizes[i] * s->c->unit_bytes);
    ok = ok && measure_run(s, 16) && measure_run(s, HANDLES);
    for (size_t i = 0; ok && i < BERM_ARRAY_LENGTH(sizes); i++)
        ok = measure_plain(s, sizes[i] * s->c->unit_bytes);
    return ok && measure_order(s);
}

static bool session_begin(session_t *s) {
    const stress_driver_t *d = s->c->d;
    bool ok =
        check(s, "cuStreamCreate", d->stream_create(&s->stream, BERM_CU_STREAM_NON_BLOCKING)) &&
        check(s, "cuEventCreate", d->event_create(&s->event, BERM_CU_EVENT_DISABLE_TIMING));
    while (ok && s->handle_count < HANDLES) {
        ok = check(s, "cuMemCreate",
                   d->mem_create(&s->handles[s->handle_count], s->c->unit_bytes, &s->c->prop, 0));
        s->handle_count += ok;
    }
    return ok;
}

static void session_end(session_t *s) {
    for (size_t i = 0; i < s->handle_count; i++)
        (void)s->c->d->mem_release(s->handles[i]);
    if (s->event != NULL)
        (void)s->c->d->event_destroy(s->event);
    if (s->stream != NULL)
        (void)s->c->d->stream_destroy(s->stream);
}

static int compare_points(const void *a, const void *b) {
    const stress_calibrate_point_t *x = a, *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->mappings > y->mappings) - (x->mappings < y->mappings);
}

static void session_sum_up(session_t *s) {
    stress_calibrate_timing_t *t = s->timing;
    for (size_t i = 0; i < t->count; i++) {
        uint64_t *samples = s->samples + i * s->repeats;
        qsort(samples, s->repeats, sizeof samples[0], compare_u64);
        t->points[i].median_ns = samples[s->repeats / 2];
        t->points[i].p99_ns = samples[(uint64_t)s->repeats * 99 / 100];
    }
    qsort(t->points, t->count, sizeof t->points[0], compare_points);
    stress_calibrate_fit(t);
}

int stress_calibrate_measure(const stress_calibrate_driver_t *c, unsigned repeats,
                             void (*progress)(uint64_t done, uint64_t total),
                             stress_calibrate_timing_t *timing, char *error,
                             size_t error_capacity) {
    session_t s = {.c = c, .timing = timing, .repeats = repeats, .clock_ns = clock_cost_ns()};
    memset(timing, 0, sizeof *timing);
    timing->repeats = repeats;
    s.samples = calloc((size_t)STRESS_CALIBRATE_POINTS_MAX * repeats, sizeof s.samples[0]);
    if (s.samples == NULL) {
        (void)snprintf(error, error_capacity, "no host memory for %u repeats", repeats);
        return -1;
    }
    bool ok = session_begin(&s);
    ok = ok && measure_once(&s);
    s.is_kept = true;
    for (; ok && s.repeat < repeats; s.repeat++) {
        ok = measure_once(&s);
        if (ok && progress != NULL)
            progress(s.repeat + 1, repeats);
    }
    session_end(&s);
    if (ok)
        session_sum_up(&s);
    free(s.samples);
    if (ok)
        return 0;
    uint64_t mib = (HANDLES + 16) * c->unit_bytes >> 20;
    (void)snprintf(error, error_capacity,
                   "%s failed with CUresult %d while measuring; %llu MiB of device memory must be "
                   "free",
                   s.failed != NULL ? s.failed : "a call", s.result, (unsigned long long)mib);
    return -1;
}
