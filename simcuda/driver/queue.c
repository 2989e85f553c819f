// SPDX-License-Identifier: Apache-2.0
// Streams as queues of work in virtual time.
//
// Work starts at the latest of: the host's clock when it is queued, the end of the work before it
// in its stream, what it waits for. As a rule all of these are known and so is the end: only the
// stream's tail is kept, and queueing is O(1). Work behind a closed gate waits in `pending` as an
// op, with marks for what it waits for; opening the gate settles what can be settled.
//
// Legacy rule: work of a context's legacy stream comes after all work of its blocking streams, and
// later work of those comes after it. Order (the vector clock) is fixed when work is queued; times
// may follow later.
//
// Invariants: (1) a stream with pending ops gives no times to new work; (2) an op that waits for
// nothing unresolved and for no closed gate is not pending after sim_queue_settle; (3) what an op
// waits for was queued before it, so there are no cycles.
// Locks: the state's. May fail: sim_queue_issue, with nothing changed.
#include <stdlib.h>

#include "sim.h"

static bool stream_is_blocking(const sim_stream_t *stream) {
    return (stream->flags & BERM_CU_STREAM_NON_BLOCKING) == 0;
}

static sim_op_t *op_of(berm_list_t *node) {
    return BERM_CONTAINER_OF(node, sim_op_t, node);
}

static sim_stream_t *stream_of(berm_list_t *node) {
    return BERM_CONTAINER_OF(node, sim_stream_t, node);
}

// The mark of the last pending op; NULL where there is none.
static sim_mark_t *stream_last_mark(const sim_stream_t *stream) {
    return berm__list_is_empty(&stream->pending) ? NULL : op_of(stream->pending.prev)->mark;
}

// Whether work of `other` must end before new work of `stream` starts, and has not been joined.
static bool stream_follows(const sim_stream_t *stream, const sim_issue_t *issue,
                           const sim_stream_t *other) {
    if (other == stream || other->clock[other->slot] <= stream->clock[other->slot])
        return false;
    if (issue->wait_all == other->context)
        return true;
    return other->context == stream->context && stream_is_blocking(stream) &&
           stream_is_blocking(other) && (stream->is_legacy || other->is_legacy);
}

// The context whose other streams matter to the issue; only the legacy rule and wait_all look.
static sim_context_t *issue_scope(const sim_stream_t *stream, const sim_issue_t *issue) {
    return issue->wait_all != NULL ? issue->wait_all : stream->context;
}

static uint32_t issue_count_deps(const sim_stream_t *stream, const sim_issue_t *issue) {
    uint32_t count = issue->wait != NULL && !issue->wait->is_resolved;
    if (sim.pending_ops == 0)
        return count;
    const berm_list_t *streams = &issue_scope(stream, issue)->streams;
    for (berm_list_t *at = streams->next; at != streams; at = at->next) {
        const sim_stream_t *other = stream_of(at);
        count += stream_follows(stream, issue, other) && stream_last_mark(other) != NULL;
    }
    return count;
}

static sim_op_t *op_create(const sim_issue_t *issue, uint32_t deps) {
    sim_op_t *op = calloc(1, sizeof(*op) + deps * sizeof(op->deps[0]));
    if (op == NULL)
        return NULL;
    op->mark = issue->mark != NULL ? issue->mark : sim_mark_create();
    if (op->mark == NULL) {
        free(op);
        return NULL;
    }
    if (issue->mark != NULL)
        issue->mark->refs++;
    op->duration_ns = issue->duration_ns;
    op->gate = issue->gate;
    return op;
}

static void op_add_dep(sim_op_t *op, sim_mark_t *mark) {
    mark->refs++;
    op->deps[op->dep_count++] = mark;
}

// When the stream itself lets new work start: at its tail, or for a kernel after a kernel a little
// earlier, but not before what came before both has ended.
static uint64_t stream_ready(const sim_stream_t *stream, const sim_issue_t *issue) {
    uint64_t overlap = sim.config.pdl_overlap_ns;
    if (BERM_LIKELY(overlap == 0) || !issue->is_kernel || !stream->is_tail_kernel)
        return stream->tail_ns;
    uint64_t early = stream->tail_ns > overlap ? stream->tail_ns - overlap : 0;
    return berm__max_u64(early, stream->before_ns);
}

// Joins everything that comes before into the stream's clock; returns the earliest start, as far
// as times are known, and adds the rest to `op`.
static uint64_t issue_join(sim_stream_t *stream, const sim_issue_t *issue, sim_op_t *op) {
    uint64_t ready = berm__max_u64(sim.now_ns, stream_ready(stream, issue));
    const berm_list_t *streams = &issue_scope(stream, issue)->streams;
    bool looks = issue->wait_all != NULL || stream_is_blocking(stream);
    for (berm_list_t *at = streams->next; looks && at != streams; at = at->next) {
        const sim_stream_t *other = stream_of(at);
        if (!stream_follows(stream, issue, other))
            continue;
        sim_clock_join(stream->clock, other->clock, sim.slot_count);
        ready = berm__max_u64(ready, other->tail_ns);
        if (stream_last_mark(other) != NULL)
            op_add_dep(op, stream_last_mark(other));
    }
    if (issue->wait != NULL) {
        sim_clock_join(stream->clock, issue->wait->clock, issue->wait->clock_count);
        if (issue->wait->is_resolved)
            ready = berm__max_u64(ready, issue->wait->at_ns);
        else
            op_add_dep(op, issue->wait);
    }
    if (stream->host_version != sim.host_version) {
        sim_clock_join(stream->clock, sim.host_clock, sim.slot_count);
        stream->host_version = sim.host_version;
    }
    stream->clock[stream->slot]++;
    return ready;
}

static void stream_advance(sim_stream_t *stream, uint64_t end_ns, bool is_work) {
    stream->before_ns = stream->tail_ns;
    stream->tail_ns = end_ns;
    if (!is_work)
        return;
    sim_context_t *context = stream->context;
    context->tail_ns = berm__max_u64(context->tail_ns, end_ns);
    uint64_t *device_tail = &sim.devices[context->device].tail_ns;
    *device_tail = berm__max_u64(*device_tail, end_ns);
}

static void mark_resolve(sim_mark_t *mark, uint64_t ns) {
    mark->is_resolved = true;
    mark->at_ns = ns;
    mark->stream = NULL;
}

int sim_queue_issue(sim_stream_t *stream, sim_issue_t *issue) {
    uint32_t deps = issue_count_deps(stream, issue);
    sim_op_t *op = NULL;
    if (deps > 0 || issue->gate != NULL || !berm__list_is_empty(&stream->pending)) {
        op = op_create(issue, deps);
        if (op == NULL)
            return BERM_CU_OUT_OF_MEMORY;
    }
    uint64_t ready = issue_join(stream, issue, op);
    if (issue->mark != NULL)
        sim_mark_stamp(issue->mark, stream->clock);
    if (op != NULL) {
        op->issue_ns = ready;
        op->mark->is_resolved = false;
        op->mark->stream = stream;
        stream->is_tail_kernel = false;
        berm__list_push_back(&stream->pending, &op->node);
        sim.pending_ops++;
        issue->start_ns = sim.now_ns;
        issue->end_ns = UINT64_MAX;
        issue->pending = op->mark;
        return BERM_CU_SUCCESS;
    }
    issue->start_ns = ready;
    issue->end_ns = berm__max_u64(sim_time_add(ready, issue->duration_ns), stream->tail_ns);
    issue->overlaps = ready < stream->tail_ns ? stream->clock[stream->slot] - 1 : 0;
    stream_advance(stream, issue->end_ns, issue->duration_ns != 0);
    stream->is_tail_kernel = issue->is_kernel;
    if (issue->mark != NULL)
        mark_resolve(issue->mark, issue->end_ns);
    return BERM_CU_SUCCESS;
}

// --- settling ------------------------------------------------------------------------------------

static void op_destroy(sim_op_t *op) {
    for (uint32_t i = 0; i < op->dep_count; i++)
        sim_mark_drop(op->deps[i]);
    sim_mark_drop(op->mark);
    if (op->effect != NULL)
        sim_effect_drop(op->effect);
    berm__list_remove(&op->node);
    free(op);
    sim.pending_ops--;
}

static sim_mark_t *op_blocking_dep(const sim_op_t *op) {
    for (uint32_t i = 0; i < op->dep_count; i++) {
        if (!op->deps[i]->is_resolved)
            return op->deps[i];
    }
    return NULL;
}

// Gives times to the ops at the head of the queue that can have them.
static bool stream_settle(sim_stream_t *stream) {
    bool moved = false;
    while (!berm__list_is_empty(&stream->pending)) {
        sim_op_t *op = op_of(stream->pending.next);
        if (op_blocking_dep(op) != NULL || (op->gate != NULL && op->gate->open_ns == UINT64_MAX))
            break;
        uint64_t start = berm__max_u64(op->issue_ns, stream->tail_ns);
        for (uint32_t i = 0; i < op->dep_count; i++)
            start = berm__max_u64(start, op->deps[i]->at_ns);
        uint64_t end = op->gate != NULL ? berm__max_u64(start, op->gate->open_ns)
                                        : sim_time_add(start, op->duration_ns);
        stream_advance(stream, end, op->gate != NULL || op->duration_ns != 0);
        mark_resolve(op->mark, end);
        if (op->effect != NULL) {
            sim.effects_pending--;
            sim_effect_queue(op->effect, end);
            op->effect = NULL;
        }
        op_destroy(op);
        moved = true;
    }
    return moved;
}

void sim_queue_settle(void) {
    bool moved = sim.pending_ops > 0;
    while (moved) {
        moved = false;
        for (berm_list_t *at = sim.context_list.next; at != &sim.context_list; at = at->next) {
            sim_context_t *context = BERM_CONTAINER_OF(at, sim_context_t, node);
            for (berm_list_t *s = context->streams.next; s != &context->streams; s = s->next)
                moved = stream_settle(stream_of(s)) || moved;
        }
    }
}

void sim_stream_drop_ops(sim_stream_t *stream) {
    while (!berm__list_is_empty(&stream->pending))
        op_destroy(op_of(stream->pending.next));
}

void sim_stream_add_effect(sim_stream_t *stream, sim_effect_t *effect) {
    op_of(stream->pending.prev)->effect = effect;
    sim.effects_pending++;
}

// --- gates ---------------------------------------------------------------------------------------

sim_gate_t *sim_gate_create(void) {
    sim_gate_t *gate = calloc(1, sizeof(*gate));
    if (gate == NULL)
        return NULL;
    gate->number = sim_id_next();
    gate->open_ns = UINT64_MAX;
    berm__list_push_back(&sim.gates, &gate->node);
    return gate;
}

void sim_gate_open_at(sim_gate_t *gate, uint64_t ns) {
    gate->open_ns = ns;
    sim_queue_settle();
}

// Opens the closed gate that `mark` waits for, directly or not.
static void mark_force(const sim_mark_t *mark) {
    const sim_op_t *op = op_of(mark->stream->pending.next);
    for (const sim_mark_t *dep; (dep = op_blocking_dep(op)) != NULL;)
        op = op_of(dep->stream->pending.next);
    BERM_INSIST(op->gate != NULL, "what waits for nothing has been settled");
    sim_hazard(SIMCUDA_HAZARD_DEADLOCK, 0,
               "the host waits for work on stream %llu that ends only when gate %llu is opened; "
               "the gate was opened",
               (unsigned long long)op->mark->stream->id, (unsigned long long)op->gate->number);
    sim_gate_open_at(op->gate, sim.now_ns);
}

// --- waiting -------------------------------------------------------------------------------------

void sim_wait_mark(sim_mark_t *mark) {
    mark->refs++;
    while (!mark->is_resolved)
        mark_force(mark);
    sim_wait_until(mark->at_ns);
    if (mark->clock_count != 0)
        sim_clock_host_join(mark->clock, mark->clock_count);
    sim_mark_drop(mark);
}

static void stream_wait_one(sim_stream_t *stream) {
    while (stream_last_mark(stream) != NULL)
        mark_force(stream_last_mark(stream));
    sim_wait_until(stream->tail_ns);
    if (sim.host_clock[stream->slot] < stream->clock[stream->slot])
        sim_clock_host_join(stream->clock, sim.slot_count);
}

// The legacy stream stands for the blocking streams of its context.
static bool stream_covers(const sim_stream_t *stream, const sim_stream_t *other) {
    return stream == other || (stream->is_legacy && stream_is_blocking(other));
}

void sim_wait_stream(sim_stream_t *stream) {
    const berm_list_t *streams = &stream->context->streams;
    for (berm_list_t *at = streams->next; at != streams; at = at->next) {
        if (stream_covers(stream, stream_of(at)))
            stream_wait_one(stream_of(at));
    }
}

void sim_wait_context(sim_context_t *context) {
    for (berm_list_t *at = context->streams.next; at != &context->streams; at = at->next)
        stream_wait_one(stream_of(at));
}

void sim_wait_device(int device) {
    for (berm_list_t *at = sim.context_list.next; at != &sim.context_list; at = at->next) {
        sim_context_t *context = BERM_CONTAINER_OF(at, sim_context_t, node);
        if (context->device == device)
            sim_wait_context(context);
    }
}

bool sim_mark_is_done(const sim_mark_t *mark) {
    return mark->is_resolved && mark->at_ns <= sim.now_ns;
}

bool sim_stream_is_done(const sim_stream_t *stream) {
    const berm_list_t *streams = &stream->context->streams;
    for (berm_list_t *at = streams->next; at != streams; at = at->next) {
        const sim_stream_t *other = stream_of(at);
        if (stream_covers(stream, other) &&
            (stream_last_mark(other) != NULL || other->tail_ns > sim.now_ns))
            return false;
    }
    return true;
}

bool sim_device_is_busy(int device) {
    if (device < 0)
        return false;
    if (sim.devices[device].tail_ns > sim.now_ns)
        return true;
    for (berm_list_t *at = sim.context_list.next; sim.pending_ops > 0 && at != &sim.context_list;
         at = at->next) {
        const sim_context_t *context = BERM_CONTAINER_OF(at, sim_context_t, node);
        const berm_list_t *streams = &context->streams;
        for (berm_list_t *s = streams->next; context->device == device && s != streams;
             s = s->next) {
            if (stream_last_mark(stream_of(s)) != NULL)
                return true;
        }
    }
    return false;
}
