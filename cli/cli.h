// SPDX-License-Identifier: Apache-2.0
// What the subcommands share: their table, exit codes, reading of arguments, output.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/defs.h"
#include "base/emit.h"

enum {
    CLI_OK = 0,
    CLI_FINDING = 1, // out of memory, a leak, a hazard
    CLI_BAD = 2,     // bad usage or bad input; one line on standard error says what and where
};

typedef struct cli_command {
    const char *name;
    const char *summary;               // one line
    const char *help;                  // the text of --help
    void (*help_more)(void);           // prints what follows it; NULL for nothing
    int (*run)(int argc, char **argv); // argv[0] is the command's name
} cli_command_t;

extern const cli_command_t cli_replay, cli_fit, cli_gen, cli_bench, cli_calibrate, cli_info,
    cli_conf, cli_diff, cli_export, cli_plot, cli_record, cli_report, cli_run, cli_shadow,
    cli_stress, cli_top;

// Prints "berm COMMAND: TEXT" on standard error as one line; returns CLI_BAD. Nothing is printed
// for an empty text: libberm has written the line itself, as it does for bad options.
int cli_fail(const char *command, const char *format, ...) BERM_PRINTF(2, 3);

// The same line, of what is odd but goes on.
void cli_warn(const char *command, const char *format, ...) BERM_PRINTF(2, 3);

// Numbers. False when the text is not one, or out of range.
bool cli_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *value);
// "1048576", "24G", "1.5M": K, M, G, T are powers of 1024, and "KiB" or "KB" mean the same; 1 to
// 2^62, whole bytes.
bool cli_parse_bytes(const char *text, uint64_t *value);
// A finite decimal number from `least` to `most`.
bool cli_parse_double(const char *text, double least, double most, double *value);
// Copies the next name of a comma list and moves *text behind it; false where there is none, or one
// too long. *text is at its NUL after the last.
enum {
    CLI_NAME_CAPACITY = 1024, // lib:FILE among them
};
bool cli_list_next(const char **text, char name[CLI_NAME_CAPACITY]);

// A line at the bottom of a terminal's standard error; nothing where that is no terminal.
void cli_progress(const char *what, uint64_t done, uint64_t total);
void cli_show_progress(void *what, uint64_t done, uint64_t total); // for callbacks of stress
void cli_progress_end(void);

double cli_mib(uint64_t bytes);

// "berm" and the arguments, as the first line of a result names its command; control characters are
// written as question marks. Returns `text`.
const char *cli_command_text(int argc, char *const *argv, char *text, size_t capacity);

// JSON on standard output around `count` objects: one stands alone, others are {"results": [...]}.
void cli_results_begin(berm_emit_t *emit, size_t count);
void cli_results_end(berm_emit_t *emit, size_t count);

// Without BERM_CONF and BERM_CONF_FILE: what a command measures must not depend on them.
void cli_environment_forget(void);

// A table with aligned columns: the first column left, the others right, the last left.
enum {
    CLI_TABLE_COLUMNS = 12,
    CLI_TABLE_ROWS = 66,
    CLI_TABLE_CELL = 64,
};

typedef struct cli_table {
    int columns, rows;
    char cells[CLI_TABLE_ROWS][CLI_TABLE_COLUMNS][CLI_TABLE_CELL];
} cli_table_t;

// The first rows: a name for each column, as many lines as the one with most newlines has.
void cli_table_head(cli_table_t *table, const char *const *names, size_t count);
// Starts a row; what does not fit into the table is not kept.
void cli_table_row(cli_table_t *table);
void cli_table_cell(cli_table_t *table, const char *format, ...) BERM_PRINTF(2, 3);
void cli_table_print(const cli_table_t *table, FILE *file);

#endif
