// SPDX-License-Identifier: Apache-2.0
// Handles given out to the program: numbers, never pointers, so that a stale or made-up one is
// recognised and not followed. A handle is 0, kind, generation and index: 1 + 4 + 27 + 32 bits. The
// first is 0 since programs keep handles in signed integers, as a user's addresses allow.
#ifndef SIM_TABLE_H
#define SIM_TABLE_H

#include <stdbool.h>

#include "base/defs.h"

enum {
    SIM_KIND_SHIFT = 59
};

typedef enum sim_kind {
    SIM_KIND_CONTEXT = 1,
    SIM_KIND_STREAM,
    SIM_KIND_EVENT,
    SIM_KIND_GRAPH,
    SIM_KIND_EXEC,
    SIM_KIND_POOL,
    SIM_KIND_STEP, // of a graph: not in a table
    SIM_KIND_MEMORY,
    SIM_KIND_MODULE,   // and libraries
    SIM_KIND_FUNCTION, // and kernels
    SIM_KIND_LINKER,
} sim_kind_t;

typedef struct sim_slot {
    void *object;        // NULL: free
    uint32_t generation; // of the object here, or of the next one
    uint32_t next_free;
} sim_slot_t;

typedef struct sim_table {
    sim_slot_t *slots;
    uint32_t count, capacity;
    uint32_t free_head; // index + 1; 0: none
    uint32_t live;
    sim_kind_t kind;
} sim_table_t;

void sim_table_init(sim_table_t *table, sim_kind_t kind);
void sim_table_clear(sim_table_t *table);
// The new handle, or 0 when host memory ran out.
uint64_t sim_table_add(sim_table_t *table, void *object);
void sim_table_remove(sim_table_t *table, uint64_t handle);
// NULL for anything that is not a live handle of this table.
void *sim_table_get(const sim_table_t *table, uint64_t handle);
// Walks the live objects: start with *index 0; NULL at the end.
void *sim_table_each(const sim_table_t *table, uint32_t *index);

#endif
