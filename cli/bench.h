// SPDX-License-Identifier: Apache-2.0
// The parts of `berm bench`: options and runs (bench.c), output (bench_output.c), instruction
// counts by valgrind (bench_valgrind.c).
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/cli.h"
#include "stress/bench/bench.h"
#include "stress/device.h"

enum {
    CLI_BENCH_CASES_MAX = 16,
};

typedef struct cli_bench {
    bench_options_t options;
    const bench_case_t *cases[CLI_BENCH_CASES_MAX];
    size_t case_count;
    stress_device_options_t device;
    bool is_json, wants_instructions, is_bare;
    uint64_t bare_operations;
    int argc; // the command as given
    char **argv;
    bench_row_t *rows; // of all cases, allocator_count each
    size_t row_count;
} cli_bench_t;

void cli_bench_print_csv(const cli_bench_t *bench);
void cli_bench_print_json(const cli_bench_t *bench);

// Fills in the instructions of the rows that have none, by running this program under valgrind.
// CLI_OK, or CLI_BAD after a line.
int cli_bench_valgrind(cli_bench_t *bench);

// Runs argv[0] (looked for in PATH), and keeps the end of what it writes to `descriptor` (1 or 2).
// Its exit status, or -1 when it could not be run.
int cli_bench_spawn(char *const *argv, int descriptor, char *output, size_t capacity);

#endif
