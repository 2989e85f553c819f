// SPDX-License-Identifier: Apache-2.0
// Mappings: memory at an address, who may touch it, and the work that may still do so. The calls
// that edit them are in page_table.c, cuMemAlloc's in malloc.c.
//
// Bound: O(log n) to find; the work on a mapping is one time and one mark for each piece of work
// behind a closed gate. Locks: the state's.
#include <stdio.h>
#include <stdlib.h>

#include "sim.h"

static sim_mapping_t *mapping_of(sim_node_t *node) {
    return node != NULL ? BERM_CONTAINER_OF(node, sim_mapping_t, node) : NULL;
}

sim_mapping_t *sim_mapping_at(uint64_t addr) {
    sim_mapping_t *mapping = mapping_of(sim_tree_floor(&sim.mappings, addr));
    return mapping != NULL && addr - mapping->node.key < mapping->size_bytes ? mapping : NULL;
}

sim_mapping_t *sim_mapping_from(uint64_t addr) {
    sim_mapping_t *mapping = sim_mapping_at(addr);
    return mapping != NULL ? mapping : mapping_of(sim_tree_ceil(&sim.mappings, addr));
}

sim_mapping_t *sim_mapping_next(const sim_mapping_t *mapping) {
    return mapping_of(sim_tree_next(&mapping->node));
}

sim_mapping_t *sim_mapping_create(uint64_t addr, uint64_t bytes, sim_memory_t *memory) {
    sim_mapping_t *mapping = calloc(1, sizeof(*mapping));
    if (mapping == NULL)
        return NULL;
    mapping->size_bytes = bytes;
    mapping->id = sim_id_next();
    mapping->memory = memory;
    memory->mappings++;
    sim_tree_insert(&sim.mappings, &mapping->node, addr);
    return mapping;
}

void sim_mapping_free(sim_mapping_t *mapping) {
    for (uint32_t i = 0; i < mapping->busy_mark_count; i++)
        sim_mark_drop(mapping->busy_marks[i]);
    free(mapping->busy_marks);
    free(mapping);
}

void sim_mapping_destroy(sim_mapping_t *mapping) {
    sim_memory_t *memory = mapping->memory;
    sim_tree_remove(&sim.mappings, &mapping->node);
    sim_mapping_free(mapping);
    memory->mappings--;
    sim_memory_settle(memory);
}

// --- work on it ----------------------------------------------------------------------------------

// Turns marks whose time has become known into the time.
static void mapping_settle(sim_mapping_t *mapping) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mapping->busy_mark_count; i++) {
        sim_mark_t *mark = mapping->busy_marks[i];
        if (!mark->is_resolved) {
            mapping->busy_marks[kept++] = mark;
            continue;
        }
        mapping->busy_ns = berm__max_u64(mapping->busy_ns, mark->at_ns);
        sim_mark_drop(mark);
    }
    mapping->busy_mark_count = kept;
}

static bool mapping_add_mark(sim_mapping_t *mapping, sim_mark_t *mark) {
    mapping_settle(mapping);
    if (mapping->busy_mark_count == mapping->busy_mark_capacity) {
        uint32_t capacity = mapping->busy_mark_capacity == 0 ? 2 : mapping->busy_mark_capacity * 2;
        sim_mark_t **marks = realloc(mapping->busy_marks, capacity * sizeof(sim_mark_t *));
        if (marks == NULL)
            return false;
        mapping->busy_marks = marks;
        mapping->busy_mark_capacity = capacity;
    }
    mark->refs++;
    mapping->busy_marks[mapping->busy_mark_count++] = mark;
    return true;
}

bool sim_mapping_add_work(sim_mapping_t *mapping, const sim_stream_t *stream,
                          const sim_issue_t *issue) {
    if (issue->pending == NULL && issue->end_ns < mapping->busy_ns)
        return true;
    mapping->busy_stream_id = stream->id;
    mapping->busy_count = stream->clock[stream->slot];
    mapping->busy_device = stream->context->device;
    if (issue->pending != NULL)
        return mapping_add_mark(mapping, issue->pending);
    mapping->busy_ns = issue->end_ns;
    return true;
}

bool sim_mapping_is_busy(sim_mapping_t *mapping, char *words, size_t words_size) {
    mapping_settle(mapping);
    bool is_open = mapping->busy_mark_count > 0;
    if (!is_open && mapping->busy_ns <= sim.now_ns)
        return false;
    int length = snprintf(words, words_size, "work %llu of stream %llu may touch it ",
                          (unsigned long long)mapping->busy_count,
                          (unsigned long long)mapping->busy_stream_id);
    size_t used = length > 0 && (size_t)length < words_size ? (size_t)length : 0;
    if (is_open)
        (void)snprintf(words + used, words_size - used, "until a gate opens");
    else
        (void)snprintf(words + used, words_size - used, "until %llu ns",
                       (unsigned long long)mapping->busy_ns);
    return true;
}
