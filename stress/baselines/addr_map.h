// SPDX-License-Identifier: Apache-2.0
// A hash map from device addresses to records: how the baselines find the block of a free.
#ifndef STRESS_BASELINES_ADDR_MAP_H
#define STRESS_BASELINES_ADDR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct addr_map_slot {
    uint64_t addr; // 0: empty
    void *value;
} addr_map_slot_t;

typedef struct addr_map {
    addr_map_slot_t *slots;
    size_t capacity; // a power of two, or 0
    size_t count;
} addr_map_t;

void addr_map_init(addr_map_t *map);
void addr_map_destroy(addr_map_t *map);
// The address is not 0 and not in the map. False when there is no memory; nothing changed then.
bool addr_map_insert(addr_map_t *map, uint64_t addr, void *value);
void *addr_map_find(const addr_map_t *map, uint64_t addr);    // NULL where absent
void *addr_map_remove(addr_map_t *map, uint64_t addr);        // the same
void *addr_map_next(const addr_map_t *map, size_t *position); // walks; *position starts at 0

#endif
