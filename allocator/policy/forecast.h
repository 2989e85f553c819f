// SPDX-License-Identifier: Apache-2.0
// When a plan uses each granule of its arena next: what pages go first when others need them. Of a
// cycle that is followed, the page that is wanted again last is the best to take (Belady, "A study
// of replacement algorithms", 1966).
//
//   granule g: begin[first_of[g]] < begin[first_of[g] + 1] < ... < begin[first_of[g + 1]]
//              positions in the period at which a block over it begins
//
// Memory: 4 bytes for each granule of each block of the period. Locks: the pool's; constant once
// made.
#ifndef BERM_POLICY_FORECAST_H
#define BERM_POLICY_FORECAST_H

#include "core/planner.h"

struct berm_course;

typedef struct berm_forecast {
    uint32_t period;
    uint32_t granules;
    uint32_t *first_of; // of granules + 1
    uint32_t *begin;
} berm_forecast_t;

// For a plan and the course it was made for. False without host memory.
BERM_NODISCARD bool berm__forecast_init(berm_forecast_t *forecast, const berm_plan_t *plan,
                                        const struct berm_course *course, unsigned lg_granule);
// One that was not made, all zero, is allowed.
void berm__forecast_destroy(berm_forecast_t *forecast);

// In how many requests a granule of the arena is wanted, when the next one is at `position`: below
// the period; the period for one that no block lies on. Logarithmic in the blocks over it.
uint32_t berm__forecast_distance(const berm_forecast_t *forecast, uint64_t granule,
                                 uint32_t position);

#endif
