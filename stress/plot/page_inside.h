// SPDX-License-Identifier: Apache-2.0
// Internal to stress/plot: the parts of a recording's page, one a device.
#ifndef STRESS_PLOT_PAGE_INSIDE_H
#define STRESS_PLOT_PAGE_INSIDE_H

#include "stress/plot/page.h"
#include "stress/plot/svg.h"

enum {
    PAGE_COLOURS = 10, // classes t0.., p0..
    PAGE_AGES = 5,     // classes a0 (newest) to a4
    PAGE_WIDTH = 960,
};

typedef struct page {
    plot_svg_t out;
    const berm_record_t *record;
    const berm_record_device_t *device;
    plot_site_fn site;
} page_t;

// A figure: shown, and in attributes data-name and data-bytes (or data-count) for programs.
void page_figure_bytes(page_t *page, const char *name, const char *words, uint64_t bytes);

// The bytes of a mapped run that no live block lies in, the longest such run, of what the recording
// ends with.
uint64_t page_largest_free(const berm_record_device_t *device);

// False without host memory.
bool page_time_draw(page_t *page);
void page_map_draw(page_t *page);
bool page_flame_draw(page_t *page);

// The colour of a tag, by its index; 0 is that of no tag.
static inline unsigned page_colour(unsigned index) {
    return index == 0 ? 0 : 1 + (index - 1) % (PAGE_COLOURS - 1);
}

#endif
