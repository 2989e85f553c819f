// SPDX-License-Identifier: Apache-2.0
// The address map: see addr_map.h. Open addressing with linear probing, at most half full; removal
// closes the gap, so that there are no tombstones. O(1) expected. Addresses that the table's own
// allocator chose are its keys, so a fixed mixing function is enough.
// Invariant: every key can be reached from its home slot without crossing an empty one.
// Locks: none; one thread at a time.
#include "stress/baselines/addr_map.h"

#include <stdlib.h>

enum {
    CAPACITY_FIRST = 64
};

void addr_map_init(addr_map_t *map) {
    *map = (addr_map_t){0};
}

void addr_map_destroy(addr_map_t *map) {
    free(map->slots);
    addr_map_init(map);
}

static size_t map_home(const addr_map_t *map, uint64_t addr) {
    uint64_t h = (addr >> 9) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h ^ (h >> 32)) & (map->capacity - 1);
}

static void map_put(addr_map_t *map, uint64_t addr, void *value) {
    size_t i = map_home(map, addr);
    while (map->slots[i].addr != 0)
        i = (i + 1) & (map->capacity - 1);
    map->slots[i] = (addr_map_slot_t){addr, value};
}

static bool map_grow(addr_map_t *map) {
    addr_map_t larger = {.capacity = map->capacity == 0 ? CAPACITY_FIRST : map->capacity * 2,
                         .count = map->count};
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].addr != 0)
            map_put(&larger, map->slots[i].addr, map->slots[i].value);
    free(map->slots);
    *map = larger;
    return true;
}

bool addr_map_insert(addr_map_t *map, uint64_t addr, void *value) {
    if ((map->count + 1) * 2 > map->capacity && !map_grow(map))
        return false;
    map_put(map, addr, value);
    map->count++;
    return true;
}

static addr_map_slot_t *map_slot(const addr_map_t *map, uint64_t addr) {
    if (map->count == 0 || addr == 0)
        return NULL;
    size_t i = map_home(map, addr);
    while (map->slots[i].addr != addr) {
        if (map->slots[i].addr == 0)
            return NULL;
        i = (i + 1) & (map->capacity - 1);
    }
    return &map->slots[i];
}

void *addr_map_find(const addr_map_t *map, uint64_t addr) {
    const addr_map_slot_t *slot = map_slot(map, addr);
    return slot == NULL ? NULL : slot->value;
}

void *addr_map_remove(addr_map_t *map, uint64_t addr) {
    addr_map_slot_t *slot = map_slot(map, addr);
    if (slot == NULL)
        return NULL;
    void *value = slot->value;
    size_t mask = map->capacity - 1;
    size_t hole = (size_t)(slot - map->slots);
    // Whatever follows in the run moves up, unless its home lies after the hole.
    for (size_t i = (hole + 1) & mask; map->slots[i].addr != 0; i = (i + 1) & mask) {
        size_t home = map_home(map, map->slots[i].addr);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole].addr = 0;
    map->count--;
    return value;
}

void *addr_map_next(const addr_map_t *map, size_t *position) {
    while (*position < map->capacity) {
        const addr_map_slot_t *slot = &map->slots[(*position)++];
        if (slot->addr != 0)
            return slot->value;
    }
    return NULL;
}
