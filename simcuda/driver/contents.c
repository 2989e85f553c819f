// SPDX-License-Identifier: Apache-2.0
// What work does in backed mode: effects wait in a heap for the host's clock, and are carried out
// in the order of their times (of their launches, among equals). What happens at one time is thus
// the same whoever moved the clock.
//
// An effect happens at the end of its work; that of a kernel that overlaps the one before it and
// touches its memory through another address happens at its start, so that the bytes are wrong.
// Work whose memory is not there any more, or whose context has an error, has no effect.
//
// Bound: O(log n) an effect. Locks: the state's, held while kernels run. May fail: creation.
// Invariant: effects holds room for those of pending ops too, so that queueing them cannot fail.
#include <stdlib.h>
#include <string.h>

#include "pool.h"

sim_effect_t *sim_effect_create(const sim_stream_t *stream, const sim_issue_t *issue,
                                const simcuda_access_t *accesses, size_t count) {
    uint32_t needed = sim.effect_count + sim.effects_pending + 1;
    if (needed > sim.effect_capacity) {
        uint32_t capacity = needed < 32 ? 64 : needed * 2;
        sim_effect_t **effects = realloc(sim.effects, capacity * sizeof(sim_effect_t *));
        if (effects == NULL)
            return NULL;
        sim.effects = effects;
        sim.effect_capacity = capacity;
    }
    sim_effect_t *effect = malloc(sizeof(*effect) + count * sizeof(effect->accesses[0]));
    if (effect == NULL)
        return NULL;
    *effect = (sim_effect_t){.number = ++sim.effect_number,
                             .context = stream->context->handle,
                             .action = *issue->action,
                             .access_count = (uint32_t)count};
    if (count > 0)
        memcpy(effect->accesses, accesses, count * sizeof(*accesses));
    return effect;
}

// --- the heap ------------------------------------------------------------------------------------

static bool effect_is_before(const sim_effect_t *a, const sim_effect_t *b) {
    return a->ns != b->ns ? a->ns < b->ns : a->number < b->number;
}

void sim_effect_queue(sim_effect_t *effect, uint64_t ns) {
    uint32_t at = sim.effect_count++;
    effect->ns = ns;
    while (at > 0 && effect_is_before(effect, sim.effects[(at - 1) / 2])) {
        sim.effects[at] = sim.effects[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim.effects[at] = effect;
}

static sim_effect_t *effect_take(void) {
    sim_effect_t *first = sim.effects[0];
    sim_effect_t *last = sim.effects[--sim.effect_count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < sim.effect_count; at = child) {
        if (child + 1 < sim.effect_count &&
            effect_is_before(sim.effects[child + 1], sim.effects[child]))
            child++;
        if (!effect_is_before(sim.effects[child], last))
            break;
        sim.effects[at] = sim.effects[child];
    }
    sim.effects[at] = last;
    return first;
}

void sim_effect_drop(sim_effect_t *effect) {
    sim.effects_pending--;
    free(effect);
}

void sim_effects_clear(void) {
    for (uint32_t i = 0; i < sim.effect_count; i++)
        free(sim.effects[i]);
    free(sim.effects);
    sim.effects = NULL;
    sim.effect_count = sim.effect_capacity = 0;
}

// --- carrying out --------------------------------------------------------------------------------

// Where the memory at `at` that the work may touch ends; `at` if it may not. A block of a pool that
// has been freed since is still the pool's memory: the free comes later in stream order.
static uint64_t access_reach(const sim_context_t *context, uint64_t at, bool is_copy,
                             bool is_write) {
    const sim_mapping_t *mapping = sim_mapping_at(at);
    if (mapping == NULL)
        return sim_pools_reach(at);
    return sim_mapping_allows(mapping, context, is_copy, is_write)
               ? mapping->node.key + mapping->size_bytes
               : at;
}

// Whether all the memory the work names is there and may be touched.
static bool effect_is_possible(const sim_effect_t *effect, const sim_context_t *context) {
    bool is_copy = effect->action.kind != SIM_ACTION_KERNEL;
    for (uint32_t i = 0; i < effect->access_count; i++) {
        const simcuda_access_t *access = &effect->accesses[i];
        uint64_t end = access->addr + access->size_bytes;
        for (uint64_t at = access->addr, to; at < end; at = to) {
            to = access_reach(context, at, is_copy, access->is_write != 0);
            if (to == at)
                return false;
        }
    }
    return true;
}

static void contents_fill(void *to, const sim_action_t *action) {
    if (action->width == 1) {
        memset(to, (int)action->value, action->bytes);
        return;
    }
    for (uint64_t at = 0; at < action->bytes; at += action->width) // little-endian
        memcpy((char *)to + at, &action->value, action->width);
}

static void effect_act(const sim_effect_t *effect) {
    const sim_action_t *action = &effect->action;
    void *to = (void *)(uintptr_t)action->to;
    switch (action->kind) {
    case SIM_ACTION_KERNEL:
        sim_thread.is_in_kernel = true;
        atomic_store_explicit(&sim_is_in_kernel, true, memory_order_relaxed);
        action->fn(action->argument);
        atomic_store_explicit(&sim_is_in_kernel, false, memory_order_relaxed);
        sim_thread.is_in_kernel = false;
        break;
    case SIM_ACTION_COPY:
        if (effect->reads_stale)
            memset(to, 0, action->bytes);
        else
            memmove(to, (const void *)(uintptr_t)action->from, action->bytes);
        break;
    case SIM_ACTION_FILL:
        contents_fill(to, action);
        break;
    case SIM_ACTION_NONE:
    case SIM_ACTION_HOST:
        break;
    }
}

static void effect_carry_out(const sim_effect_t *effect) {
    sim_context_t *context = sim_table_get(&sim.contexts, effect->context);
    if (context == NULL || context->sticky != BERM_CU_SUCCESS ||
        (context->has_fault && context->fault_ns <= effect->ns))
        return;
    // A mapping that is not visible yet swallows writes; a kernel cannot be told what it read.
    if (effect->writes_stale || (effect->reads_stale && effect->action.kind == SIM_ACTION_KERNEL))
        return;
    if (effect_is_possible(effect, context))
        effect_act(effect);
    else
        sim_context_fault(context, effect->ns);
}

void sim_effect_act(sim_effect_t *effect, uint64_t ns) {
    effect->ns = ns;
    effect_carry_out(effect);
    free(effect);
}

void sim_effects_run_until(uint64_t ns) {
    while (sim.effect_count > 0 && sim.effects[0]->ns <= ns) {
        sim_effect_t *effect = effect_take();
        effect_carry_out(effect);
        free(effect);
    }
}
