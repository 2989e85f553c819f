// SPDX-License-Identifier: Apache-2.0
// The page of a recording: what failed, figures, memory over time, a map of the segments, and who
// holds the memory, as one HTML file that needs no other and no script.
#ifndef STRESS_PLOT_PAGE_H
#define STRESS_PLOT_PAGE_H

#include <stdio.h>

#include "base/defs.h"
#include "record/record.h"

// Says what a call site is; `text` has `capacity` bytes.
typedef void (*plot_site_fn)(const berm_record_t *record, uint64_t address, char *text,
                             size_t capacity);

// `site` may be NULL: addresses are shown then. False without host memory; errors of the file are
// left for ferror.
bool plot_page_draw(const berm_record_t *record, const char *path, plot_site_fn site, FILE *file);

#endif
