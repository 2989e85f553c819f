// SPDX-License-Identifier: Apache-2.0
// Random operations that verify what is in memory: see contents.h. Patterns and kernels are
// kernels.c.
//
// All uses of one block are in one order: a stream that uses it next waits by an event for the one
// that used it last. Different blocks have no order but their streams'. The host runs ahead of the
// device by up to LAG_NS, so frees overlap queued work.
//
// Bounds: O(1) an operation; host memory for the device's bytes and BLOCKS_MAX blocks.
// Locks: none; one thread. May fail: whatever berm.h and the driver say; the run then ends.
#include "stress/contents/contents.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "stress/contents/kernels.h"
#include "stress/device.h"

enum {
    STREAMS = STRESS_CONTENTS_STREAMS,
    NO_STREAM = STREAMS, // of blocks that were asked for with BERM_STREAM_NONE
    BLOCKS_MAX = 8192,
    PHASE_OPERATIONS = 400, // then another stream allocates most, other sizes, and up to another
                            // share of the device: pages have to go from pool to pool
    PROGRESS_OPERATIONS = 4096,
    LAG_NS = 3000000,
};

typedef struct block {
    uint64_t addr, size_bytes, number, version;
    unsigned home, last; // the stream it belongs to; that of the last use
    unsigned recorded;   // a bit for each stream that berm was told of
} block_t;

typedef struct run {
    const stress_contents_options_t *options;
    stress_contents_result_t *result;
    const stress_driver_t *d;
    const stress_simcuda_t *sim;
    contents_kernels_t kernels;
    berm_rng_t rng;
    berm_cu_stream_t streams[STREAMS];
    berm_cu_event_t event;
    uint64_t ends_ns[STREAMS]; // when the work of each ends, as far as is known here
    block_t *blocks;
    size_t count;
    uint64_t next_number, live_bytes;
    // of the phase
    uint64_t target_bytes, large_percent;
    unsigned busy_stream;
    bool is_spoiled;
} run_t;

static uint64_t below(run_t *r, uint64_t bound) {
    return berm__rng_below(&r->rng, bound);
}

static bool chance(run_t *r, uint64_t percent) {
    return below(r, 100) < percent;
}

static bool run_fail(run_t *r, const char *what, int code) {
    char *failure = r->result->failure;
    if (failure[0] == '\0')
        (void)snprintf(failure, sizeof r->result->failure, "operation %" PRIu64 ": %s: %d",
                       r->result->operations, what, code);
    return false;
}

static bool berm_fail(run_t *r, const char *call, berm_status_t status) {
    char *failure = r->result->failure;
    if (failure[0] == '\0')
        (void)snprintf(failure, sizeof r->result->failure, "operation %" PRIu64 ": %s: %s: %.160s",
                       r->result->operations, call, berm_status_name(status), berm_error_message());
    return false;
}

static void *stream_of(const run_t *r, unsigned stream) {
    return stream == NO_STREAM ? BERM_STREAM_NONE : r->streams[stream];
}

// --- work ----------------------------------------------------------------------------------------

// Mostly short, now and then as long as many operations.
static uint64_t duration_of(run_t *r) {
    return chance(r, 3) ? 200000 + below(r, 1800000) : 2000 + below(r, 60000);
}

static bool kernel_queue(run_t *r, unsigned stream, const contents_kernel_t *kernel,
                         uint64_t duration_ns) {
    int result = contents_kernels_queue(&r->kernels, r->streams[stream], duration_ns, kernel);
    uint64_t now_ns = r->sim->now_ns();
    r->ends_ns[stream] = berm__max_u64(r->ends_ns[stream], now_ns) + duration_ns;
    return result == BERM_CU_SUCCESS || run_fail(r, "a kernel", result);
}

// What `stream` does next comes after all that `before` has now.
static bool stream_follow(run_t *r, unsigned stream, unsigned before) {
    if (stream == before)
        return true;
    int result = r->d->event_record(r->event, r->streams[before]);
    if (result == BERM_CU_SUCCESS)
        result = r->d->stream_wait_event(r->streams[stream], r->event, 0);
    r->ends_ns[stream] = berm__max_u64(r->ends_ns[stream], r->ends_ns[before]);
    return result == BERM_CU_SUCCESS || run_fail(r, "an event between streams", result);
}

static contents_kernel_t kernel_of(const block_t *block) {
    return (contents_kernel_t){
        .addr = block->addr,
        .size_bytes = block->size_bytes,
        .old_seed = contents_seed(block->number, block->version),
        .new_seed = contents_seed(block->number, block->version + 1),
        .block = block->number,
    };
}

// Verifies a block on a stream, and writes it anew where asked.
static bool block_use(run_t *r, block_t *block, unsigned stream, bool writes) {
    contents_kernel_t kernel = kernel_of(block);
    kernel.verifies = true;
    kernel.writes = writes;
    block->version += writes;
    if (!stream_follow(r, stream, block->last))
        return false;
    block->last = stream;
    return kernel_queue(r, stream, &kernel, duration_of(r));
}

static bool block_record(run_t *r, block_t *block, unsigned stream) {
    if (stream == block->home || (block->recorded & 1u << stream) != 0)
        return true;
    block->recorded |= 1u << stream;
    r->result->recorded_streams++;
    berm_status_t status = berm_record_stream(block->addr, r->streams[stream]);
    return status == BERM_OK || berm_fail(r, "berm_record_stream", status);
}

// The host computes, and waits where the device has fallen behind.
static void host_step(run_t *r) {
    uint64_t step_ns = below(r, 20000), end_ns = 0, now_ns = r->sim->now_ns();
    for (unsigned i = 0; i < STREAMS; i++)
        end_ns = berm__max_u64(end_ns, r->ends_ns[i]);
    if (end_ns > now_ns + step_ns + LAG_NS)
        step_ns = end_ns - now_ns - LAG_NS;
    r->sim->advance_ns(step_ns);
}

// --- mistakes ------------------------------------------------------------------------------------

static bool is_past_half(const run_t *r) {
    return r->result->operations >= r->options->operations / 2;
}

static bool mistake_byte(run_t *r, block_t *block) {
    if (r->options->mistake != STRESS_CONTENTS_WRONG_BYTE || r->is_spoiled || !is_past_half(r))
        return true;
    r->is_spoiled = true;
    contents_kernel_t kernel = kernel_of(block);
    kernel.spoils = true;
    return kernel_queue(r, block->last, &kernel, duration_of(r));
}

// A stream that berm does not know of, and that waits for nobody, uses a block that is being freed.
static bool mistake_order(run_t *r, const block_t *block) {
    if (r->options->mistake != STRESS_CONTENTS_WRONG_ORDER || !is_past_half(r) || !chance(r, 10))
        return true;
    contents_kernel_t kernel = kernel_of(block);
    kernel.verifies = true;
    return kernel_queue(r, (block->last + 1) % STREAMS, &kernel, LAG_NS);
}

// --- operations ----------------------------------------------------------------------------------

static bool block_free(run_t *r, size_t at) {
    block_t block = r->blocks[at];
    r->blocks[at] = r->blocks[--r->count];
    r->live_bytes -= block.size_bytes;
    // The last verification is on the block's own stream, on the one that used it last, or on any.
    unsigned stream = (unsigned)below(r, STREAMS);
    if (block.home != NO_STREAM && chance(r, 60))
        stream = block.home;
    else if (chance(r, 40))
        stream = block.last;
    if (!mistake_byte(r, &block) || !block_use(r, &block, stream, false) ||
        !mistake_order(r, &block))
        return false;
    // Freed where that was, or on the own stream or none once berm knows of the other.
    unsigned freed_on = stream;
    if (chance(r, 10)) {
        freed_on = NO_STREAM;
    } else if (stream != block.home && chance(r, 50)) {
        if (!block_record(r, &block, stream))
            return false;
        freed_on = block.home;
    }
    r->result->frees++;
    r->result->frees_on_none += freed_on == NO_STREAM;
    r->result->frees_elsewhere += freed_on != NO_STREAM && freed_on != block.home;
    berm_status_t status = berm_free(block.addr, stress_device_ordinal(), stream_of(r, freed_on));
    return status == BERM_OK || berm_fail(r, "berm_free", status);
}

// 1 byte to 12 MiB: most are small, most bytes are in large ones.
static uint64_t size_draw(run_t *r) {
    if (chance(r, r->large_percent))
        return BERM_MIB(1) + below(r, chance(r, 20) ? BERM_MIB(11) : BERM_MIB(3));
    return chance(r, 50) ? 1 + below(r, BERM_KIB(64)) : BERM_KIB(64) + below(r, BERM_KIB(512));
}

static void phase_draw(run_t *r) {
    r->target_bytes = r->result->capacity_bytes * (45 + below(r, 45)) / 100;
    r->large_percent = below(r, 25);
    r->busy_stream = (unsigned)below(r, STREAMS);
}

static bool block_alloc(run_t *r) {
    unsigned home = chance(r, 60) ? r->busy_stream : (unsigned)below(r, STREAMS + 1);
    block_t block = {.size_bytes = size_draw(r), .home = home, .number = ++r->next_number};
    block.last = home != NO_STREAM ? home : (unsigned)below(r, STREAMS);
    berm_status_t status =
        berm_alloc(block.size_bytes, stress_device_ordinal(), stream_of(r, home), &block.addr);
    if (status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT) {
        r->result->refused++;
        return r->count == 0 || block_free(r, (size_t)below(r, r->count));
    }
    if (status != BERM_OK)
        return berm_fail(r, "berm_alloc", status);
    r->result->allocs++;
    r->live_bytes += block.size_bytes;
    r->result->live_peak_bytes = berm__max_u64(r->result->live_peak_bytes, r->live_bytes);
    contents_kernel_t kernel = kernel_of(&block);
    kernel.writes = true;
    block.version++;
    bool is_good =
        block_record(r, &block, block.last) && kernel_queue(r, block.last, &kernel, duration_of(r));
    r->blocks[r->count++] = block;
    return is_good;
}

// More allocations than frees below the target, and the other way above it. A device that cannot
// hold the target refuses.
static bool alloc_or_free(run_t *r) {
    bool wants_more = r->live_bytes < r->target_bytes && r->count < BLOCKS_MAX;
    if (r->count == 0 || (chance(r, wants_more ? 75 : 25) && r->count < BLOCKS_MAX))
        return block_alloc(r);
    return block_free(r, (size_t)below(r, r->count));
}

static bool use_one(run_t *r) {
    if (r->count == 0)
        return true;
    block_t *block = &r->blocks[below(r, r->count)];
    unsigned stream = chance(r, 50) ? block->last : (unsigned)below(r, STREAMS);
    r->result->uses++;
    r->result->uses_elsewhere += stream != block->home;
    return block_use(r, block, stream, chance(r, 40)) && block_record(r, block, stream);
}

static bool trim_some(run_t *r) {
    r->result->trims++;
    berm_status_t status =
        berm_trim(stress_device_ordinal(), below(r, r->result->capacity_bytes / 4), NULL);
    return status == BERM_OK || berm_fail(r, "berm_trim", status);
}

static bool audit(run_t *r) {
    uint64_t every = r->options->audit_every;
    if (every == 0 || r->result->operations % every != 0)
        return true;
    r->result->audits++;
    berm_status_t status = berm_audit(NULL);
    return status == BERM_OK || berm_fail(r, "berm_audit", status);
}

static bool operation(run_t *r) {
    if (r->result->operations % PHASE_OPERATIONS == 0)
        phase_draw(r);
    host_step(r);
    uint64_t kind = below(r, 1000);
    if (kind < 2)
        return trim_some(r);
    if (kind < 50)
        return stream_follow(r, (unsigned)below(r, STREAMS), (unsigned)below(r, STREAMS));
    if (kind < 350)
        return use_one(r);
    return alloc_or_free(r);
}

static void operations(run_t *r) {
    const stress_contents_options_t *options = r->options;
    bool is_good = true;
    for (; is_good && r->result->operations < options->operations; r->result->operations++) {
        is_good = operation(r) && audit(r);
        if (options->progress != NULL && r->result->operations % PROGRESS_OPERATIONS == 0)
            options->progress(options->progress_context, r->result->operations,
                              options->operations);
    }
    while (is_good && r->count > 0)
        is_good = block_free(r, r->count - 1);
    for (unsigned i = 0; is_good && i < STREAMS; i++) {
        int result = r->d->stream_synchronize(r->streams[i]);
        is_good = result == BERM_CU_SUCCESS || run_fail(r, "waiting for a stream", result);
    }
}

// --- beginning and end ---------------------------------------------------------------------------

void stress_contents_options_default(stress_contents_options_t *options) {
    *options = (stress_contents_options_t){
        .conf = "", .operations = 20000, .seed = 1, .audit_every = 1000};
}

static int streams_make(run_t *r) {
    int result = r->d->event_create(&r->event, BERM_CU_EVENT_DISABLE_TIMING);
    for (unsigned i = 0; result == BERM_CU_SUCCESS && i < STREAMS; i++)
        result = r->d->stream_create(&r->streams[i], BERM_CU_STREAM_NON_BLOCKING);
    return result;
}

static int begin(run_t *r, char *error, size_t error_capacity) {
    char conf[1024];
    int length = snprintf(conf, sizeof conf, "driver:libcuda.so.1,log:error%s%s",
                          r->options->conf[0] != '\0' ? "," : "", r->options->conf);
    if (length < 0 || (size_t)length >= sizeof conf) {
        (void)snprintf(error, error_capacity, "options longer than %zu bytes", sizeof conf);
        return -1;
    }
    if (stress_device_reset(0, error, error_capacity) != 0)
        return -1;
    r->result->capacity_bytes = stress_device_memory_bytes();
    int result = streams_make(r);
    if (result != BERM_CU_SUCCESS) {
        (void)snprintf(error, error_capacity, "streams failed with CUresult %d", result);
        return -1;
    }
    berm_status_t status = berm_init(conf);
    if (status == BERM_OK)
        return 0;
    bool is_told = status == BERM_ERROR_OPTION_UNKNOWN || status == BERM_ERROR_OPTION_VALUE;
    (void)snprintf(error, error_capacity, "%s", is_told ? "" : berm_error_message());
    return -1;
}

static void collect(run_t *r) {
    stress_contents_result_t *result = r->result;
    berm_stats_t stats = BERM_STATS_INIT;
    if (berm_stats_read(stress_device_ordinal(), &stats) == BERM_OK) {
        result->moves = stats.moves;
        result->moved_bytes = stats.moved_bytes;
        result->host_waits = stats.host_waits;
        result->reserved_peak_bytes = stats.reserved_bytes.peak;
    }
    (void)berm_shutdown(NULL);
    simcuda_ledger_t ledger;
    r->sim->ledger_read(-1, &ledger);
    result->leaked = ledger.reservations + ledger.handles + ledger.mappings + ledger.allocations;
    result->kernels = r->kernels.queued;
    result->kernels_not_run = r->kernels.queued - r->kernels.run;
    result->written_bytes = r->kernels.written_bytes;
    result->verified_bytes = r->kernels.verified_bytes;
    result->wrong_bytes = r->kernels.wrong_bytes;
    memcpy(result->first_wrong, r->kernels.first_wrong, sizeof result->first_wrong);
    result->device_ns = r->sim->now_ns();
    result->hazards = r->sim->hazard_count();
    simcuda_hazard_t hazard;
    if (result->hazards > 0 && r->sim->hazard_read(0, &hazard) == 0)
        (void)snprintf(result->first_hazard, sizeof result->first_hazard, "%.240s", hazard.text);
}

int stress_contents_run(const stress_contents_options_t *options, stress_contents_result_t *result,
                        char *error, size_t error_capacity) {
    run_t r = {.options = options,
               .result = result,
               .d = stress_driver_raw(),
               .sim = stress_simcuda(),
               .blocks = calloc(BLOCKS_MAX, sizeof *r.blocks)};
    *result = (stress_contents_result_t){0};
    contents_kernels_init(&r.kernels);
    berm__rng_seed(&r.rng, options->seed);
    int status = -1;
    if (r.sim == NULL)
        (void)snprintf(error, error_capacity, "contents are verified on the simulated device only");
    else if (r.blocks == NULL)
        (void)snprintf(error, error_capacity, "no host memory");
    else
        status = begin(&r, error, error_capacity);
    if (status == 0) {
        operations(&r);
        collect(&r);
        // What still waits for its time points into `r`.
        status = stress_device_reset(0, error, error_capacity);
    }
    contents_kernels_destroy(&r.kernels);
    free(r.blocks);
    return status;
}

bool stress_contents_is_good(const stress_contents_result_t *result) {
    return result->wrong_bytes == 0 && result->hazards == 0 && result->kernels_not_run == 0 &&
           result->leaked == 0 && result->failure[0] == '\0';
}

void stress_contents_emit(berm_emit_t *emit, const stress_contents_result_t *r) {
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"operations", r->operations},
        {"allocs", r->allocs},
        {"refused", r->refused},
        {"frees", r->frees},
        {"frees_elsewhere", r->frees_elsewhere},
        {"frees_on_none", r->frees_on_none},
        {"uses", r->uses},
        {"uses_elsewhere", r->uses_elsewhere},
        {"recorded_streams", r->recorded_streams},
        {"trims", r->trims},
        {"audits", r->audits},
        {"kernels", r->kernels},
        {"kernels_not_run", r->kernels_not_run},
        {"written_bytes", r->written_bytes},
        {"verified_bytes", r->verified_bytes},
        {"wrong_bytes", r->wrong_bytes},
        {"hazards", r->hazards},
        {"moves", r->moves},
        {"moved_bytes", r->moved_bytes},
        {"host_waits", r->host_waits},
        {"live_peak_bytes", r->live_peak_bytes},
        {"reserved_peak_bytes", r->reserved_peak_bytes},
        {"capacity_bytes", r->capacity_bytes},
        {"leaked", r->leaked},
        {"device_ns", r->device_ns},
    };
    berm__emit_object_begin(emit, NULL);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        berm__emit_u64(emit, figures[i].name, figures[i].value);
    berm__emit_string(emit, "first_wrong", r->first_wrong);
    berm__emit_string(emit, "first_hazard", r->first_hazard);
    berm__emit_string(emit, "failure", r->failure);
    berm__emit_bool(emit, "good", stress_contents_is_good(r));
    berm__emit_object_end(emit);
}
