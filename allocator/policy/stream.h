// SPDX-License-Identifier: Apache-2.0
// Streams and their tickets.
//
// A ticket stands for "everything queued on the stream up to some moment". A free takes the open
// ticket, which costs nothing; sealing records one event that covers every free since the last seal
// and opens the next ticket. A ticket has passed once an event at or after it is done. So one event
// serves any number of frees, and a program that never needs to know makes no event call at all.
//
//   passed_ticket < sealed tickets (ring of events, oldest first) < open_ticket
//
// A stream may also be "the whole context" (for frees that name no stream): its event is
// cuCtxRecordEvent, or, where the driver has none, a context synchronise that passes at once.
//
// Invariant I20: passed_ticket < first sealed ticket < ... < last sealed < open_ticket.
//
// Locks: the device's. The device's context is current in every call that may reach the driver.
#ifndef BERM_POLICY_STREAM_H
#define BERM_POLICY_STREAM_H

#include "base/list.h"
#include "vmm/segment.h"

enum {
    BERM_STREAM_SEALED_MAX = 16
};

typedef struct berm_sealed {
    uint64_t ticket;
    berm_cu_event_t event;
} berm_sealed_t;

typedef struct berm_stream {
    berm_list_t link; // of the device's list
    berm_gpu_t *gpu;
    berm_stream_t handle; // the caller's; BERM_STREAM_NONE: the whole context
    uint64_t id;          // cuStreamGetId, 0 where the driver has none
    bool is_retired;      // the caller destroyed it: no driver call may name it
    bool is_open_used;    // something holds the open ticket
    uint64_t open_ticket; // from BERM_TICKET_NONE + 1
    uint64_t passed_ticket;
    unsigned sealed_first, sealed_count;
    berm_sealed_t sealed[BERM_STREAM_SEALED_MAX];
    struct berm_pool *pool; // what is allocated on this stream; NULL: nothing yet
    uint64_t await_count;   // freed blocks that wait for it
    uint64_t use_count;     // blocks that wait for it or will: berm_use_t that name it
    uint64_t *host_waits;   // the device's count
} berm_stream_ref_t;

// NULL and CU_STREAM_LEGACY are one stream. The per-thread default is another stream in each
// thread, so memory used on it is treated as memory without a stream.
static inline berm_stream_t berm__stream_normalize(berm_stream_t handle) {
    if (handle == (berm_stream_t)BERM_CU_STREAM_LEGACY)
        return NULL;
    return handle == (berm_stream_t)BERM_CU_STREAM_PER_THREAD ? BERM_STREAM_NONE : handle;
}

void berm__stream_init(berm_stream_ref_t *stream, berm_gpu_t *gpu, berm_stream_t handle,
                       uint64_t *host_waits);
// Gives its events back.
void berm__stream_destroy(berm_stream_ref_t *stream);

// The ticket for work queued so far. Never calls the driver.
static inline uint64_t berm__stream_ticket(berm_stream_ref_t *stream) {
    stream->is_open_used = true;
    return stream->open_ticket;
}

static inline bool berm__stream_has_passed(const berm_stream_ref_t *stream, uint64_t ticket) {
    return ticket <= stream->passed_ticket;
}

// Records an event for the open ticket, if anything holds it. Calls the driver.
berm_status_t berm__stream_seal(berm_stream_ref_t *stream);

// Asks the driver which sealed tickets have passed; stops at the first that has not.
berm_status_t berm__stream_poll(berm_stream_ref_t *stream);

// Seals if need be and waits until `ticket` has passed. Counted as a host wait.
berm_status_t berm__stream_wait(berm_stream_ref_t *stream, uint64_t ticket);

#endif
