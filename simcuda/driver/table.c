// SPDX-License-Identifier: Apache-2.0
// Handle tables. A freed slot is used again with the next generation, so a handle that outlived
// its object is refused until 2^27 later objects have used the slot.
//
// Bound: O(1) a call. Locks: the state's. May fail: add, when host memory runs out.
#include "table.h"

#include <stdlib.h>

#define TABLE_GENERATION_MASK UINT32_C(0x07ffffff)

// The lowest bits are zero as those of the driver's pointers are: PyTorch keeps marks of its own in
// that of a stream.
enum {
    TABLE_LG_ALIGNMENT = 3
};

void sim_table_init(sim_table_t *table, sim_kind_t kind) {
    *table = (sim_table_t){.kind = kind};
}

void sim_table_clear(sim_table_t *table) {
    free(table->slots);
    sim_table_init(table, table->kind);
}

uint64_t sim_table_add(sim_table_t *table, void *object) {
    uint32_t index;
    if (table->free_head != 0) {
        index = table->free_head - 1;
        table->free_head = table->slots[index].next_free;
    } else {
        if (table->count >= UINT32_MAX >> TABLE_LG_ALIGNMENT)
            return 0;
        if (table->count == table->capacity) {
            uint32_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
            sim_slot_t *slots = realloc(table->slots, capacity * sizeof(*slots));
            if (slots == NULL)
                return 0;
            table->slots = slots;
            table->capacity = capacity;
        }
        index = table->count++;
        table->slots[index] = (sim_slot_t){.generation = 1};
    }
    table->slots[index].object = object;
    table->live++;
    return (uint64_t)table->kind << SIM_KIND_SHIFT |
           (uint64_t)table->slots[index].generation << 32 | (index + 1) << TABLE_LG_ALIGNMENT;
}

static sim_slot_t *table_slot(const sim_table_t *table, uint64_t handle) {
    uint32_t index = (uint32_t)handle >> TABLE_LG_ALIGNMENT; // plus 1
    if (index << TABLE_LG_ALIGNMENT != (uint32_t)handle)
        return NULL;
    if (handle >> SIM_KIND_SHIFT != (uint64_t)table->kind || index == 0 || index > table->count)
        return NULL;
    sim_slot_t *slot = &table->slots[index - 1];
    uint32_t generation = (uint32_t)(handle >> 32) & TABLE_GENERATION_MASK;
    return slot->object != NULL && slot->generation == generation ? slot : NULL;
}

void sim_table_remove(sim_table_t *table, uint64_t handle) {
    sim_slot_t *slot = table_slot(table, handle);
    if (slot == NULL)
        return;
    slot->object = NULL;
    slot->generation = (slot->generation + 1) & TABLE_GENERATION_MASK;
    slot->next_free = table->free_head;
    table->free_head = (uint32_t)handle >> TABLE_LG_ALIGNMENT;
    table->live--;
}

void *sim_table_get(const sim_table_t *table, uint64_t handle) {
    const sim_slot_t *slot = table_slot(table, handle);
    return slot != NULL ? slot->object : NULL;
}

void *sim_table_each(const sim_table_t *table, uint32_t *index) {
    while (*index < table->count) {
        void *object = table->slots[(*index)++].object;
        if (object != NULL)
            return object;
    }
    return NULL;
}
