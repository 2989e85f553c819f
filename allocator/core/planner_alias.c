// SPDX-License-Identifier: Apache-2.0
// Aliased plans: the period is replayed in order over a table of pages, and no mapping is ever
// overwritten. Each item takes the window of cells that needs the fewest new ones, among
//   - stretches inside an island,
//   - the end of one island, new cells, and the beginning of another, which are then one,
// where a window's cells lead to pages that are free throughout the item's life, no page twice.
// Islands have no place yet, so any two can be joined.
//
// The period is replayed again and again with other choices; the fewest cells win.
#include <string.h>

#include "base/bits.h"
#include "core/planner_inside.h"

#define NONE UINT32_MAX

// Of the search: measured on the buffers of compilers, where replays that choose by chance more
// often than not found fewer cells than those that always took the tightest window.
enum {
    ROUNDS_EXACT = 4,  // replays without chance
    CHANCE_OF = 16,    // chances are so many of this
    CHANCE_LEAST = 8,  // in each replay after that, from here
    CHANCE_MORE = 9,   // up to less than this more
    GOOD_CELLS = 2,    // cells a page that end the search
    SEARCH_SHARE = 4,  // of what planner__search_work gives
    MANY_PAGES = 4096, // from here on, 1 % more of them may be taken for a larger step
};

// What the search for a window has found.
typedef struct window {
    uint32_t head, suffix;            // island whose end is used, and how many cells of it
    uint32_t suffix_first;            // the first of them
    uint32_t next_head[2], prefix[2]; // islands whose beginnings are longest
    uint32_t inside, inside_length;   // first cell of a whole window, and the run it lies in
} window_t;

static uint32_t item_cells(const berm_planner_t *planner, uint32_t item) {
    uint64_t step = planner->alias.step_granules * planner->options.granule_bytes;
    uint64_t units = step / PLANNER_UNIT_BYTES;
    return (uint32_t)((planner->size[item] + units - 1) / units);
}

static uint32_t random_below(planner_alias_t *alias, uint32_t bound) {
    alias->random = alias->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((alias->random >> 32) * bound) >> 32);
}

// Does this choice of this replay go by chance?
static bool by_chance(planner_alias_t *alias) {
    return random_below(alias, CHANCE_OF) < alias->chance;
}

// --- the step of addresses ---------------------------------------------------------------------

// The most steps live at one time if every item is rounded up to the step.
static uint64_t peak_steps(berm_planner_t *planner, uint32_t step_granules) {
    planner_alias_t *alias = &planner->alias;
    alias->step_granules = step_granules;
    uint64_t live = 0, peak = 0;
    for (uint32_t i = 0; i < planner->count; i++)
        if (planner->end[i] > planner->options.period)
            live += item_cells(planner, i);
    peak = live;
    for (uint32_t b = 0, e = 0; b < planner->count; b++) {
        uint32_t item = alias->begin_order[b];
        for (; e < planner->count && planner->keys[alias->end_order[e]] <= planner->begin[item];
             e++)
            live -= item_cells(planner, alias->end_order[e]);
        live += item_cells(planner, item);
        peak = berm__max_u64(peak, live);
    }
    planner->done += 4 * (uint64_t)planner->count;
    return peak;
}

static uint32_t smallest_granules(const berm_planner_t *planner) {
    uint64_t smallest = UINT64_MAX, granule = planner->options.granule_bytes / PLANNER_UNIT_BYTES;
    for (uint32_t i = 0; i < planner->count; i++)
        smallest = berm__min_u64(smallest, planner->size[i]);
    return (uint32_t)((smallest + granule - 1) / granule);
}

// Chooses the largest step that costs no page too many: replays take time by their cells. False if
// even single granules take too many pages.
bool planner__alias_scale(berm_planner_t *planner) {
    planner_alias_t *alias = &planner->alias;
    uint64_t single = peak_steps(planner, 1), limit = single;
    if (planner->options.pages_max != 0)
        limit = planner->pages_cap;
    else if (single > MANY_PAGES)
        limit += single / 100;
    if (single > limit || single > alias->cells_max)
        return false;
    uint32_t step = smallest_granules(planner);
    while (step > 1 && peak_steps(planner, step) * step > limit)
        step = step & (step - 1) ? UINT32_C(1) << berm__bit_highest(step) : step / 2;
    alias->pages_wanted = (uint32_t)peak_steps(planner, step);
    alias->search_end = planner->done + SEARCH_SHARE * planner__search_work(planner);
    return true;
}

// --- pages -------------------------------------------------------------------------------------

// Ring of dead pages, oldest death first; its own element is cells_max.
static void dead_push(planner_alias_t *alias, uint32_t page) {
    uint32_t ring = alias->cells_max, last = alias->dead_prev[ring];
    alias->dead_next[last] = page;
    alias->dead_prev[page] = last;
    alias->dead_next[page] = ring;
    alias->dead_prev[ring] = page;
}

static void dead_remove(planner_alias_t *alias, uint32_t page) {
    alias->dead_next[alias->dead_prev[page]] = alias->dead_next[page];
    alias->dead_prev[alias->dead_next[page]] = alias->dead_prev[page];
}

// A page for a hole: not stamped as one of the window's, free until `end`. Never used pages first,
// up to the number wanted, then dead ones; more than that only if there is no other.
static uint32_t page_find(berm_planner_t *planner, uint32_t end, bool newest) {
    planner_alias_t *alias = &planner->alias;
    uint32_t ring = alias->cells_max;
    if (alias->page_count >= alias->pages_wanted) {
        const uint32_t *next = newest ? alias->dead_prev : alias->dead_next;
        // What was passed over for this window is of no use to its other holes either.
        while (alias->dead_at != ring) {
            uint32_t page = alias->dead_at;
            alias->dead_at = next[page];
            planner->done++;
            if (alias->seen[page] != alias->walk && alias->free_until[page] >= end)
                return page;
        }
    }
    uint64_t pages = (uint64_t)(alias->page_count + 1) * alias->step_granules;
    if (pages > planner->pages_cap || pages > alias->cells_max)
        return NONE;
    uint32_t page = alias->page_count++;
    alias->wrapped_begin[page] = alias->free_until[page] = NONE;
    alias->seen[page] = 0;
    dead_push(alias, page);
    return page;
}

// --- windows -----------------------------------------------------------------------------------

static void inside_offer(planner_alias_t *alias, window_t *window, uint32_t first, uint32_t length,
                         uint32_t wanted) {
    if (length < wanted)
        return;
    if (length > window->inside_length && !by_chance(alias))
        return;
    if (length == window->inside_length && random_below(alias, 2) == 0)
        return;
    window->inside = first;
    window->inside_length = length;
}

static void prefix_offer(window_t *window, uint32_t head, uint32_t length) {
    uint32_t place = length > window->prefix[0] ? 0 : 1;
    if (length <= window->prefix[place])
        return;
    if (place == 0) {
        window->prefix[1] = window->prefix[0];
        window->next_head[1] = window->next_head[0];
    }
    window->prefix[place] = length;
    window->next_head[place] = head;
}

// Walks one island with two hands: at each cell, `first` begins the longest stretch that ends here
// and could be part of a window.
static void island_walk(berm_planner_t *planner, window_t *window, uint32_t head, uint32_t end,
                        uint32_t wanted) {
    planner_alias_t *alias = &planner->alias;
    uint32_t first = head, first_at = 0, at = 0;
    alias->walk++;
    for (uint32_t cell = head; cell != NONE; cell = alias->next[cell], at++) {
        uint32_t page = alias->cell_page[cell];
        bool usable = alias->free_until[page] >= end;
        bool twice = alias->seen[page] == alias->walk && alias->seen_at[page] >= first_at;
        if (!usable || twice) {
            if (first_at == 0)
                prefix_offer(window, head, at);
            inside_offer(alias, window, first, at - first_at, wanted);
            uint32_t to = usable ? alias->seen_at[page] + 1 : at + 1;
            for (; first_at < to; first_at++)
                first = first == NONE ? NONE : alias->next[first];
        }
        alias->seen[page] = alias->walk;
        alias->seen_at[page] = at;
    }
    planner->done += at + 1;
    inside_offer(alias, window, first, at - first_at, wanted);
    if (at - first_at > window->suffix) {
        window->suffix = at - first_at;
        window->suffix_first = first;
        window->head = head;
    } else if (first_at == 0) {
        prefix_offer(window, head, at);
    }
}

static void island_remove(planner_alias_t *alias, uint32_t head) {
    uint32_t i = 0;
    while (alias->heads[i] != head)
        i++;
    alias->heads[i] = alias->heads[--alias->island_count];
}

// Appends to the island of `head`; NONE begins a new one. Returns the head.
static uint32_t cell_append(planner_alias_t *alias, uint32_t head, uint32_t page) {
    uint32_t cell = alias->cell_count++;
    alias->cell_page[cell] = page;
    alias->next[cell] = NONE;
    if (head == NONE) {
        head = cell;
        alias->heads[alias->island_count++] = head;
    } else {
        alias->next[alias->tail[head]] = cell;
    }
    alias->tail[head] = cell;
    return head;
}

// Marks the pages of `count` cells as part of the window; stops before one that is marked already.
static uint32_t cells_mark(planner_alias_t *alias, uint32_t cell, uint32_t count) {
    uint32_t marked = 0;
    for (; marked < count; cell = alias->next[cell], marked++) {
        if (alias->seen[alias->cell_page[cell]] == alias->walk)
            break;
        alias->seen[alias->cell_page[cell]] = alias->walk;
    }
    return marked;
}

// Builds the window of an item out of ends of islands and new cells. The first cell, or NONE when
// there are no pages or no cells left.
static uint32_t window_build(berm_planner_t *planner, window_t *window, uint32_t end,
                             uint32_t wanted) {
    planner_alias_t *alias = &planner->alias;
    uint32_t head = window->suffix > 0 ? window->head : NONE;
    uint32_t other = window->next_head[0] == head ? 1 : 0, prefix = 0;
    bool joins = alias->may_join && !by_chance(alias);
    alias->walk++;
    uint32_t suffix = cells_mark(alias, window->suffix_first, window->suffix);
    if (window->prefix[other] > 0 && joins) {
        uint32_t most = wanted - suffix;
        prefix = cells_mark(alias, window->next_head[other],
                            window->prefix[other] < most ? window->prefix[other] : most);
    }
    bool newest = alias->takes_newest ^ by_chance(alias);
    alias->dead_at = (newest ? alias->dead_prev : alias->dead_next)[alias->cells_max];
    uint32_t first = suffix > 0 ? window->suffix_first : NONE;
    for (uint32_t holes = wanted - suffix - prefix; holes > 0; holes--) {
        uint32_t page = page_find(planner, end, newest);
        if (page == NONE || alias->cell_count >= alias->cells_limit)
            return NONE;
        alias->seen[page] = alias->walk;
        head = cell_append(alias, head, page);
        if (first == NONE)
            first = head;
    }
    planner->done += wanted;
    if (prefix > 0) {
        uint32_t next_head = window->next_head[other];
        island_remove(alias, next_head);
        alias->next[alias->tail[head]] = next_head;
        alias->tail[head] = alias->tail[next_head];
    }
    return first;
}

static bool item_place(berm_planner_t *planner, uint32_t item) {
    planner_alias_t *alias = &planner->alias;
    const uint32_t period = planner->options.period, wanted = item_cells(planner, item);
    const bool wraps = planner->end[item] > period;
    // A page of an item that wraps is its own from the start of the period, and again at the end.
    uint32_t end = wraps ? NONE : planner->end[item];
    window_t window = {.inside = NONE, .inside_length = NONE};
    for (uint32_t i = 0; i < alias->island_count; i++)
        island_walk(planner, &window, alias->heads[i], end, wanted);
    uint32_t first = window.inside;
    if (first == NONE)
        first = window_build(planner, &window, end, wanted);
    if (first == NONE)
        return false;
    alias->first_cell[item] = first;
    for (uint32_t i = 0, cell = first; i < wanted; i++, cell = alias->next[cell]) {
        uint32_t page = alias->cell_page[cell];
        dead_remove(alias, page);
        alias->free_until[page] = 0;
        if (wraps)
            alias->wrapped_begin[page] = planner->begin[item];
    }
    planner->done += wanted;
    return true;
}

static void item_end(berm_planner_t *planner, uint32_t item) {
    planner_alias_t *alias = &planner->alias;
    uint32_t count = item_cells(planner, item), cell = alias->first_cell[item];
    for (uint32_t i = 0; i < count; i++, cell = alias->next[cell]) {
        uint32_t page = alias->cell_page[cell];
        alias->free_until[page] = alias->wrapped_begin[page];
        dead_push(alias, page);
    }
    planner->done += count;
}

// --- replays -----------------------------------------------------------------------------------

void planner__alias_begin(berm_planner_t *planner) {
    planner_alias_t *alias = &planner->alias;
    uint32_t ring = alias->cells_max;
    alias->cell_count = alias->page_count = alias->island_count = 0;
    alias->begin_at = alias->end_at = 0;
    alias->dead_next[ring] = alias->dead_prev[ring] = ring;
    alias->may_join = alias->round % 4 < 2;
    alias->takes_newest = alias->round % 2 == 1;
    alias->chance =
        alias->round < ROUNDS_EXACT ? 0 : CHANCE_LEAST + random_below(alias, CHANCE_MORE);
    // No better than the best is not good enough.
    alias->cells_limit = alias->cells_max / alias->step_granules;
    if (alias->best_cells <= alias->cells_limit)
        alias->cells_limit = alias->best_cells - 1;
    alias->has_failed = false;
}

// Items that wrap are placed first, all at once: begin_at runs twice through the order.
bool planner__alias_step(berm_planner_t *planner, uint64_t until) {
    planner_alias_t *alias = &planner->alias;
    const uint32_t count = planner->count;
    while (alias->begin_at < 2 * count && !alias->has_failed && planner->done < until) {
        bool is_first = alias->begin_at < count;
        uint32_t item = alias->begin_order[is_first ? alias->begin_at : alias->begin_at - count];
        bool wraps = planner->end[item] > planner->options.period;
        while (!is_first && alias->end_at < count &&
               planner->keys[alias->end_order[alias->end_at]] <= planner->begin[item])
            item_end(planner, alias->end_order[alias->end_at++]);
        if (wraps == is_first)
            alias->has_failed = !item_place(planner, item);
        alias->begin_at++;
        planner->done++;
    }
    return alias->begin_at == 2 * count || alias->has_failed;
}

static void swap(uint32_t **a, uint32_t **b) {
    uint32_t *other = *a;
    *a = *b;
    *b = other;
}

bool planner__alias_more(berm_planner_t *planner) {
    planner_alias_t *alias = &planner->alias;
    if (!alias->has_failed && alias->cell_count < alias->best_cells) {
        swap(&alias->cell_page, &alias->best_page);
        swap(&alias->next, &alias->best_next);
        swap(&alias->first_cell, &alias->best_cell);
        swap(&alias->heads, &alias->best_heads);
        alias->best_cells = alias->cell_count;
        alias->best_pages = alias->page_count;
        alias->best_islands = alias->island_count;
    }
    alias->round++;
    bool is_good =
        alias->best_cells != UINT32_MAX && alias->best_cells <= GOOD_CELLS * alias->best_pages;
    return planner->done < alias->search_end && !is_good;
}

void planner__alias_write(berm_planner_t *planner) {
    planner_alias_t *alias = &planner->alias;
    berm_plan_t *plan = &planner->plan;
    uint32_t step = alias->step_granules, at = 0, *place = alias->tail;
    for (uint32_t i = 0; i < alias->best_islands; i++)
        for (uint32_t cell = alias->best_heads[i]; cell != NONE;
             cell = alias->best_next[cell], at++) {
            place[cell] = at;
            for (uint32_t k = 0; k < step; k++)
                plan->page_of[at * step + k] = alias->best_page[cell] * step + k;
        }
    for (uint32_t i = 0; i < planner->count; i++)
        plan->offset_bytes[i] =
            place[alias->best_cell[i]] * (step * planner->options.granule_bytes);
    plan->mapping_count = at * step;
    plan->page_count = alias->best_pages * step;
}
