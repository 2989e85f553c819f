// SPDX-License-Identifier: Apache-2.0
// Modelled use of memory during a replay. On the simulated device:
//   - each stream of the trace is a non-blocking stream;
//   - after an alloc a kernel of `work_ns` writes the block on its stream, before a free one reads
//     it;
//   - the host computes `host_ns` before each event. Where that is less than the kernels take, the
//     device falls behind until it lags by `lag_ns`; then the host waits, as a full launch queue
//     makes it do;
//   - with `event_lag_ns` one kernel in four takes up to so much longer, drawn from `seed`: events
//   of
//     the streams come late and in any order, and the device may lag by so much more;
//   - a block whose free the recording deferred is used by a kernel on a side stream that ends when
//     the recording said so (a gate).
// On a real device there are streams and no kernels. The driver calls made here are counted apart.
#ifndef STRESS_WORK_H
#define STRESS_WORK_H

#include "stress/device.h"

enum {
    STRESS_WORK_STREAMS_MAX = 4096, // of a trace
    STRESS_WORK_SIDES_MAX = 1024,   // deferred frees at one time
};

typedef struct stress_work_options {
    uint64_t work_ns, host_ns, lag_ns;
    uint64_t event_lag_ns, seed;
} stress_work_options_t;

typedef struct stress_work stress_work_t;

// What the harness itself cost.
typedef struct stress_work_own {
    stress_calls_t calls;
    uint64_t driver_ns, wait_ns;
} stress_work_own_t;

// NULL with a line in `error`.
stress_work_t *stress_work_create(size_t stream_count, const stress_work_options_t *options,
                                  char *error, size_t error_capacity);
// Waits for all streams, then destroys them.
void stress_work_destroy(stress_work_t *work);

void *stress_work_stream(const stress_work_t *work, uint32_t stream);
void stress_work_step(stress_work_t *work); // before each event
// One kernel; 0 or a CUresult.
int stress_work_use(stress_work_t *work, uint32_t stream, uint64_t addr, uint64_t size_bytes,
                    bool is_write);
// Work on a side stream reads the block until stress_work_side_end of the same `block` number.
// *side is the side stream. 0, a CUresult, or -1 when there are too many sides.
int stress_work_side_begin(stress_work_t *work, uint32_t block, uint32_t stream, uint64_t addr,
                           uint64_t size_bytes, void **side);
// When it returns the side stream has ended its work.
int stress_work_side_end(stress_work_t *work, uint32_t block);
void stress_work_sides_end(stress_work_t *work); // all of them

stress_work_own_t stress_work_own(const stress_work_t *work);

#endif
