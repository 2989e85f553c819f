// SPDX-License-Identifier: Apache-2.0
// The hash map of the trace readers: open addressing with linear probing, at most half full.
//
// Layout: two arrays of `capacity` slots, a key and a value each; an empty slot has the value
// TRACE_MAP_NONE.
// Bounds: expected O(1) per call; 24 bytes per entry at the fullest, 48 at the emptiest. Keys come
// from files that may be hostile, so the hash is keyed with a seed drawn per map: a file cannot be
// written to collide. Nothing depends on the order of slots, so results do not depend on the seed.
// Locks: none; a map belongs to one reader.
// May fail: set, for want of memory; the map is then as it was.
#include "stress/trace/u64_map.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "base/insist.h"

static uint64_t hash(uint64_t key, uint64_t seed) {
    uint64_t z = key ^ seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// The slot that holds `key`, or the empty one where it belongs.
static size_t find_slot(const trace_u64_map_t *map, uint64_t key) {
    size_t mask = map->capacity - 1;
    size_t slot = (size_t)hash(key, map->seed) & mask;
    while (map->values[slot] != TRACE_MAP_NONE && map->keys[slot] != key) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

uint32_t trace_u64_map_get(const trace_u64_map_t *map, uint64_t key) {
    return map->capacity == 0 ? TRACE_MAP_NONE : map->values[find_slot(map, key)];
}

static uint64_t draw_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        seed = (uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)now.tv_sec;
    }
    return seed;
}

static int grow(trace_u64_map_t *map) {
    trace_u64_map_t bigger = {
        .capacity = map->capacity == 0 ? 64 : map->capacity * 2,
        .count = map->count,
        .seed = map->capacity == 0 ? draw_seed() : map->seed,
    };
    bigger.keys = calloc(bigger.capacity, sizeof *bigger.keys);
    bigger.values = calloc(bigger.capacity, sizeof *bigger.values);
    if (bigger.keys == NULL || bigger.values == NULL) {
        free(bigger.keys);
        free(bigger.values);
        return -1;
    }
    for (size_t i = 0; i < bigger.capacity; i++) {
        bigger.values[i] = TRACE_MAP_NONE;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->values[i] != TRACE_MAP_NONE) {
            size_t slot = find_slot(&bigger, map->keys[i]);
            bigger.keys[slot] = map->keys[i];
            bigger.values[slot] = map->values[i];
        }
    }
    free(map->keys);
    free(map->values);
    *map = bigger;
    return 0;
}

int trace_u64_map_set(trace_u64_map_t *map, uint64_t key, uint32_t value) {
    BERM_INSIST(value != TRACE_MAP_NONE, "TRACE_MAP_NONE marks an empty slot");
    if ((map->count + 1) * 2 > map->capacity && grow(map) != 0) {
        return -1;
    }
    size_t slot = find_slot(map, key);
    if (map->values[slot] == TRACE_MAP_NONE) {
        map->keys[slot] = key;
        map->count++;
    }
    map->values[slot] = value;
    return 0;
}

void trace_u64_map_destroy(trace_u64_map_t *map) {
    free(map->keys);
    free(map->values);
    *map = (trace_u64_map_t){0};
}
