// SPDX-License-Identifier: Apache-2.0
// Splits CSV in memory into rows and fields for the three CSV readers, which know what they mean,
// and holds the loop over rows around them.
//
// Bounds: each byte is looked at a fixed number of times, whatever the length of a line; no memory
// is taken but for the trace. Messages quote at most 40 characters of the file.
// Locks: none. May fail: on NUL bytes, an unclosed quote, rows of another width than the header,
// numbers that are none.
#include "stress/trace/csv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    QUOTED_MAX = 40
};

int csv_fail(csv_t *csv, const char *format, ...) {
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    trace_fail(csv->error, csv->error_capacity, "%s:%llu: %s", csv->name,
               (unsigned long long)csv->line, what);
    return -1;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void trim(const char **begin, const char **end) {
    while (*begin < *end && is_blank(**begin)) {
        ++*begin;
    }
    while (*begin < *end && is_blank((*end)[-1])) {
        --*end;
    }
}

// The end of a quoted field that begins after `begin`, or NULL. A doubled quote does not end it.
static const char *find_quote(const char *begin, const char *end) {
    for (const char *c = begin; c < end; c++) {
        if (*c == '"') {
            if (c + 1 == end || c[1] != '"') {
                return c;
            }
            c++;
        }
    }
    return NULL;
}

// Takes one field off the front of [*at, end); *at is then after its comma, or NULL at the end.
static int split_field(csv_t *csv, const char **at, const char *end) {
    if (csv->field_count == CSV_COLUMNS_MAX) {
        return csv_fail(csv, "more than %d fields in a row", CSV_COLUMNS_MAX);
    }
    const char *begin = *at;
    const char *comma = memchr(begin, ',', (size_t)(end - begin));
    const char *stop = comma == NULL ? end : comma;
    trim(&begin, &stop);
    if (begin < stop && *begin == '"') {
        begin++;
        stop = find_quote(begin, end);
        if (stop == NULL) {
            return csv_fail(csv, "a quoted field is not closed on its line");
        }
        const char *rest = stop + 1;
        while (rest < end && is_blank(*rest)) {
            rest++;
        }
        if (rest < end && *rest != ',') {
            return csv_fail(csv, "text after the closing quote of a field");
        }
        comma = rest < end ? rest : NULL;
    }
    csv->fields[csv->field_count++] =
        (csv_field_t){.text = begin, .length = (size_t)(stop - begin)};
    *at = comma == NULL ? NULL : comma + 1;
    return 0;
}

// The next line that is not blank, split into fields: 1, 0 at the end, -1.
static int next_row(csv_t *csv) {
    while (csv->offset < csv->size) {
        const char *begin = csv->bytes + csv->offset;
        size_t left = csv->size - csv->offset;
        const char *newline = memchr(begin, '\n', left);
        const char *end = newline == NULL ? begin + left : newline;
        csv->offset += (size_t)(end - begin) + (newline != NULL);
        csv->line++;
        if (end > begin && end[-1] == '\r') {
            end--;
        }
        const char *text = begin;
        const char *text_end = end;
        trim(&text, &text_end);
        if (text == text_end) {
            continue;
        }
        if (memchr(begin, '\0', (size_t)(end - begin)) != NULL) {
            return csv_fail(csv, "a NUL byte; this is not a text file");
        }
        csv->field_count = 0;
        for (const char *at = begin; at != NULL;) {
            if (split_field(csv, &at, end) != 0) {
                return -1;
            }
        }
        return 1;
    }
    return 0;
}

bool csv_is(csv_field_t field, const char *text) {
    return field.length == strlen(text) && strncasecmp(field.text, text, field.length) == 0;
}

// Finds the wanted columns in the header row; the first that is missing, or NULL.
static const char *find_columns(csv_t *csv, const char *const *columns, size_t count) {
    csv->column_count = csv->field_count;
    for (size_t wanted = 0; wanted < count; wanted++) {
        size_t i = 0;
        while (i < csv->field_count && !csv_is(csv->fields[i], columns[wanted])) {
            i++;
        }
        if (i == csv->field_count) {
            return columns[wanted];
        }
        csv->where[wanted] = i;
    }
    return NULL;
}

static csv_t open_csv(const trace_input_t *input, char *error, size_t error_capacity) {
    csv_t csv = {.name = input->name,
                 .bytes = (const char *)input->bytes,
                 .size = input->size,
                 .error = error,
                 .error_capacity = error_capacity};
    if (input->size >= 3 && memcmp(input->bytes, "\xef\xbb\xbf", 3) == 0) {
        csv.offset = 3; // a byte order mark
    }
    return csv;
}

bool csv_has_columns(const trace_input_t *input, const char *const *columns, size_t count) {
    csv_t csv = open_csv(input, NULL, 0);
    return next_row(&csv) == 1 && find_columns(&csv, columns, count) == NULL;
}

int csv_begin(csv_t *csv, const trace_input_t *input, const char *const *columns, size_t count,
              char *error, size_t error_capacity) {
    *csv = open_csv(input, error, error_capacity);
    int got = next_row(csv);
    if (got < 0) {
        return -1;
    }
    if (got == 0) {
        csv->line = 1;
        return csv_fail(csv, "no header");
    }
    const char *missing = find_columns(csv, columns, count);
    return missing == NULL ? 0 : csv_fail(csv, "the header has no column \"%s\"", missing);
}

int csv_next(csv_t *csv) {
    int got = next_row(csv);
    if (got == 1 && csv->field_count != csv->column_count) {
        return csv_fail(csv, "%zu fields where the header has %zu", csv->field_count,
                        csv->column_count);
    }
    return got;
}

int csv_each_row(csv_t *csv, const trace_input_t *input, const char *const *columns, size_t count,
                 csv_row_fn *read_row, void *reader, char *error, size_t error_capacity) {
    int got = csv_begin(csv, input, columns, count, error, error_capacity);
    got = got == 0 ? csv_next(csv) : got;
    while (got == 1) {
        got = read_row(reader) == 0 ? csv_next(csv) : -1;
    }
    return got;
}

trace_t *csv_events_read(csv_events_t *events, const char *format, const trace_input_t *input,
                         const char *const *columns, size_t count, csv_row_fn *read_row,
                         char *error, size_t error_capacity) {
    events->builder = trace_builder_create(input->name, format);
    if (events->builder == NULL) {
        trace_fail(error, error_capacity, "%s: no memory for the trace", input->name);
        return NULL;
    }
    int status =
        csv_each_row(&events->csv, input, columns, count, read_row, events, error, error_capacity);
    trace_u64_map_destroy(&events->blocks);
    if (status != 0) {
        trace_builder_destroy(events->builder);
        return NULL;
    }
    return trace_builder_finish(events->builder, error, error_capacity);
}

csv_field_t csv_get(const csv_t *csv, size_t column) {
    return csv->fields[csv->where[column]];
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

int csv_u64(csv_t *csv, size_t column, const char *column_name, uint64_t *value) {
    csv_field_t field = csv_get(csv, column);
    const char *text = field.text;
    size_t length = field.length;
    unsigned base = 10;
    if (length > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        text += 2;
        length -= 2;
    }
    int shown = (int)(field.length < QUOTED_MAX ? field.length : QUOTED_MAX);
    uint64_t sum = 0;
    if (length == 0) {
        return csv_fail(csv, "%s: no number", column_name);
    }
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned)digit_value(text[i]);
        if (digit >= base) {
            return csv_fail(csv, "%s: \"%.*s\" is not a whole number of 0 or more", column_name,
                            shown, field.text);
        }
        if (__builtin_mul_overflow(sum, (uint64_t)base, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)digit, &sum)) {
            return csv_fail(csv, "%s: \"%.*s\" does not fit in 64 bits", column_name, shown,
                            field.text);
        }
    }
    *value = sum;
    return 0;
}
