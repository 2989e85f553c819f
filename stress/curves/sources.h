// SPDX-License-Identifier: Apache-2.0
// The traces that the curves are drawn of when none is named: the shipped recordings and generated
// ones, whose rules and seeds are fixed here.
#ifndef STRESS_CURVES_SOURCES_H
#define STRESS_CURVES_SOURCES_H

#include "stress/trace/generate.h"

typedef struct curves_source {
    const char *name;
    const char *kind; // as `berm gen` names it
    trace_generate_options_t options;
} curves_source_t;

extern const curves_source_t curves_sources[];
extern const size_t curves_source_count;
const curves_source_t *curves_source_find(const char *name); // NULL if unknown

// The recordings of the source tree that the program was built in. Returns how many paths it put
// into `paths`, each to be freed; 0 where there is no such tree.
size_t curves_shipped(char **paths, size_t capacity);

#endif
