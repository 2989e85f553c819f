// SPDX-License-Identifier: Apache-2.0
// Modelled use of memory: see work.h. What is allocated when is left to replay.c.
//
// Bounds: O(1) an event; side streams are searched linearly among those in use at one time.
// Locks: none; one thread. May fail: driver errors, which are passed on.
#include "stress/work.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

enum {
    LATE_IN = 4 // one kernel in so many is late, where events are to lag
};

typedef struct work_side {
    berm_cu_stream_t stream;
    uint32_t block;
    bool is_busy;
    uint64_t gate;
} work_side_t;

struct stress_work {
    stress_work_options_t options;
    berm_rng_t rng;
    berm_cu_stream_t *streams;
    uint64_t *ends_ns; // when each stream's kernels end, as far as the harness knows
    size_t stream_count;
    uint64_t lag_end_ns; // the latest of them
    work_side_t *sides;
    size_t side_count, side_capacity;
    berm_cu_event_t event; // orders a side stream after a block's own
    stress_work_own_t own;
    uint64_t mark_driver_ns, mark_wait_ns;
};

// Between begin and end the harness calls the driver for itself.
static void own_begin(stress_work_t *work) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return;
    work->mark_driver_ns = sim->driver_ns();
    work->mark_wait_ns = sim->wait_ns();
}

static berm_cu_result_t own_end(stress_work_t *work, berm_drv_kind_t kind,
                                berm_cu_result_t result) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return result;
    work->own.calls.of[kind]++;
    work->own.driver_ns += sim->driver_ns() - work->mark_driver_ns;
    work->own.wait_ns += sim->wait_ns() - work->mark_wait_ns;
    return result;
}

static berm_cu_result_t own_stream_create(stress_work_t *work, berm_cu_stream_t *stream) {
    own_begin(work);
    return own_end(work, BERM_DRV_OTHER,
                   stress_driver_raw()->stream_create(stream, BERM_CU_STREAM_NON_BLOCKING));
}

static void own_stream_destroy(stress_work_t *work, berm_cu_stream_t stream) {
    own_begin(work);
    (void)own_end(work, BERM_DRV_SYNCHRONIZE, stress_driver_raw()->stream_synchronize(stream));
    own_begin(work);
    (void)own_end(work, BERM_DRV_OTHER, stress_driver_raw()->stream_destroy(stream));
}

stress_work_t *stress_work_create(size_t stream_count, const stress_work_options_t *options,
                                  char *error, size_t error_capacity) {
    if (stream_count > STRESS_WORK_STREAMS_MAX) {
        (void)snprintf(error, error_capacity,
                       "the trace has %zu streams; at most %d can be replayed", stream_count,
                       STRESS_WORK_STREAMS_MAX);
        return NULL;
    }
    stress_work_t *work = calloc(1, sizeof *work);
    if (work == NULL) {
        (void)snprintf(error, error_capacity, "no memory for the harness");
        return NULL;
    }
    work->options = *options;
    berm__rng_seed(&work->rng, options->seed);
    size_t slots = stream_count > 0 ? stream_count : 1;
    work->streams = calloc(slots, sizeof(berm_cu_stream_t));
    work->ends_ns = calloc(slots, sizeof *work->ends_ns);
    berm_cu_result_t result = BERM_CU_OUT_OF_MEMORY;
    if (work->streams != NULL && work->ends_ns != NULL) {
        own_begin(work);
        result =
            own_end(work, BERM_DRV_OTHER,
                    stress_driver_raw()->event_create(&work->event, BERM_CU_EVENT_DISABLE_TIMING));
    }
    while (result == BERM_CU_SUCCESS && work->stream_count < stream_count) {
        result = own_stream_create(work, &work->streams[work->stream_count]);
        work->stream_count += result == BERM_CU_SUCCESS;
    }
    if (result != BERM_CU_SUCCESS) {
        (void)snprintf(error, error_capacity, "the harness's streams failed with CUresult %d",
                       result);
        stress_work_destroy(work);
        return NULL;
    }
    return work;
}

void stress_work_destroy(stress_work_t *work) {
    stress_work_sides_end(work);
    for (size_t i = 0; i < work->side_count; i++)
        own_stream_destroy(work, work->sides[i].stream);
    for (size_t i = 0; i < work->stream_count; i++)
        own_stream_destroy(work, work->streams[i]);
    if (work->event != NULL) {
        own_begin(work);
        (void)own_end(work, BERM_DRV_OTHER, stress_driver_raw()->event_destroy(work->event));
    }
    free(work->sides);
    free(work->streams);
    free(work->ends_ns);
    free(work);
}

void *stress_work_stream(const stress_work_t *work, uint32_t stream) {
    return work->streams[stream];
}

void stress_work_step(stress_work_t *work) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return;
    uint64_t now_ns = sim->now_ns() + work->options.host_ns;
    uint64_t wait_ns = 0, lag_ns = work->options.lag_ns + work->options.event_lag_ns;
    if (work->lag_end_ns > now_ns + lag_ns)
        wait_ns = work->lag_end_ns - now_ns - lag_ns;
    sim->advance_ns(work->options.host_ns + wait_ns);
}

// How long the next kernel takes.
static uint64_t work_draw_ns(stress_work_t *work) {
    uint64_t late_ns = work->options.event_lag_ns;
    if (late_ns == 0 || berm__rng_below(&work->rng, LATE_IN) != 0)
        return work->options.work_ns;
    return work->options.work_ns + berm__rng_below(&work->rng, late_ns + 1);
}

int stress_work_use(stress_work_t *work, uint32_t stream, uint64_t addr, uint64_t size_bytes,
                    bool is_write) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return 0;
    uint64_t now_ns = sim->now_ns(), *end_ns = &work->ends_ns[stream];
    const uint64_t work_ns = work_draw_ns(work);
    *end_ns = (*end_ns > now_ns ? *end_ns : now_ns) + work_ns;
    if (*end_ns > work->lag_end_ns)
        work->lag_end_ns = *end_ns;
    const simcuda_access_t access = {addr, size_bytes, is_write ? 1 : 0};
    return sim->launch(work->streams[stream], work_ns, &access, 1);
}

// A side stream that is not in use; NULL if there can be none.
static work_side_t *work_side_take(stress_work_t *work) {
    for (size_t i = 0; i < work->side_count; i++)
        if (!work->sides[i].is_busy)
            return &work->sides[i];
    if (work->side_count == STRESS_WORK_SIDES_MAX)
        return NULL;
    if (work->side_count == work->side_capacity) {
        size_t capacity = work->side_capacity == 0 ? 16 : work->side_capacity * 2;
        work_side_t *sides = realloc(work->sides, capacity * sizeof *sides);
        if (sides == NULL)
            return NULL;
        work->sides = sides;
        work->side_capacity = capacity;
    }
    work_side_t *side = &work->sides[work->side_count];
    *side = (work_side_t){0};
    if (own_stream_create(work, &side->stream) != BERM_CU_SUCCESS)
        return NULL;
    work->side_count++;
    return side;
}

// The side stream goes on when the block's own stream has done what it has now.
static berm_cu_result_t work_side_order(stress_work_t *work, berm_cu_stream_t own,
                                        berm_cu_stream_t side) {
    own_begin(work);
    berm_cu_result_t result =
        own_end(work, BERM_DRV_EVENT_RECORD, stress_driver_raw()->event_record(work->event, own));
    if (result != BERM_CU_SUCCESS)
        return result;
    own_begin(work);
    return own_end(work, BERM_DRV_STREAM_WAIT,
                   stress_driver_raw()->stream_wait_event(side, work->event, 0));
}

int stress_work_side_begin(stress_work_t *work, uint32_t block, uint32_t stream, uint64_t addr,
                           uint64_t size_bytes, void **side_stream) {
    const stress_simcuda_t *sim = stress_simcuda();
    work_side_t *side = work_side_take(work);
    if (side == NULL)
        return -1;
    *side_stream = side->stream;
    berm_cu_result_t result = work_side_order(work, work->streams[stream], side->stream);
    const simcuda_access_t access = {addr, size_bytes, 0};
    if (result == BERM_CU_SUCCESS && sim != NULL)
        result = sim->gate(side->stream, &access, 1, &side->gate);
    if (result != BERM_CU_SUCCESS)
        return result;
    side->block = block;
    side->is_busy = true;
    return 0;
}

// The gate may be open already: an allocator that waited for it made simcuda open it.
static int work_side_finish(stress_work_t *work, work_side_t *side) {
    const stress_simcuda_t *sim = stress_simcuda();
    side->is_busy = false;
    if (sim != NULL)
        (void)sim->gate_open(side->gate);
    own_begin(work);
    return own_end(work, BERM_DRV_SYNCHRONIZE,
                   stress_driver_raw()->stream_synchronize(side->stream));
}

int stress_work_side_end(stress_work_t *work, uint32_t block) {
    for (size_t i = 0; i < work->side_count; i++)
        if (work->sides[i].is_busy && work->sides[i].block == block)
            return work_side_finish(work, &work->sides[i]);
    return 0;
}

void stress_work_sides_end(stress_work_t *work) {
    for (size_t i = 0; i < work->side_count; i++)
        if (work->sides[i].is_busy)
            (void)work_side_finish(work, &work->sides[i]);
}

stress_work_own_t stress_work_own(const stress_work_t *work) {
    return work->own;
}
