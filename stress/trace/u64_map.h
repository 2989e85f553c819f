// SPDX-License-Identifier: Apache-2.0
// A hash map from 64-bit keys (addresses, ids, streams) to 32-bit indices. Entries are set and
// overwritten, never removed. A zeroed map is an empty one.
#ifndef STRESS_TRACE_U64_MAP_H
#define STRESS_TRACE_U64_MAP_H

#include <stdbool.h>

#include "base/defs.h"

#define TRACE_MAP_NONE UINT32_MAX // no index; cannot be stored

typedef struct trace_u64_map {
    uint64_t *keys;
    uint32_t *values; // TRACE_MAP_NONE in an empty slot
    size_t capacity;  // 0 or a power of two
    size_t count;
    uint64_t seed;
} trace_u64_map_t;

// The index stored for `key`, or TRACE_MAP_NONE.
uint32_t trace_u64_map_get(const trace_u64_map_t *map, uint64_t key);

// Stores or overwrites; -1 without memory, and then the map is unchanged.
BERM_NODISCARD int trace_u64_map_set(trace_u64_map_t *map, uint64_t key, uint32_t value);

void trace_u64_map_destroy(trace_u64_map_t *map);

#endif
