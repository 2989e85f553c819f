// SPDX-License-Identifier: Apache-2.0
// Internal to stress/trace: rows and fields of CSV in memory, without copying. LF or CRLF; a field
// may stand in double quotes (no line breaks inside; a doubled quote stays doubled); blank lines
// are skipped. The first row names the columns, in any order; a reader asks for those it needs.
#ifndef STRESS_TRACE_CSV_H
#define STRESS_TRACE_CSV_H

#include "base/defs.h"
#include "stress/trace/input.h"
#include "stress/trace/trace_builder.h"

enum {
    CSV_COLUMNS_MAX = 32
};

typedef struct csv_field {
    const char *text; // not NUL-terminated
    size_t length;
} csv_field_t;

typedef struct csv {
    const char *name; // of the file
    const char *bytes;
    size_t size;
    size_t offset; // of the next line
    uint64_t line; // of the current row, from 1
    size_t field_count;
    csv_field_t fields[CSV_COLUMNS_MAX];
    size_t column_count;           // of the header
    size_t where[CSV_COLUMNS_MAX]; // the reader's column number to the file's
    char *error;
    size_t error_capacity;
} csv_t;

// True if the first row of the input holds all of `columns` (compared without regard to case).
bool csv_has_columns(const trace_input_t *input, const char *const *columns, size_t count);

// Starts after the header. 0, or -1 with a line in `error`. The input must outlive the reader.
BERM_NODISCARD int csv_begin(csv_t *csv, const trace_input_t *input, const char *const *columns,
                             size_t count, char *error, size_t error_capacity);

// The next row: 1, 0 at the end, -1 with a line in the error. A row has as many fields as the
// header.
BERM_NODISCARD int csv_next(csv_t *csv);

// The field of the reader's column `column` in the current row.
csv_field_t csv_get(const csv_t *csv, size_t column);
bool csv_is(csv_field_t field, const char *text); // without regard to case

// A whole number below 2^64, decimal or 0x hexadecimal. -1 with a line in the error.
BERM_NODISCARD int csv_u64(csv_t *csv, size_t column, const char *column_name, uint64_t *value);

// Looks at one row; 0, or -1 with a line in the error.
typedef int csv_row_fn(void *reader);

// Begins and calls `read_row` with `reader`, which holds *csv, for every row. 0, or -1 with a line.
BERM_NODISCARD int csv_each_row(csv_t *csv, const trace_input_t *input, const char *const *columns,
                                size_t count, csv_row_fn *read_row, void *reader, char *error,
                                size_t error_capacity);

// The beginning of readers whose rows are events, in order, of blocks that ids name.
typedef struct csv_events {
    csv_t csv;
    trace_builder_t *builder;
    trace_u64_map_t blocks; // id to its latest block
} csv_events_t;

// Makes the trace of all rows, each by `read_row`, from a reader that starts with *events (zeros).
// NULL with a line in `error`.
trace_t *csv_events_read(csv_events_t *events, const char *format, const trace_input_t *input,
                         const char *const *columns, size_t count, csv_row_fn *read_row,
                         char *error, size_t error_capacity);

// Writes "FILE:LINE: what" into the error; returns -1.
int csv_fail(csv_t *csv, const char *format, ...) BERM_PRINTF(2, 3);

#endif
