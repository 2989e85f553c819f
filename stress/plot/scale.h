// SPDX-License-Identifier: Apache-2.0
// Axes and the thinning of points. Pure functions.
#ifndef STRESS_PLOT_SCALE_H
#define STRESS_PLOT_SCALE_H

#include "base/defs.h"

// Ticks stand at 0, step, ... count * step, the last at or above the largest value.
typedef struct plot_ticks {
    double step;       // in units
    unsigned count;    // 1 to PLOT_TICKS_MAX
    double unit;       // how much one is
    const char *label; // "MiB", or "" for plain numbers
} plot_ticks_t;

enum {
    PLOT_TICKS_MAX = 8,
    PLOT_TEXT_CAPACITY = 32,
};

plot_ticks_t plot_ticks_bytes(uint64_t largest);
plot_ticks_t plot_ticks_us(uint64_t largest); // microseconds; "us", "ms" or "s"
plot_ticks_t plot_ticks_count(uint64_t largest);
double plot_ticks_top(const plot_ticks_t *ticks); // the value of the last tick

// "812.3 MiB", "512 B".
const char *plot_bytes_text(uint64_t bytes, char text[PLOT_TEXT_CAPACITY]);
// "812 us", "1.5 ms", "12.3 s".
const char *plot_us_text(uint64_t us, char text[PLOT_TEXT_CAPACITY]);
// "1,234,567".
const char *plot_count_text(uint64_t count, char text[PLOT_TEXT_CAPACITY]);

// Which of `count` values to draw: the first, the last, and the least and the greatest of each
// stretch between. Writes at most `indices_max` (4 or more), ascending; returns how many.
size_t plot_thin(const uint64_t *values, size_t count, size_t *indices, size_t indices_max);

#endif
