// SPDX-License-Identifier: Apache-2.0
// The phases of a planner in order, and its memory: see planner.h for what it promises.
#include "core/planner.h"

#include "base/bits.h"
#include "core/planner_inside.h"
#include "host/mem.h"

// Elementary steps of a plan whose options name no limit: about 2 s.
#define WORK_DEFAULT (2000 * BERM_PLANNER_WORK_PER_MS)

static bool options_are_sound(const berm_planner_options_t *options) {
    return berm__is_pow2(options->granule_bytes) && options->granule_bytes >= PLANNER_UNIT_BYTES &&
           options->period >= 1 && options->period < UINT32_MAX / 4;
}

static bool item_is_sound(const berm_plan_item_t *item, uint32_t period) {
    return item->size_bytes != 0 && item->size_bytes % PLANNER_UNIT_BYTES == 0 &&
           item->begin < period && item->end <= period;
}

// Sound items, whose granules (each item's rounded up) are summed up.
static bool items_are_sound(const berm_plan_item_t *items, uint32_t count,
                            const berm_planner_options_t *options, uint64_t *granules) {
    *granules = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!item_is_sound(&items[i], options->period) || items[i].size_bytes >> 62 != 0)
            return false;
        uint64_t rounded = berm__align_up(items[i].size_bytes, options->granule_bytes);
        if (!berm__add_checked(*granules, rounded / options->granule_bytes, granules))
            return false;
    }
    // Sums of sizes fit too.
    uint64_t bytes;
    return count < UINT32_MAX / 4 && berm__mul_checked(*granules, options->granule_bytes, &bytes);
}

// --- memory ------------------------------------------------------------------------------------

// Gives out pieces of one piece of memory; with no memory it only adds up.
typedef struct carver {
    char *memory;
    uint64_t used_bytes;
} carver_t;

static void *carve(carver_t *carver, uint64_t count, uint64_t size_bytes) {
    void *piece = carver->memory == NULL ? NULL : carver->memory + carver->used_bytes;
    carver->used_bytes += berm__align_up(count * size_bytes, 64);
    return piece;
}

static uint32_t *carve_u32(carver_t *carver, uint64_t count) {
    return carve(carver, count, sizeof(uint32_t));
}

static uint64_t *carve_u64(carver_t *carver, uint64_t count) {
    return carve(carver, count, sizeof(uint64_t));
}

static void alias_carve(planner_alias_t *alias, carver_t *carver, uint64_t count) {
    const uint64_t cells = (uint64_t)alias->cells_max + 1;
    uint32_t **by_item[] = {&alias->begin_order, &alias->end_order, &alias->first_cell,
                            &alias->best_cell};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(by_item); i++)
        *by_item[i] = carve_u32(carver, count);
    uint32_t **by_cell[] = {&alias->cell_page, &alias->next,          &alias->best_page,
                            &alias->best_next, &alias->heads,         &alias->best_heads,
                            &alias->tail,      &alias->wrapped_begin, &alias->free_until,
                            &alias->seen,      &alias->seen_at,       &alias->dead_next,
                            &alias->dead_prev};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(by_cell); i++)
        *by_cell[i] = carve_u32(carver, cells);
}

static void planner_carve(berm_planner_t *planner, carver_t *carver) {
    const uint64_t count = planner->count;
    planner->begin = carve_u32(carver, count);
    planner->end = carve_u32(carver, count);
    planner->size = carve_u64(carver, count);
    planner->delta = carve_u64(carver, planner->options.period);
    planner->keys = carve_u64(carver, count);
    planner->pack.spans = carve(carver, 2 * count, sizeof(planner_span_t));
    planner->pack.order = carve_u32(carver, count);
    planner->pack.best_order = carve_u32(carver, count);
    planner->pack.offset = carve_u64(carver, count);
    planner->pack.best_offset = carve_u64(carver, count);
    planner->plan.offset_bytes = carve_u64(carver, count);
    planner->plan.page_of = carve_u32(carver, planner->alias.cells_max);
    if (planner->options.may_alias)
        alias_carve(&planner->alias, carver, count);
}

// Memory is reserved, so that only what a plan needs is touched.
static bool planner_reserve(berm_planner_t *planner) {
    carver_t carver = {NULL, 64};
    planner_carve(planner, &carver);
    planner->memory_bytes = carver.used_bytes;
    planner->memory = berm__mem_reserve(carver.used_bytes);
    if (planner->memory == NULL)
        return false;
    carver = (carver_t){planner->memory, 0};
    planner_carve(planner, &carver);
    return true;
}

static void items_copy(berm_planner_t *planner, const berm_plan_item_t *items) {
    const uint32_t period = planner->options.period;
    for (uint32_t i = 0; i < planner->count; i++) {
        const uint32_t end = items[i].end % period;
        planner->begin[i] = items[i].begin;
        planner->end[i] = end;
        planner->size[i] = items[i].size_bytes / PLANNER_UNIT_BYTES;
        planner->delta[items[i].begin] += planner->size[i];
        planner->delta[end] -= planner->size[i];
        if (end <= items[i].begin)
            planner->live += planner->size[i]; // before position 0
    }
}

berm_planner_t *berm__planner_create(const berm_plan_item_t *items, uint32_t item_count,
                                     const berm_planner_options_t *options) {
    uint64_t granules;
    if (!options_are_sound(options) || !items_are_sound(items, item_count, options, &granules))
        return NULL;
    berm_planner_t *planner = berm__mem_alloc(sizeof *planner);
    if (planner == NULL)
        return NULL;
    planner->options = *options;
    if (options->work_max == 0)
        planner->options.work_max = WORK_DEFAULT;
    planner->count = item_count;
    // Rounding to larger steps may double what an aliased plan maps.
    uint64_t cells = berm__min_u64(2 * granules, options->mappings_max);
    planner->alias.cells_max = (uint32_t)berm__min_u64(cells, UINT32_MAX / 4);
    planner->lowest = planner->pack.best_height = UINT64_MAX;
    planner->alias.best_cells = UINT32_MAX;
    planner->plan.item_count = item_count;
    if (!planner_reserve(planner)) {
        berm__mem_free(planner, sizeof *planner);
        return NULL;
    }
    items_copy(planner, items);
    return planner;
}

void berm__planner_destroy(berm_planner_t *planner) {
    if (planner == NULL)
        return;
    berm__mem_unreserve(planner->memory, planner->memory_bytes);
    berm__mem_free(planner, sizeof *planner);
}

// --- phases ------------------------------------------------------------------------------------

static void time_rotate(berm_planner_t *planner) {
    const uint32_t period = planner->options.period;
    for (uint32_t i = 0; i < planner->count; i++) {
        uint32_t begin = planner->begin[i], end = planner->end[i];
        uint32_t lifetime = end > begin ? end - begin : end + period - begin;
        planner->begin[i] =
            begin >= planner->cut ? begin - planner->cut : begin + period - planner->cut;
        planner->end[i] = planner->begin[i] + lifetime;
    }
    planner->done += planner->count;
}

static void limits_set(berm_planner_t *planner) {
    const berm_planner_options_t *options = &planner->options;
    uint64_t least = planner__pack_pages(planner, planner->peak);
    uint64_t most = options->pages_max == 0 ? options->mappings_max : options->pages_max;
    most = berm__min_u64(most, options->mappings_max);
    planner->plan.peak_bytes = planner->peak * PLANNER_UNIT_BYTES;
    planner->pages_cap = (uint32_t)most;
    if (least > most) {
        planner->state = BERM_PLANNER_CANNOT;
        planner->phase = PLANNER_OVER;
        return;
    }
    planner->pages_least = (uint32_t)least;
    planner->pages_good = options->pages_max == 0 ? (uint32_t)least : (uint32_t)most;
    planner->phase = PLANNER_PACK_SORT;
    planner__pack_begin(planner);
}

static void peak_step(berm_planner_t *planner, uint64_t until) {
    for (; planner->position < planner->options.period && planner->done < until;
         planner->position++, planner->done++) {
        planner->live += planner->delta[planner->position];
        planner->peak = berm__max_u64(planner->peak, planner->live);
        if (planner->live < planner->lowest) {
            planner->lowest = planner->live;
            planner->cut = planner->position;
        }
    }
    if (planner->position < planner->options.period)
        return;
    time_rotate(planner);
    limits_set(planner);
}

static void begin_sort_begin(berm_planner_t *planner) {
    for (uint32_t i = 0; i < planner->count; i++)
        planner->keys[i] = planner->begin[i];
    planner__sort_begin(&planner->sort, planner->alias.begin_order, planner->keys, planner->count);
    planner->done += planner->count;
    planner->phase = PLANNER_BEGIN_SORT;
}

// Keys: where in the rotated period each item ends. Replays use them too.
static void end_sort_begin(berm_planner_t *planner) {
    const uint32_t period = planner->options.period;
    for (uint32_t i = 0; i < planner->count; i++)
        planner->keys[i] = planner->end[i] > period ? planner->end[i] - period : planner->end[i];
    planner__sort_begin(&planner->sort, planner->alias.end_order, planner->keys, planner->count);
    planner->done += planner->count;
    planner->phase = PLANNER_END_SORT;
}

static bool has_packing(const berm_planner_t *planner) {
    return planner->pack.best_height != UINT64_MAX &&
           planner__pack_pages(planner, planner->pack.best_height) <= planner->pages_cap;
}

static void pack_end(berm_planner_t *planner) {
    if (planner__pack_more(planner)) {
        planner__pack_begin(planner);
        planner->phase = planner->sort.to_pop > 1 ? PLANNER_PACK_SORT : PLANNER_PACK;
        return;
    }
    if (planner__pack_pages(planner, planner->pack.best_height) <= planner->pages_good ||
        !planner->options.may_alias)
        planner->phase = PLANNER_FINISH;
    else
        begin_sort_begin(planner);
}

static void replay_end(berm_planner_t *planner) {
    if (planner__alias_more(planner))
        planner__alias_begin(planner);
    else
        planner->phase = PLANNER_FINISH;
}

static void packing_write(berm_planner_t *planner) {
    berm_plan_t *plan = &planner->plan;
    for (uint32_t i = 0; i < planner->count; i++)
        plan->offset_bytes[i] = planner->pack.best_offset[i] * PLANNER_UNIT_BYTES;
    uint32_t pages = (uint32_t)planner__pack_pages(planner, planner->pack.best_height);
    for (uint32_t i = 0; i < pages; i++)
        plan->page_of[i] = i;
    plan->mapping_count = plan->page_count = pages;
}

// The packing, unless an aliased plan has fewer pages.
static void finish(berm_planner_t *planner) {
    const planner_alias_t *alias = &planner->alias;
    bool has_alias = alias->best_cells != UINT32_MAX, packs = has_packing(planner);
    if (packs && has_alias)
        packs = planner__pack_pages(planner, planner->pack.best_height) <=
                (uint64_t)alias->best_pages * alias->step_granules;
    planner->phase = PLANNER_OVER;
    planner->state = packs || has_alias ? BERM_PLANNER_DONE : BERM_PLANNER_CANNOT;
    if (packs)
        packing_write(planner);
    else if (has_alias)
        planner__alias_write(planner);
    planner->plan.is_aliased = planner->plan.mapping_count > planner->plan.page_count;
    planner->plan.arena_bytes = planner->plan.mapping_count * planner->options.granule_bytes;
    planner->done += planner->count + planner->plan.mapping_count;
}

static void phase_step(berm_planner_t *planner, uint64_t until) {
    if (planner->done >= planner->options.work_max)
        planner->phase = PLANNER_FINISH;
    switch (planner->phase) {
    case PLANNER_PEAK:
        peak_step(planner, until);
        break;
    case PLANNER_PACK_SORT:
        if (planner__sort_step(&planner->sort, &planner->done, until))
            planner->phase = PLANNER_PACK;
        break;
    case PLANNER_PACK:
        if (planner__pack_step(planner, until))
            pack_end(planner);
        break;
    case PLANNER_BEGIN_SORT:
        if (planner__sort_step(&planner->sort, &planner->done, until))
            end_sort_begin(planner);
        break;
    case PLANNER_END_SORT:
        if (planner__sort_step(&planner->sort, &planner->done, until))
            planner->phase = PLANNER_SCALE;
        break;
    case PLANNER_SCALE:
        planner->phase = planner__alias_scale(planner) ? PLANNER_REPLAY : PLANNER_FINISH;
        if (planner->phase == PLANNER_REPLAY)
            planner__alias_begin(planner);
        break;
    case PLANNER_REPLAY:
        if (planner__alias_step(planner, until))
            replay_end(planner);
        break;
    case PLANNER_FINISH:
        finish(planner);
        break;
    case PLANNER_OVER:
        break;
    }
}

berm_planner_state_t berm__planner_step(berm_planner_t *planner, uint64_t work) {
    uint64_t until = planner->done + berm__min_u64(work, UINT64_MAX - planner->done);
    // The limit is met at the same item however the work is sliced.
    while (planner->state == BERM_PLANNER_WORKING && planner->done < until)
        phase_step(planner, berm__min_u64(until, planner->options.work_max));
    return planner->state;
}

const berm_plan_t *berm__planner_plan(const berm_planner_t *planner) {
    return planner->state == BERM_PLANNER_DONE ? &planner->plan : NULL;
}

uint64_t berm__planner_work(const berm_planner_t *planner) {
    return planner->done;
}
