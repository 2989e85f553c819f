// SPDX-License-Identifier: Apache-2.0
// Requests and frees given to berm. Each function says whether berm answered: false is "not
// berm's", and the driver's own function is to be called. Results are CUresults, which are the
// runtime's error numbers too.
//
// Whose memory an address is, is never kept here: berm is asked. What berm knows is never given to
// the driver's free.
// Locks: none; one count of each thread (serve_inside).
#ifndef PRELOAD_SERVE_H
#define PRELOAD_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "berm.h"

// A request for `device` (PLACE_NONE: not berm's). With BERM_STREAM_NONE it is cudaMalloc's, whose
// memory may be used on any stream at once, else cudaMallocAsync's.
bool serve_alloc(int device, uint64_t bytes, berm_stream_t stream, berm_addr_t *addr, int *result);
// With BERM_STREAM_NONE it is cudaFree's: nothing is served from the block before all work that was
// queued by now has passed, on every stream and on peers.
bool serve_free(berm_addr_t addr, berm_stream_t stream, int *result);
// The same of a stream-ordered free, which a capture forbids for memory that is not of its graph.
bool serve_free_async(berm_addr_t addr, berm_cu_stream_t stream, int *result);

// Whether a request on the stream can be berm's: its device, or PLACE_NONE while it is captured, as
// the memory is the graph's then, and where the program has set a pool of its own.
int serve_place_async(berm_cu_stream_t stream);
// The same of a request from a pool.
int serve_place_pool(berm_cu_mem_pool_t pool, berm_cu_stream_t stream);

// A thread is inside while berm, or one of the driver's own functions, works for it: what it asks
// for meanwhile is the driver's, and not counted.
bool serve_inside(void);
void serve_enter(void);
void serve_leave(void);

// The driver had no memory for a request of its own: gives it what berm keeps idle on the current
// device. Whether that was anything.
bool serve_make_room(void);

// The stream is about to be captured: berm has to have seen it, to leave its context alone then.
void serve_capture_begins(berm_cu_stream_t stream);
// It is about to be destroyed.
void serve_stream_ends(berm_cu_stream_t stream);
// The device's primary context is about to be reset: all blocks on it end.
void serve_reset(int device);

#endif
