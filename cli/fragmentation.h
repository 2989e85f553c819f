// SPDX-License-Identifier: Apache-2.0
// `berm bench fragmentation`: options and runs (fragmentation.c), output (fragmentation_output.c).
#ifndef CLI_FRAGMENTATION_H
#define CLI_FRAGMENTATION_H

#include "cli/cli.h"
#include "stress/curves/compare.h"

enum {
    CLI_FRAGMENTATION_TRACES_MAX = 64,
    CLI_FRAGMENTATION_NAME = 96,
};

typedef struct cli_fragmentation {
    curves_options_t options;
    trace_t *traces[CLI_FRAGMENTATION_TRACES_MAX];
    char names[CLI_FRAGMENTATION_TRACES_MAX][CLI_FRAGMENTATION_NAME]; // for the output
    size_t trace_count;
    trace_read_options_t read;
    char *latencies; // the text that the options' latencies point into, or NULL
    size_t jobs;
    bool is_json;
    int argc; // the command as given
    char **argv;
    curves_point_t *points; // of all traces
    size_t point_count;
    curves_summary_t summaries[CURVES_VARIANTS_MAX * CURVES_LATENCIES_MAX];
    size_t summary_count;
} cli_fragmentation_t;

// argv[0] is "bench", argv[1] "fragmentation".
int cli_fragmentation_run(int argc, char **argv);
void cli_fragmentation_help(void); // its part of `berm bench --help`

void cli_fragmentation_print_csv(const cli_fragmentation_t *f);
void cli_fragmentation_print_json(const cli_fragmentation_t *f);

#endif
