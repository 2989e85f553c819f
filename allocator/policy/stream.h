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
// While the stream is captured into a graph no event is recorded on it and none of its own asked;
// while any stream is, the context is let be (capture.h). Tickets then stay as they are.
//
// Locks: the device's for seal, poll and wait, in its context. A ticket is taken without a lock:
// sealing opens the next ticket first and records the event then, so that the event comes after all
// work of whoever took the ticket that it seals.
#ifndef BERM_POLICY_STREAM_H
#define BERM_POLICY_STREAM_H

#include <stdatomic.h>

#include "base/list.h"
#include "policy/capture.h"
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
    // A stream of a peer, or of a context that the program made: its events are of that context,
    // and of no use to the device's store.
    berm_cu_context_t context; // NULL: the device's primary one, or not known
    bool is_elsewhere;         // surely or perhaps not of the device's context
    // The caller destroyed it: no driver call may name it. Changed under the device's lock, that of
    // the list and those of its pools; read under any of them.
    bool is_retired;
    atomic_bool is_open_used;         // something may hold the open ticket
    atomic_uint_fast64_t open_ticket; // from BERM_TICKET_NONE + 1
    uint64_t passed_ticket;           // under the device's lock, as all that is not said otherwise
    unsigned sealed_first, sealed_count;
    berm_sealed_t sealed[BERM_STREAM_SEALED_MAX];
    struct berm_pool *pool;           // of the default group; NULL: nothing yet
    uint32_t pool_count;              // pools of this stream, in all groups
    atomic_uint_fast64_t await_count; // freed blocks that wait for it
    // Who needs the record: berm_use_t that name it, frees under way.
    atomic_uint_fast64_t use_count;
    uint64_t *host_waits;      // the device's count
    const berm_watch_t *watch; // the device's; NULL: nothing is captured
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

// The ticket for work queued so far. Never calls the driver; needs no lock. The mark comes after
// the ticket: a seal clears it before it opens the next one, so a ticket is never left unmarked.
static inline uint64_t berm__stream_ticket(berm_stream_ref_t *stream) {
    uint64_t ticket = atomic_load_explicit(&stream->open_ticket, memory_order_acquire);
    if (!atomic_load_explicit(&stream->is_open_used, memory_order_relaxed))
        atomic_store_explicit(&stream->is_open_used, true, memory_order_relaxed);
    return ticket;
}

static inline bool berm__stream_has_passed(const berm_stream_ref_t *stream, uint64_t ticket) {
    return ticket <= stream->passed_ticket;
}

// Records an event for the open ticket, if anything holds it. During a capture that forbids it the
// ticket stays open, and that is BERM_OK. Calls the driver.
berm_status_t berm__stream_seal(berm_stream_ref_t *stream);

// Asks the driver which sealed tickets have passed; stops at the first that has not, and asks
// nothing while the stream is captured.
berm_status_t berm__stream_poll(berm_stream_ref_t *stream);

// Seals if need be and waits until `ticket` has passed. Counted as a host wait. CAPTURE when a
// capture forbids it.
berm_status_t berm__stream_wait(berm_stream_ref_t *stream, uint64_t ticket);
// The same for everything that was ever taken from the stream.
berm_status_t berm__stream_wait_all(berm_stream_ref_t *stream);

#endif
