// SPDX-License-Identifier: Apache-2.0
// Runs a trace through an allocator: see replay.h. Modelled use of the blocks is work.c, the map of
// live blocks shadow.c, the JSON replay_emit.c.
//
// The clock is read directly around alloc and free; checks, figures and modelled use are outside.
// Bounds: O(log live) an event, and an audit's walk where checks ask for it; 8 bytes of host memory
// for each block of the trace.
// Locks: none; one thread. May fail: the device cannot be made, the allocator not created: nothing
// remains then.
#include "stress/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "stress/child.h"
#include "stress/histogram.h"
#include "stress/shadow.h"

enum {
    PROGRESS_EVENTS = 8192,
    AUDITS_A_REPEAT = 20,
    PLANNED_ABOVE_BYTES = 64 << 10,
};

typedef struct replay {
    const trace_t *trace;
    const stress_replay_options_t *options;
    const stress_allocator_ops_t *ops;
    stress_replay_result_t *result;
    stress_allocator_t *allocator;
    stress_work_t *work;
    uint64_t *addrs; // of each block; 0 while not live
    shadow_t shadow;
    histogram_t times;
    uint64_t clock_cost_ns;
    uint64_t peak_event;     // the first event after which live is at its peak
    uint64_t large_requests; // of the trace: what plans are for
    uint32_t main_stream;    // the one with most bytes
    uint64_t live_bytes;
    uint64_t audit_every;
    uint64_t hazards_seen;        // looked at so far, where the run is to stop at one
    stress_work_own_t base_spent; // before the allocator was made
    simcuda_ledger_t base_ledger;
} replay_t;

void stress_replay_options_default(stress_replay_options_t *options) {
    *options = (stress_replay_options_t){
        .conf = "",
        .headroom_pct = -1,
        .limit_bytes = UINT64_MAX,
        .repeats = 1,
        .check = STRESS_CHECK_AUDIT,
        .audit_every = 1,
        .work = {.work_ns = 5000, .host_ns = 4000, .lag_ns = 200000},
    };
}

static uint64_t clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// What reading the clock twice costs at least: it is taken off each time.
static uint64_t clock_cost(void) {
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 200; i++) {
        uint64_t start_ns = clock_ns();
        uint64_t spent_ns = clock_ns() - start_ns;
        if (spent_ns < least_ns)
            least_ns = spent_ns;
    }
    return least_ns;
}

static void replay_time_add(replay_t *r, uint64_t spent_ns) {
    histogram_add(&r->times, spent_ns > r->clock_cost_ns ? spent_ns - r->clock_cost_ns : 0);
}

static void replay_check_failed(replay_t *r, uint64_t event, const char *text) {
    stress_replay_result_t *result = r->result;
    if (result->check_failures++ == 0)
        (void)snprintf(result->first_check_failure, sizeof result->first_check_failure,
                       "event %" PRIu64 ": %.200s", event, text);
}

static bool replay_fail(replay_t *r, uint64_t event, const char *what, uint64_t size_bytes) {
    if (r->result->failure[0] == '\0')
        (void)snprintf(r->result->failure, sizeof r->result->failure,
                       "event %" PRIu64 ": %s of %" PRIu64 " byte%s failed", event, what,
                       size_bytes, BERM_PLURAL(size_bytes));
    return false;
}

// What the allocator alone has cost since the device was made.
static stress_work_own_t replay_spent(const replay_t *r) {
    stress_work_own_t own = stress_work_own(r->work), spent = {0};
    stress_calls_t calls = stress_device_calls();
    spent.calls = stress_calls_minus(&calls, &own.calls);
    spent.driver_ns = stress_device_driver_ns() - own.driver_ns;
    const stress_simcuda_t *sim = stress_simcuda();
    spent.wait_ns = sim != NULL ? sim->wait_ns() - own.wait_ns : 0;
    return spent;
}

// --- what the trace says in advance --------------------------------------------------------------

static int replay_survey(replay_t *r) {
    const trace_t *trace = r->trace;
    uint64_t *stream_bytes = calloc(trace->stream_count + 1, sizeof *stream_bytes);
    if (stream_bytes == NULL)
        return -1;
    uint64_t live_bytes = 0, peak_bytes = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const trace_event_t *event = &trace->events[i];
        r->result->source_oom_events += event->op == TRACE_OOM;
        if (event->op == TRACE_FREE)
            live_bytes -= trace->blocks[event->block].size_bytes;
        if (event->op != TRACE_ALLOC)
            continue;
        const trace_block_t *block = &trace->blocks[event->block];
        r->large_requests += block->size_bytes > PLANNED_ABOVE_BYTES;
        live_bytes += block->size_bytes;
        stream_bytes[block->stream] += block->size_bytes;
        if (live_bytes > peak_bytes) {
            peak_bytes = live_bytes;
            r->peak_event = i;
        }
    }
    for (uint32_t i = 1; i < trace->stream_count; i++)
        if (stream_bytes[i] > stream_bytes[r->main_stream])
            r->main_stream = i;
    free(stream_bytes);
    return 0;
}

// --- checks --------------------------------------------------------------------------------------

// Reserved by the allocator's word and by the device's.
static void replay_ledger_check(replay_t *r, uint64_t event) {
    char error[256] = "";
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return;
    stress_figures_t figures;
    simcuda_ledger_t ledger;
    r->ops->figures(r->allocator, &figures);
    sim->ledger_read(-1, &ledger);
    uint64_t used_bytes = ledger.used_bytes - r->base_ledger.used_bytes;
    if (figures.reserved_bytes == used_bytes)
        return;
    (void)snprintf(error, sizeof error,
                   "the allocator says %" PRIu64 " bytes are reserved, the device says %" PRIu64,
                   figures.reserved_bytes, used_bytes);
    replay_check_failed(r, event, error);
}

static void replay_audit(replay_t *r, uint64_t event) {
    char error[256] = "";
    r->result->audits++;
    if (r->ops->audit != NULL && r->ops->audit(r->allocator, error, sizeof error) != 0)
        replay_check_failed(r, event, error);
    replay_ledger_check(r, event);
}

static void replay_after_event(replay_t *r, uint64_t event) {
    stress_figures_t figures;
    r->ops->figures(r->allocator, &figures);
    if (r->live_bytes > r->result->peak_live_bytes)
        r->result->peak_live_bytes = r->live_bytes;
    if (r->live_bytes > 0 && r->live_bytes >= r->trace->peak_live_bytes / 2) {
        double ratio = (double)figures.reserved_bytes / (double)r->live_bytes;
        if (ratio > r->result->worst_reserved_over_live)
            r->result->worst_reserved_over_live = ratio;
    }
    if (event == r->peak_event)
        r->result->largest_free_at_peak_bytes =
            r->ops->largest_free(r->allocator, stress_work_stream(r->work, r->main_stream));
    if (r->options->check == STRESS_CHECK_NONE)
        return;
    if (event % r->audit_every == 0)
        replay_audit(r, event);
    else if (r->options->check == STRESS_CHECK_FULL)
        replay_ledger_check(r, event);
}

// --- events --------------------------------------------------------------------------------------

static void replay_out_of_memory(replay_t *r, uint64_t event, const trace_block_t *block) {
    stress_replay_result_t *result = r->result;
    result->oom_event = event;
    result->oom_size_bytes = block->size_bytes;
    result->oom_live_bytes = r->live_bytes;
    // Its words first: a question may set others.
    if (r->ops->message != NULL)
        (void)snprintf(result->oom_message, sizeof result->oom_message, "%s",
                       r->ops->message(r->allocator));
    stress_figures_t figures;
    r->ops->figures(r->allocator, &figures);
    result->oom_reserved_bytes = figures.reserved_bytes;
    result->oom_largest_free_bytes =
        r->ops->largest_free(r->allocator, stress_work_stream(r->work, block->stream));
}

static bool replay_alloc(replay_t *r, uint64_t event, uint32_t number) {
    const trace_block_t *block = &r->trace->blocks[number];
    void *stream = stress_work_stream(r->work, block->stream);
    uint64_t addr = 0;
    uint64_t start_ns = clock_ns();
    stress_result_t result = r->ops->alloc(r->allocator, block->size_bytes, stream, &addr);
    uint64_t spent_ns = clock_ns() - start_ns;
    if (result == STRESS_OUT_OF_MEMORY) {
        replay_out_of_memory(r, event, block);
        return false;
    }
    if (result != STRESS_OK)
        return replay_fail(r, event, "alloc", block->size_bytes);
    replay_time_add(r, spent_ns);
    r->addrs[number] = addr;
    r->live_bytes += block->size_bytes;
    r->result->allocated_bytes_total += block->size_bytes;
    char error[256];
    if (r->options->check != STRESS_CHECK_NONE &&
        !shadow_add(&r->shadow, addr, block->size_bytes, error, sizeof error))
        replay_check_failed(r, event, error);
    if (stress_work_use(r->work, block->stream, addr, block->size_bytes, true) != 0)
        return replay_fail(r, event, "a kernel that uses the block", block->size_bytes);
    return true;
}

// The allocator's free, and nothing of the program's.
static bool replay_free_now(replay_t *r, uint64_t event, uint32_t number) {
    const trace_block_t *block = &r->trace->blocks[number];
    void *stream = stress_work_stream(r->work, block->stream);
    uint64_t addr = r->addrs[number];
    r->addrs[number] = 0;
    if (r->options->check != STRESS_CHECK_NONE)
        shadow_remove(&r->shadow, addr);
    uint64_t start_ns = clock_ns();
    stress_result_t result = r->ops->free(r->allocator, addr, block->size_bytes, stream);
    replay_time_add(r, clock_ns() - start_ns);
    return result == STRESS_OK || replay_fail(r, event, "free", block->size_bytes);
}

// The program frees a block: it has just been used on its stream, and a deferred one is still in
// use on a side stream. An allocator without record_stream gets the block when that is over.
static bool replay_free(replay_t *r, uint64_t event, uint32_t number) {
    const trace_block_t *block = &r->trace->blocks[number];
    uint64_t addr = r->addrs[number];
    r->live_bytes -= block->size_bytes;
    if (stress_work_use(r->work, block->stream, addr, block->size_bytes, false) != 0)
        return replay_fail(r, event, "a kernel that uses the block", block->size_bytes);
    if (!block->is_deferred)
        return replay_free_now(r, event, number);
    void *side = NULL;
    if (stress_work_side_begin(r->work, number, block->stream, addr, block->size_bytes, &side) != 0)
        return replay_fail(r, event, "work on a side stream", block->size_bytes);
    if (r->ops->record_stream == NULL)
        return true;
    if (r->ops->record_stream(r->allocator, addr, side) != STRESS_OK)
        return replay_fail(r, event, "record_stream", block->size_bytes);
    return replay_free_now(r, event, number);
}

static bool replay_free_done(replay_t *r, uint64_t event, uint32_t number) {
    if (stress_work_side_end(r->work, number) != 0)
        return replay_fail(r, event, "the end of work on a side stream", 0);
    return r->addrs[number] == 0 || replay_free_now(r, event, number);
}

static bool replay_event(replay_t *r, uint64_t at) {
    const trace_event_t *event = &r->trace->events[at];
    stress_work_step(r->work);
    switch ((trace_op_t)event->op) {
    case TRACE_ALLOC:
        return replay_alloc(r, at, event->block);
    case TRACE_FREE:
        return replay_free(r, at, event->block);
    case TRACE_FREE_DONE:
        return replay_free_done(r, at, event->block);
    case TRACE_OOM:
        break;
    }
    return true;
}

// Frees what the recording left live, or what was live when it could not go on.
static bool replay_free_rest(replay_t *r) {
    bool is_good = true;
    stress_work_sides_end(r->work);
    for (size_t i = 0; i < r->trace->block_count; i++) {
        if (r->addrs[i] == 0)
            continue;
        uint32_t number = (uint32_t)i;
        const trace_block_t *block = &r->trace->blocks[i];
        (void)stress_work_use(r->work, block->stream, r->addrs[i], block->size_bytes, false);
        is_good = replay_free_now(r, r->trace->event_count, number) && is_good;
    }
    r->live_bytes = 0;
    return is_good;
}

// An allocator in need may wait for work that another stream has not ended: the harness's gates are
// opened for it then, and what simcuda says about that is no finding.
static uint64_t replay_hazards(const stress_simcuda_t *sim) {
    return sim->hazard_count() - sim->hazard_count_of(SIMCUDA_HAZARD_DEADLOCK);
}

static bool replay_hazard_came(replay_t *r, uint64_t event) {
    const stress_simcuda_t *sim = stress_simcuda();
    simcuda_hazard_t hazard;
    while (sim != NULL && sim->hazard_read(r->hazards_seen, &hazard) == 0) {
        r->hazards_seen++;
        if (hazard.kind == SIMCUDA_HAZARD_DEADLOCK) // see replay_hazards
            continue;
        (void)snprintf(r->result->failure, sizeof r->result->failure, "event %" PRIu64 ": %.200s",
                       event, hazard.text);
        return true;
    }
    if (sim == NULL || replay_hazards(sim) == 0)
        return false;
    (void)snprintf(r->result->failure, sizeof r->result->failure,
                   "event %" PRIu64 ": a hazard whose words are not kept", event);
    return true;
}

// --- series --------------------------------------------------------------------------------------

// As replay_spent, of which this is a part that costs little to ask for.
static uint64_t replay_calls_all(const replay_t *r) {
    stress_work_own_t own = stress_work_own(r->work);
    return stress_device_calls_all() - stress_calls_all(&own.calls) -
           stress_calls_all(&r->base_spent.calls);
}

static uint64_t replay_driver_ns(const replay_t *r) {
    return stress_device_driver_ns() - stress_work_own(r->work).driver_ns - r->base_spent.driver_ns;
}

static void replay_series_begin(const replay_t *r) {
    if (r->options->series != NULL)
        (void)fputs("repeat,event,live_bytes,allocated_bytes,active_bytes,reserved_bytes,"
                    "moved_bytes,driver_calls,driver_us\n",
                    r->options->series);
}

static void replay_series_write(const replay_t *r, uint32_t repeat, uint64_t event) {
    stress_figures_t figures;
    r->ops->figures(r->allocator, &figures);
    (void)fprintf(r->options->series,
                  "%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                  ",%" PRIu64 ",%" PRIu64 "\n",
                  repeat, event, r->live_bytes, figures.allocated_bytes, figures.active_bytes,
                  figures.reserved_bytes, figures.moved_bytes, replay_calls_all(r),
                  replay_driver_ns(r) / 1000);
}

// --- repeats -------------------------------------------------------------------------------------

static bool replay_events(replay_t *r, uint32_t repeat) {
    const trace_t *trace = r->trace;
    uint64_t total = (uint64_t)trace->event_count * r->options->repeats;
    for (size_t i = 0; i < trace->event_count; i++) {
        if (!replay_event(r, i)) {
            r->result->oom_repeat = repeat;
            return false;
        }
        replay_after_event(r, i);
        if (r->options->series != NULL)
            replay_series_write(r, repeat, i);
        if (r->options->stops_at_hazard && replay_hazard_came(r, i))
            return false;
        if (r->options->progress != NULL && i % PROGRESS_EVENTS == 0)
            r->options->progress(r->options->progress_context,
                                 (uint64_t)trace->event_count * repeat + i, total);
    }
    return true;
}

static void replay_repeat_end(replay_t *r, const stress_figures_t *figures_before,
                              const stress_calls_t *before) {
    stress_figures_t figures;
    r->ops->figures(r->allocator, &figures);
    uint64_t planned = figures.planned_requests - figures_before->planned_requests;
    stress_work_own_t spent = replay_spent(r);
    stress_calls_t calls = stress_calls_minus(&spent.calls, before);
    stress_replay_result_t *result = r->result;
    result->per_repeat[result->per_repeat_count++] = (stress_repeat_t){
        .peak_reserved_bytes = figures.reserved_peak_bytes,
        .moved_bytes = figures.moved_bytes - figures_before->moved_bytes,
        .memory_calls = stress_calls_memory(&calls),
        .planned_share = r->large_requests > 0 ? (double)planned / (double)r->large_requests : 0,
    };
    if (figures.reserved_peak_bytes > result->peak_reserved_bytes)
        result->peak_reserved_bytes = figures.reserved_peak_bytes;
    if (figures.allocated_peak_bytes > result->peak_allocated_bytes)
        result->peak_allocated_bytes = figures.allocated_peak_bytes;
}

static bool replay_repeat(replay_t *r, uint32_t repeat) {
    stress_figures_t figures_before;
    r->ops->peaks_reset(r->allocator);
    r->ops->figures(r->allocator, &figures_before);
    const stress_calls_t before = replay_spent(r).calls;
    bool is_good = replay_events(r, repeat);
    void *stream = stress_work_stream(r->work, r->main_stream);
    r->result->largest_free_end_bytes = r->ops->largest_free(r->allocator, stream);
    if (r->ops->largest_obtainable != NULL)
        r->result->largest_obtainable_bytes = r->ops->largest_obtainable(r->allocator, stream);
    bool is_free = replay_free_rest(r);
    replay_repeat_end(r, &figures_before, &before);
    if (r->options->check != STRESS_CHECK_NONE)
        replay_audit(r, r->trace->event_count);
    return is_good && is_free;
}

// --- beginning and end ---------------------------------------------------------------------------

static int replay_begin(replay_t *r, char *error, size_t error_capacity) {
    const stress_replay_options_t *options = r->options;
    if (stress_device_reset(options->capacity_bytes, error, error_capacity) != 0)
        return -1;
    r->result->capacity_bytes = berm__min_u64(stress_device_memory_bytes(), options->limit_bytes);
    r->work = stress_work_create(r->trace->stream_count > 0 ? r->trace->stream_count : 1,
                                 &options->work, error, error_capacity);
    if (r->work == NULL)
        return -1;
    r->base_spent = replay_spent(r);
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim != NULL)
        sim->ledger_read(-1, &r->base_ledger);
    const stress_allocator_options_t allocator_options = {
        .device = stress_device_ordinal(),
        .conf = options->conf,
        .headroom_pct = options->headroom_pct,
        .limit_bytes = options->limit_bytes,
    };
    r->allocator = r->ops->create(&allocator_options, error, error_capacity);
    return r->allocator == NULL ? -1 : 0;
}

// Before the allocator is destroyed.
static void replay_collect(replay_t *r) {
    stress_replay_result_t *result = r->result;
    stress_figures_t figures;
    r->ops->figures(r->allocator, &figures);
    result->moved_bytes_total = figures.moved_bytes;
    result->host_waits = figures.host_waits;
    result->leaked_blocks += figures.allocated_bytes != 0; // everything has been freed
    const stress_work_own_t spent = replay_spent(r), *base = &r->base_spent;
    result->driver_calls = stress_calls_minus(&spent.calls, &base->calls);
    result->driver_ns = spent.driver_ns - base->driver_ns;
    result->host_wait_ns = spent.wait_ns - base->wait_ns;
    if (result->peak_live_bytes > 0)
        result->reserved_over_live =
            (double)result->peak_reserved_bytes / (double)result->peak_live_bytes;
    result->op_mean_ns = histogram_mean(&r->times);
    result->op_p50_ns = histogram_quantile(&r->times, 500);
    result->op_p99_ns = histogram_quantile(&r->times, 990);
    result->op_p999_ns = histogram_quantile(&r->times, 999);
}

static void replay_hazards_read(stress_replay_result_t *result, const stress_simcuda_t *sim) {
    simcuda_hazard_t hazard;
    result->hazards = replay_hazards(sim);
    result->alias_hazards = sim->hazard_count_of(SIMCUDA_HAZARD_ALIAS);
    result->stale_map_hazards = sim->hazard_count_of(SIMCUDA_HAZARD_STALE_MAP);
    if (result->hazards == 0)
        return;
    (void)snprintf(result->first_hazard, sizeof result->first_hazard,
                   "after the first of all, whose words alone are kept");
    for (uint64_t i = 0; sim->hazard_read(i, &hazard) == 0; i++) {
        if (hazard.kind == SIMCUDA_HAZARD_DEADLOCK)
            continue;
        (void)snprintf(result->first_hazard, sizeof result->first_hazard, "%.240s", hazard.text);
        return;
    }
}

// The device must be as it was before the allocator was made.
static void replay_settle(replay_t *r) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return;
    stress_replay_result_t *result = r->result;
    simcuda_ledger_t now;
    const simcuda_ledger_t *base = &r->base_ledger;
    sim->ledger_read(-1, &now);
    result->mappings_peak = now.mappings_peak;
    result->va_peak_bytes = now.address_bytes_peak;
    result->leaked_blocks += (now.reservations - base->reservations) +
                             (now.handles - base->handles) + (now.mappings - base->mappings) +
                             (now.allocations - base->allocations);
    if (!r->ops->is_per_process)
        result->leaked_blocks +=
            (now.contexts_retained - base->contexts_retained) + (now.events - base->events);
    replay_hazards_read(result, sim);
}

static void replay_run(replay_t *r) {
    stress_replay_result_t *result = r->result;
    result->completed = true;
    replay_series_begin(r);
    for (uint32_t i = 0; i < r->options->repeats && result->completed; i++)
        result->completed = replay_repeat(r, i);
    replay_collect(r);
    uint64_t live_blocks = 0;
    r->ops->destroy(r->allocator, &live_blocks);
    result->leaked_blocks += live_blocks;
    replay_settle(r);
}

int stress_replay(const trace_t *trace, const stress_replay_options_t *options,
                  stress_replay_result_t *result, char *error, size_t error_capacity) {
    stress_child_order_t order;
    if (options->ops->is_per_process && !stress_child_order(&order))
        return stress_child_replay(trace, options, result, error, error_capacity);
    *result = (stress_replay_result_t){.allocator = options->ops->name,
                                       .trace = trace->path,
                                       .events = trace->event_count,
                                       .repeats = options->repeats,
                                       .is_simulated = stress_device_is_simulated()};
    replay_t *r = calloc(1, sizeof *r);
    int status = -1;
    if (r != NULL) {
        *r = (replay_t){.trace = trace, .options = options, .ops = options->ops, .result = result};
        r->addrs = calloc(trace->block_count + 1, sizeof *r->addrs);
        r->audit_every = options->check == STRESS_CHECK_FULL
                             ? berm__max_u64(options->audit_every, 1)
                             : trace->event_count / AUDITS_A_REPEAT + 1;
        r->clock_cost_ns = clock_cost();
        shadow_init(&r->shadow);
        if (options->ops->alignment_bytes != 0)
            r->shadow.alignment_bytes = options->ops->alignment_bytes;
        result->per_repeat = calloc(options->repeats + 1, sizeof *result->per_repeat);
    }
    if (r == NULL || r->addrs == NULL || result->per_repeat == NULL || replay_survey(r) != 0)
        (void)snprintf(error, error_capacity, "%s: no memory to replay it", trace->path);
    else
        status = replay_begin(r, error, error_capacity);
    if (status == 0)
        replay_run(r);
    else
        stress_replay_result_destroy(result);
    if (r != NULL) {
        if (r->work != NULL)
            stress_work_destroy(r->work);
        shadow_destroy(&r->shadow);
        free(r->addrs);
        free(r);
    }
    return status;
}

void stress_replay_result_destroy(stress_replay_result_t *result) {
    free(result->per_repeat);
    result->per_repeat = NULL;
    result->per_repeat_count = 0;
}

bool stress_replay_is_good(const stress_replay_result_t *result) {
    return result->completed && result->hazards == 0 && result->leaked_blocks == 0 &&
           result->check_failures == 0;
}
