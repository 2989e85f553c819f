// SPDX-License-Identifier: Apache-2.0
// Pictures of memory as self-contained SVG or HTML.
#ifndef STRESS_PLOT_PLOT_H
#define STRESS_PLOT_PLOT_H

#include <stdbool.h>

#include "stress/plot/page.h"
#include "stress/trace/trace.h"

// Whether a picture can be written there: the path ends in .svg or .html.
bool plot_path_is_known(const char *output_path);

// Draws the file at `path`, whose kind is found by content: memory over time for a series of `berm
// replay --series` or a trace, a segment map for a snapshot, a page for a recording, whose call
// sites `site` names (NULL: addresses). 0, or -1 with a line in `error`; the output file is then
// not there.
BERM_NODISCARD int plot_file(const char *path, const trace_read_options_t *read, plot_site_fn site,
                             const char *output_path, char *error, size_t error_capacity);

#endif
