// SPDX-License-Identifier: Apache-2.0
// Internal to stress/plot: what a program needs with each allocator (`berm shadow --compare
// --json`), and its picture.
#ifndef STRESS_PLOT_BARS_H
#define STRESS_PLOT_BARS_H

#include "stress/plot/svg.h"
#include "stress/trace/input.h"

enum {
    PLOT_BARS_MAX = 8,
};

typedef struct plot_bar {
    char allocator[32];
    uint64_t requested_bytes, reserved_bytes;
    uint64_t smallest_bytes; // 0: not known
    bool fits;
} plot_bar_t;

typedef struct plot_bars {
    const char *path;
    char gpu[64];
    plot_bar_t bars[PLOT_BARS_MAX];
    size_t count;
} plot_bars_t;

// Whether it is that JSON; what the program printed before it is passed over.
bool plot_bars_match(const trace_input_t *input);
// 0, or -1 with a line in `error`.
BERM_NODISCARD int plot_bars_read(plot_bars_t *bars, const trace_input_t *input, char *error,
                                  size_t error_capacity);
void plot_bars_draw(const plot_bars_t *bars, FILE *file, bool is_html);

#endif
