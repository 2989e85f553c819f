// SPDX-License-Identifier: Apache-2.0
// When a plan uses each granule next: see forecast.h.
#include "policy/forecast.h"

#include "host/mem.h"
#include "policy/planned.h"

static uint32_t granule_first(const berm_plan_t *plan, uint32_t item, unsigned lg) {
    return (uint32_t)(plan->offset_bytes[item] >> lg);
}

static uint32_t granule_end(const berm_plan_t *plan, const berm_course_t *course, uint32_t item,
                            unsigned lg) {
    uint64_t bytes = course->bytes[course->request_of[item]];
    return (uint32_t)((plan->offset_bytes[item] + bytes - 1) >> lg) + 1;
}

bool berm__forecast_init(berm_forecast_t *forecast, const berm_plan_t *plan,
                         const berm_course_t *course, unsigned lg_granule) {
    *forecast = (berm_forecast_t){.period = course->length, .granules = plan->mapping_count};
    forecast->first_of = berm__mem_alloc((forecast->granules + 1ull) * sizeof *forecast->first_of);
    if (forecast->first_of == NULL)
        return false;
    // How many there are, in the place after; then where they begin; then they are filled in, which
    // moves each beginning to its end, the next one's beginning.
    uint32_t *first_of = forecast->first_of;
    for (uint32_t item = 0; item < plan->item_count; item++)
        for (uint32_t at = granule_first(plan, item, lg_granule);
             at < granule_end(plan, course, item, lg_granule); at++)
            first_of[at + 1]++;
    for (uint32_t at = 0; at < forecast->granules; at++)
        first_of[at + 1] += first_of[at];
    uint32_t total = first_of[forecast->granules];
    forecast->begin = berm__mem_alloc(total * sizeof *forecast->begin);
    if (forecast->begin == NULL) {
        berm__forecast_destroy(forecast);
        return false;
    }
    for (uint32_t item = 0; item < plan->item_count; item++)
        for (uint32_t at = granule_first(plan, item, lg_granule);
             at < granule_end(plan, course, item, lg_granule); at++)
            forecast->begin[first_of[at]++] = course->request_of[item];
    for (uint32_t at = forecast->granules; at > 0; at--)
        first_of[at] = first_of[at - 1];
    first_of[0] = 0;
    return true;
}

void berm__forecast_destroy(berm_forecast_t *forecast) {
    if (forecast->begin != NULL)
        berm__mem_free(forecast->begin,
                       forecast->first_of[forecast->granules] * sizeof *forecast->begin);
    if (forecast->first_of != NULL)
        berm__mem_free(forecast->first_of,
                       (forecast->granules + 1ull) * sizeof *forecast->first_of);
    *forecast = (berm_forecast_t){0};
}

uint32_t berm__forecast_distance(const berm_forecast_t *forecast, uint64_t granule,
                                 uint32_t position) {
    if (granule >= forecast->granules)
        return forecast->period;
    uint32_t low = forecast->first_of[granule], end = forecast->first_of[granule + 1];
    uint32_t first = low, high = end;
    if (low == end)
        return forecast->period;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (forecast->begin[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end ? forecast->begin[low] - position
                     : forecast->begin[first] + forecast->period - position;
}
