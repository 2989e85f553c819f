// SPDX-License-Identifier: Apache-2.0
// Tables and progress for people, and what goes around the JSON of results for machines: see cli.h.
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static bool has_progress; // a line is on the terminal

void cli_progress(const char *what, uint64_t done, uint64_t total) {
    static int is_terminal = -1;
    if (is_terminal < 0)
        is_terminal = isatty(STDERR_FILENO);
    if (is_terminal != 1)
        return;
    uint64_t percent = total == 0 ? 0 : done * 100 / total;
    (void)fprintf(stderr, "\r\033[K%.60s %3" PRIu64 " %%", what, percent);
    (void)fflush(stderr);
    has_progress = true;
}

void cli_show_progress(void *what, uint64_t done, uint64_t total) {
    cli_progress(what, done, total);
}

void cli_progress_end(void) {
    if (!has_progress)
        return;
    (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    has_progress = false;
}

double cli_mib(uint64_t bytes) {
    return (double)bytes / (double)BERM_MIB(1);
}

void cli_results_begin(berm_emit_t *emit, size_t count) {
    berm__emit_init(emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    if (count == 1)
        return;
    berm__emit_object_begin(emit, NULL);
    berm__emit_array_begin(emit, "results");
}

void cli_results_end(berm_emit_t *emit, size_t count) {
    if (count != 1) {
        berm__emit_array_end(emit);
        berm__emit_object_end(emit);
    }
    berm__emit_finish(emit);
}

// Line `number` of a text, or "".
static const char *line_of(const char *text, int number, int *length) {
    for (; number > 0 && text != NULL; number--)
        text = strchr(text, '\n') != NULL ? strchr(text, '\n') + 1 : NULL;
    if (text == NULL)
        text = "";
    *length = (int)strcspn(text, "\n");
    return text;
}

static int line_count(const char *text) {
    int count = 1;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

void cli_table_head(cli_table_t *table, const char *const *names, size_t count) {
    int lines = 1;
    for (size_t i = 0; i < count; i++)
        lines = line_count(names[i]) > lines ? line_count(names[i]) : lines;
    for (int line = 0; line < lines; line++) {
        cli_table_row(table);
        for (size_t i = 0; i < count; i++) {
            // Short names stand on the last line.
            int length = 0, number = line - (lines - line_count(names[i]));
            const char *text = number >= 0 ? line_of(names[i], number, &length) : "";
            cli_table_cell(table, "%.*s", length, text);
        }
    }
}

void cli_table_row(cli_table_t *table) {
    if (table->rows < CLI_TABLE_ROWS)
        table->rows++;
    table->columns = 0;
}

void cli_table_cell(cli_table_t *table, const char *format, ...) {
    if (table->rows == 0 || table->columns == CLI_TABLE_COLUMNS)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(table->cells[table->rows - 1][table->columns], CLI_TABLE_CELL, format,
                    arguments);
    va_end(arguments);
    table->columns++;
}

void cli_table_print(const cli_table_t *table, FILE *file) {
    int widths[CLI_TABLE_COLUMNS] = {0};
    for (int row = 0; row < table->rows; row++)
        for (int i = 0; i < table->columns; i++) {
            int width = (int)strlen(table->cells[row][i]);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    for (int row = 0; row < table->rows; row++) {
        int last = table->columns - 1; // lines of a head may end early: no blanks at their end
        while (last > 0 && table->cells[row][last][0] == '\0')
            last--;
        for (int i = 0; i <= last; i++) {
            const char *cell = table->cells[row][i];
            if (i == table->columns - 1)
                (void)fprintf(file, "%s", cell);
            else
                (void)fprintf(file, "%*s%s", i == 0 ? -widths[i] : widths[i], cell,
                              i == last ? "" : "  ");
        }
        (void)fputc('\n', file);
    }
}

const char *cli_command_text(int argc, char *const *argv, char *text, size_t capacity) {
    size_t at = (size_t)snprintf(text, capacity, "berm");
    for (int i = 0; i < argc && at < capacity; i++) {
        int length = snprintf(text + at, capacity - at, " %s", argv[i]);
        at += length > 0 ? (size_t)length : 0;
    }
    for (char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    return text;
}
