// SPDX-License-Identifier: Apache-2.0
// The values of a pickle: an arena of nodes, and the questions callers ask of it. The opcodes are
// in pickle_machine.c.
//
// Layout: `nodes` holds 16 bytes per value; `slots` holds the items of containers as runs of
// 32-bit numbers. The run of a container with n items has the next power of two of slots; when it
// is full it moves to the end of `slots`, or grows in place if it is there already.
// Bounds: no recursion anywhere; memory under a limit set by the size of the input.
// Locks: none. May fail: reserve and what uses it, at the limit or for want of memory.
#include "stress/trace/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/trace/pickle_tree.h"

int pickle__reserve(pickle_t *pickle, void **items, size_t count, size_t more, size_t *capacity,
                    size_t item_size) {
    size_t needed = count + more;
    if (needed <= *capacity) {
        return 0;
    }
    size_t bigger = *capacity == 0 ? 256 : *capacity * 2;
    bigger = bigger < needed ? needed : bigger;
    size_t taken = (bigger - *capacity) * item_size;
    if (taken > pickle->memory_limit_bytes - pickle->memory_bytes) {
        return -1;
    }
    void *moved = realloc(*items, bigger * item_size);
    if (moved == NULL) {
        return -1;
    }
    pickle->memory_bytes += taken;
    *items = moved;
    *capacity = bigger;
    return 0;
}

int pickle__add(pickle_t *pickle, const pickle_node_t *node, pickle_ref_t *added) {
    void *nodes = pickle->nodes;
    if (pickle->node_count >= UINT32_MAX ||
        pickle__reserve(pickle, &nodes, pickle->node_count, 1, &pickle->node_capacity,
                        sizeof *pickle->nodes) != 0) {
        return -1;
    }
    pickle->nodes = nodes;
    *added = (pickle_ref_t)pickle->node_count;
    pickle->nodes[pickle->node_count++] = *node;
    return 0;
}

int pickle__add_int(pickle_t *pickle, int64_t value, pickle_ref_t *added) {
    if (value >= 0 && value < 256) {
        *added = PICKLE_REF_SMALL_INT + (pickle_ref_t)value;
        return 0;
    }
    pickle_node_t node = {.kind = PICKLE_INT, .as.integer = value};
    return pickle__add(pickle, &node, added);
}

static size_t run_capacity(size_t count) {
    if (count <= 1) {
        return count;
    }
    return (size_t)2 << berm__bit_highest(count - 1);
}

int pickle__append(pickle_t *pickle, pickle_ref_t container, const pickle_ref_t *items,
                   size_t count) {
    pickle_node_t *node = &pickle->nodes[container];
    size_t total = node->count + count;
    size_t room = run_capacity(node->count);
    if (total > UINT32_MAX) {
        return -1;
    }
    if (total > room) {
        bool is_last = node->as.offset + room == pickle->slot_count && room > 0;
        size_t more = run_capacity(total) - (is_last ? room : 0);
        void *slots = pickle->slots;
        if (pickle__reserve(pickle, &slots, pickle->slot_count, more, &pickle->slot_capacity,
                            sizeof *pickle->slots) != 0) {
            return -1;
        }
        pickle->slots = slots;
        if (!is_last) {
            if (node->count > 0) {
                memcpy(pickle->slots + pickle->slot_count, pickle->slots + node->as.offset,
                       node->count * sizeof *items);
            }
            node->as.offset = pickle->slot_count;
        }
        pickle->slot_count += more;
    }
    if (count > 0) {
        memcpy(pickle->slots + node->as.offset + node->count, items, count * sizeof *items);
    }
    node->count = (uint32_t)total;
    return 0;
}

void pickle_destroy(pickle_t *pickle) {
    if (pickle == NULL) {
        return;
    }
    free(pickle->nodes);
    free(pickle->slots);
    free(pickle);
}

pickle_ref_t pickle_root(const pickle_t *pickle) {
    return pickle->root;
}

pickle_kind_t pickle_kind(const pickle_t *pickle, pickle_ref_t value) {
    return (pickle_kind_t)pickle->nodes[value].kind;
}

const char *pickle_kind_name(pickle_kind_t kind) {
    static const char *const names[] = {
        [PICKLE_NONE] = "None",   [PICKLE_BOOL] = "bool",   [PICKLE_INT] = "int",
        [PICKLE_FLOAT] = "float", [PICKLE_STR] = "str",     [PICKLE_BYTES] = "bytes",
        [PICKLE_LIST] = "list",   [PICKLE_TUPLE] = "tuple", [PICKLE_DICT] = "dict",
    };
    return names[kind];
}

int64_t pickle_int(const pickle_t *pickle, pickle_ref_t value) {
    return pickle->nodes[value].as.integer;
}

double pickle_float(const pickle_t *pickle, pickle_ref_t value) {
    return pickle->nodes[value].as.real;
}

const char *pickle_text(const pickle_t *pickle, pickle_ref_t value, size_t *length) {
    const pickle_node_t *node = &pickle->nodes[value];
    *length = node->count;
    return (const char *)pickle->bytes + node->as.offset;
}

bool pickle_text_is(const pickle_t *pickle, pickle_ref_t value, const char *text) {
    const pickle_node_t *node = &pickle->nodes[value];
    size_t length = strlen(text);
    return node->kind == PICKLE_STR && node->count == length &&
           memcmp(pickle->bytes + node->as.offset, text, length) == 0;
}

size_t pickle_count(const pickle_t *pickle, pickle_ref_t value) {
    const pickle_node_t *node = &pickle->nodes[value];
    return node->kind == PICKLE_DICT ? node->count / 2 : node->count;
}

pickle_ref_t pickle_item(const pickle_t *pickle, pickle_ref_t value, size_t index) {
    return pickle->slots[pickle->nodes[value].as.offset + index];
}

bool pickle_find(const pickle_t *pickle, pickle_ref_t dict, const char *key, pickle_ref_t *found) {
    const pickle_node_t *node = &pickle->nodes[dict];
    for (size_t i = node->count; i > 0; i -= 2) {
        if (pickle_text_is(pickle, pickle_item(pickle, dict, i - 2), key)) {
            *found = pickle_item(pickle, dict, i - 1);
            return true;
        }
    }
    return false;
}

size_t pickle_memory_bytes(const pickle_t *pickle) {
    return pickle->memory_bytes;
}
