// SPDX-License-Identifier: Apache-2.0
// The address map against a plain array, with addresses that collide.
#include <criterion/criterion.h>

#include "base/rng.h"
#include "stress/baselines/addr_map.h"

enum {
    KEYS = 1000
};

Test(addr_map, agrees_with_a_plain_array) {
    static bool present[KEYS];
    static int values[KEYS];
    addr_map_t map;
    berm_rng_t rng;
    addr_map_init(&map);
    berm__rng_seed(&rng, 3);
    size_t count = 0;
    for (int step = 0; step < 50000; step++) {
        size_t i = (size_t)berm__rng_below(&rng, KEYS);
        uint64_t addr = UINT64_C(0x700000000000) + i * 512;
        cr_assert(addr_map_find(&map, addr) == (present[i] ? &values[i] : NULL));
        if (present[i]) {
            cr_assert(addr_map_remove(&map, addr) == &values[i]);
            count--;
        } else {
            cr_assert(addr_map_insert(&map, addr, &values[i]));
            count++;
        }
        present[i] = !present[i];
        cr_assert(map.count == count);
    }
    size_t position = 0, seen = 0;
    while (addr_map_next(&map, &position) != NULL)
        seen++;
    cr_assert(seen == count);
    addr_map_destroy(&map);
}

Test(addr_map, empty_map_knows_nothing) {
    addr_map_t map;
    addr_map_init(&map);
    size_t position = 0;
    cr_assert(addr_map_find(&map, 512) == NULL);
    cr_assert(addr_map_remove(&map, 512) == NULL);
    cr_assert(addr_map_find(&map, 0) == NULL);
    cr_assert(addr_map_next(&map, &position) == NULL);
    addr_map_destroy(&map);
}
