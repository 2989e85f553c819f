// SPDX-License-Identifier: Apache-2.0
// The hash map of the trace readers against what it is told.
#include "stress/trace/u64_map.h"

#include <criterion/criterion.h>
#include <signal.h>

Test(u64_map, an_empty_map_finds_nothing) {
    trace_u64_map_t map = {0};
    cr_assert(trace_u64_map_get(&map, 0) == TRACE_MAP_NONE);
    cr_assert(trace_u64_map_get(&map, UINT64_MAX) == TRACE_MAP_NONE);
    trace_u64_map_destroy(&map);
}

Test(u64_map, keeps_every_key_over_growth) {
    trace_u64_map_t map = {0};
    const uint64_t stride = UINT64_C(1) << 44; // keys that agree in their low bits
    for (uint32_t i = 0; i < 100000; i++) {
        cr_assert(trace_u64_map_set(&map, i * stride, i) == 0);
    }
    cr_assert(map.count == 100000);
    for (uint32_t i = 0; i < 100000; i++) {
        cr_assert(trace_u64_map_get(&map, i * stride) == i);
    }
    cr_assert(trace_u64_map_get(&map, stride / 2) == TRACE_MAP_NONE);
    trace_u64_map_destroy(&map);
}

Test(u64_map, overwrites) {
    trace_u64_map_t map = {0};
    cr_assert(trace_u64_map_set(&map, 7, 1) == 0);
    cr_assert(trace_u64_map_set(&map, 7, 2) == 0);
    cr_assert(trace_u64_map_get(&map, 7) == 2);
    cr_assert(map.count == 1);
    trace_u64_map_destroy(&map);
}

Test(u64_map, refuses_the_value_that_marks_an_empty_slot, .signal = SIGABRT) {
    trace_u64_map_t map = {0};
    cr_assert(trace_u64_map_set(&map, 7, TRACE_MAP_NONE) == 0);
}
