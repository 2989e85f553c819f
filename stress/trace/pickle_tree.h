// SPDX-License-Identifier: Apache-2.0
// Internal to pickle.c and pickle_machine.c: the values of a pickle as they are built.
#ifndef STRESS_TRACE_PICKLE_TREE_H
#define STRESS_TRACE_PICKLE_TREE_H

#include "stress/trace/pickle.h"

typedef struct pickle_node {
    uint8_t kind;   // pickle_kind_t
    uint32_t count; // bytes of text, items of a list, twice the pairs of a dict
    union {
        int64_t integer;
        double real;
        uint64_t offset; // of text in the input, of items in `slots`
    } as;
} pickle_node_t;

// Values that need no node each: shared, made first.
enum {
    PICKLE_REF_NONE,
    PICKLE_REF_FALSE,
    PICKLE_REF_TRUE,
    PICKLE_REF_SMALL_INT, // 0, then 1 to 255
    PICKLE_REF_SHARED_END = PICKLE_REF_SMALL_INT + 256,
};

struct pickle {
    const uint8_t *bytes; // borrowed
    pickle_node_t *nodes;
    size_t node_count, node_capacity;
    pickle_ref_t *slots; // the items of all containers
    size_t slot_count, slot_capacity;
    pickle_ref_t root;
    size_t memory_bytes, memory_limit_bytes;
};

// Makes room for `more` items beyond `count`, within the limit on memory. -1 if that is reached or
// there is no memory.
BERM_NODISCARD int pickle__reserve(pickle_t *pickle, void **items, size_t count, size_t more,
                                   size_t *capacity, size_t item_size);

BERM_NODISCARD int pickle__add(pickle_t *pickle, const pickle_node_t *node, pickle_ref_t *added);
BERM_NODISCARD int pickle__add_int(pickle_t *pickle, int64_t value, pickle_ref_t *added);
BERM_NODISCARD int pickle__append(pickle_t *pickle, pickle_ref_t container,
                                  const pickle_ref_t *items, size_t count);

#endif
