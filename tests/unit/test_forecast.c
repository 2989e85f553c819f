// SPDX-License-Identifier: Apache-2.0
// When a plan uses each granule next, against a search through all of its blocks.
#include <criterion/criterion.h>

#include "base/rng.h"
#include "policy/planned.h"

enum {
    LG = 21,
    ITEMS = 300,
    PERIOD = 400,
    GRANULES = 64,
};

static uint32_t slow_distance(const berm_plan_t *plan, const berm_course_t *course,
                              uint64_t granule, uint32_t position) {
    uint32_t least = PERIOD;
    for (uint32_t item = 0; item < plan->item_count; item++) {
        uint64_t first = plan->offset_bytes[item] >> LG;
        uint64_t last =
            (plan->offset_bytes[item] + course->bytes[course->request_of[item]] - 1) >> LG;
        uint32_t distance = (course->request_of[item] + PERIOD - position) % PERIOD;
        if (granule >= first && granule <= last && distance < least)
            least = distance;
    }
    return least;
}

Test(forecast, distances_are_those_of_a_search) {
    static uint64_t offsets[ITEMS];
    berm_rng_t rng;
    berm_course_t course;
    berm_forecast_t forecast;
    berm__rng_seed(&rng, 7);
    cr_assert(berm__course_init(&course, PERIOD));
    for (uint32_t i = 0; i < PERIOD; i++) {
        course.bytes[i] = 512 * (1 + berm__rng_below(&rng, 20000));
        course.item_of[i] = BERM_ITEM_NONE;
        if (course.item_count == ITEMS || i % 4 == 3)
            continue;
        uint64_t room = ((uint64_t)(GRANULES - 1) << LG) - course.bytes[i]; // the last: no block
        offsets[course.item_count] = 512 * berm__rng_below(&rng, room / 512);
        course.request_of[course.item_count] = i;
        course.item_of[i] = course.item_count++;
    }
    const berm_plan_t plan = {.offset_bytes = offsets,
                              .arena_bytes = (uint64_t)GRANULES << LG,
                              .item_count = course.item_count,
                              .mapping_count = GRANULES,
                              .page_count = GRANULES};
    cr_assert(berm__forecast_init(&forecast, &plan, &course, LG));
    for (uint64_t granule = 0; granule < GRANULES; granule++)
        for (uint32_t position = 0; position < PERIOD; position += 3)
            cr_assert(berm__forecast_distance(&forecast, granule, position) ==
                      slow_distance(&plan, &course, granule, position));
    cr_assert(berm__forecast_distance(&forecast, GRANULES - 1, 5) == PERIOD);
    cr_assert(berm__forecast_distance(&forecast, GRANULES + 9, 5) == PERIOD);
    berm__forecast_destroy(&forecast);
    berm__course_destroy(&course);
}
