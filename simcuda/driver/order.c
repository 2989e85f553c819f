// SPDX-License-Identifier: Apache-2.0
// Happens-before by vector clocks. Every stream has a slot; a clock has one count per slot and
// says "of that stream, the work up to this number happened before". The host has one clock: its
// threads are one as far as order goes (what they agree among themselves cannot be seen here).
//
// Bound: a join is O(slots). Slots are as many as streams alive at once, or not yet seen done.
// Invariant: every clock has sim.slot_capacity entries, so that a join never needs memory; only
// taking a slot does, and it changes nothing when it fails.
// Locks: the state's.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

bool sim_clock_create(uint64_t **clock) {
    *clock = calloc(sim.slot_capacity, sizeof(**clock));
    return *clock != NULL;
}

void sim_clock_join(uint64_t *clock, const uint64_t *other, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (clock[i] < other[i])
            clock[i] = other[i];
    }
}

void sim_clock_host_join(const uint64_t *other, uint32_t count) {
    sim_clock_join(sim.host_clock, other, count);
    sim.host_version++;
}

static uint64_t *clock_grown(const uint64_t *clock, uint32_t capacity) {
    uint64_t *grown = calloc(capacity, sizeof(*grown));
    if (grown != NULL && clock != NULL)
        memcpy(grown, clock, sim.slot_capacity * sizeof(*grown));
    return grown;
}

// Visits every clock there is; `next` yields them one by one.
typedef struct clock_walk {
    berm_list_t *context;
    berm_list_t *stream;
} clock_walk_t;

static uint64_t **clock_next(clock_walk_t *walk) {
    if (walk->context == NULL) {
        walk->context = sim.context_list.next;
        if (walk->context != &sim.context_list)
            walk->stream = BERM_CONTAINER_OF(walk->context, sim_context_t, node)->streams.next;
        return &sim.host_clock;
    }
    while (walk->context != &sim.context_list) {
        sim_context_t *context = BERM_CONTAINER_OF(walk->context, sim_context_t, node);
        if (walk->stream != &context->streams) {
            sim_stream_t *stream = BERM_CONTAINER_OF(walk->stream, sim_stream_t, node);
            walk->stream = walk->stream->next;
            return &stream->clock;
        }
        walk->context = walk->context->next;
        if (walk->context != &sim.context_list)
            walk->stream = BERM_CONTAINER_OF(walk->context, sim_context_t, node)->streams.next;
    }
    return NULL;
}

// Makes room for more slots in every clock, or leaves all as it was.
static bool slots_grow(void) {
    uint32_t capacity = sim.slot_capacity == 0 ? 16 : sim.slot_capacity * 2;
    uint32_t count = 0;
    clock_walk_t walk = {0};
    while (clock_next(&walk) != NULL)
        count++;
    uint64_t **grown = calloc(count, sizeof(*grown));
    sim_stream_slot_t *slots = calloc(capacity, sizeof(*slots));
    bool ok = grown != NULL && slots != NULL;
    walk = (clock_walk_t){0};
    for (uint32_t i = 0; ok && i < count; i++)
        ok = (grown[i] = clock_grown(*clock_next(&walk), capacity)) != NULL;
    walk = (clock_walk_t){0};
    for (uint32_t i = 0; ok && i < count; i++) {
        uint64_t **clock = clock_next(&walk);
        uint64_t *old = *clock;
        *clock = grown[i];
        grown[i] = old;
    }
    for (uint32_t i = 0; grown != NULL && i < count; i++)
        free(grown[i]);
    free(grown);
    if (!ok) {
        free(slots);
        return false;
    }
    if (sim.slots != NULL)
        memcpy(slots, sim.slots, sim.slot_count * sizeof(*slots));
    free(sim.slots);
    sim.slots = slots;
    sim.slot_capacity = capacity;
    return true;
}

bool sim_slot_take(uint64_t stream_id, uint32_t *slot) {
    uint32_t index = 0;
    while (index < sim.slot_count && sim.slots[index].is_used)
        index++;
    if (index == sim.slot_capacity && !slots_grow())
        return false;
    if (index == sim.slot_count)
        sim.slot_count++;
    sim.slots[index].is_used = true;
    sim.slots[index].stream_id = stream_id;
    *slot = index;
    return true;
}

void sim_slot_give(uint32_t slot, uint64_t last) {
    BERM_ASSERT(sim.host_clock[slot] >= last, "the host has seen all its work done");
    sim.slots[slot].is_used = false;
    sim.slots[slot].last = last;
}

// --- marks ---------------------------------------------------------------------------------------

sim_mark_t *sim_mark_create(void) {
    sim_mark_t *mark = calloc(1, sizeof(*mark) + sim.slot_count * sizeof(mark->clock[0]));
    if (mark != NULL) {
        mark->refs = 1;
        mark->clock_count = sim.slot_count;
    }
    return mark;
}

void sim_mark_drop(sim_mark_t *mark) {
    if (--mark->refs == 0)
        free(mark);
}

void sim_mark_stamp(sim_mark_t *mark, const uint64_t *clock) {
    memcpy(mark->clock, clock, mark->clock_count * sizeof(*clock));
}
