// SPDX-License-Identifier: Apache-2.0
// Reads the CSV of `berm bench fragmentation`. The first rows are comments; curves_chart.c draws.
//
// Bounds: 100 bytes a row; names are searched linearly, a few hundred of them at most.
// Locks: none. May fail: on bad input or for want of memory.
#include "stress/plot/curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/trace/csv.h"

enum {
    COLUMN_TRACE,
    COLUMN_ALLOCATOR,
    COLUMN_CONF,
    COLUMN_LATENCY,
    COLUMN_KIND,
    COLUMN_HEADROOM,
    COLUMN_COMPLETED,
    COLUMN_LIVE,
    COLUMN_RESERVED,
    COLUMN_SHARE,
    COLUMN_WAIT,
    COLUMN_DRIVER,
    COLUMN_RATIO,
    COLUMNS,
    NAMES_MAX = 256, // of each kind of name: a picture of more says nothing
    NAME_CAPACITY = 320,
};

static const char *const columns[COLUMNS] = {
    "trace",
    "allocator",
    "conf",
    "latency",
    "kind",
    "headroom_pct",
    "completed",
    "peak_live_bytes",
    "reserved_over_live",
    "moved_share",
    "wait_us",
    "driver_us",
    "ratio",
};

static const char *const kinds[PLOT_CURVE_KINDS] = {"uncapped", "capped", "common"};

// The input behind its comments; *lines is how many there were.
static trace_input_t without_comments(const trace_input_t *input, uint64_t *lines) {
    trace_input_t rest = *input;
    for (*lines = 0; rest.size > 0 && rest.bytes[0] == '#'; ++*lines) {
        const uint8_t *end = memchr(rest.bytes, '\n', rest.size);
        size_t length = end == NULL ? rest.size : (size_t)(end - rest.bytes) + 1;
        rest.bytes += length;
        rest.size -= length;
    }
    return rest;
}

bool plot_curves_match(const trace_input_t *input) {
    uint64_t lines;
    const trace_input_t rest = without_comments(input, &lines);
    return csv_has_columns(&rest, columns, COLUMNS);
}

// --- fields --------------------------------------------------------------------------------------

static int read_double(csv_t *csv, size_t column, double *value) {
    csv_field_t field = csv_get(csv, column);
    char text[64], *end = NULL;
    (void)snprintf(text, sizeof text, "%.*s", (int)(field.length < 63 ? field.length : 63),
                   field.text);
    *value = strspn(text, "0123456789.") == strlen(text) ? strtod(text, &end) : -1;
    if (end == NULL || end == text || *end != '\0' || *value > 1e18)
        return csv_fail(csv, "%s is no number", columns[column]);
    return 0;
}

// -1 for a word instead of the number.
static int read_known(csv_t *csv, size_t column, const char *word, double *value) {
    *value = -1;
    return csv_is(csv_get(csv, column), word) ? 0 : read_double(csv, column, value);
}

static int name_number(csv_t *csv, plot_names_t *names, const char *name, size_t *number) {
    for (*number = 0; *number < names->count; ++*number)
        if (strcmp(names->names[*number], name) == 0)
            return 0;
    if (names->count == NAMES_MAX)
        return csv_fail(csv, "more than %d names", NAMES_MAX);
    char **grown = realloc(names->names, (names->count + 1) * sizeof *grown);
    if (grown == NULL)
        return csv_fail(csv, "no memory for a name");
    names->names = grown;
    grown[names->count] = strdup(name);
    if (grown[names->count] == NULL)
        return csv_fail(csv, "no memory for a name");
    names->count++;
    return 0;
}

static int read_name(csv_t *csv, size_t column, plot_names_t *names, size_t *number) {
    csv_field_t field = csv_get(csv, column);
    char name[NAME_CAPACITY];
    int length = (int)(field.length < NAME_CAPACITY ? field.length : NAME_CAPACITY - 1);
    (void)snprintf(name, sizeof name, "%.*s", length, field.text);
    return name_number(csv, names, name, number);
}

// "berm remap:off": the allocator with its options.
static int read_allocator(csv_t *csv, plot_names_t *names, size_t *number) {
    csv_field_t allocator = csv_get(csv, COLUMN_ALLOCATOR), conf = csv_get(csv, COLUMN_CONF);
    char name[NAME_CAPACITY];
    (void)snprintf(name, sizeof name, "%.*s%s%.*s",
                   (int)(allocator.length < 150 ? allocator.length : 150), allocator.text,
                   conf.length > 0 ? " " : "", (int)(conf.length < 150 ? conf.length : 150),
                   conf.text);
    return name_number(csv, names, name, number);
}

static int read_kind(csv_t *csv, plot_curve_kind_t *kind) {
    for (int i = 0; i < PLOT_CURVE_KINDS; i++) {
        if (csv_is(csv_get(csv, COLUMN_KIND), kinds[i])) {
            *kind = (plot_curve_kind_t)i;
            return 0;
        }
    }
    return csv_fail(csv, "kind is not uncapped, capped or common");
}

// --- rows ----------------------------------------------------------------------------------------

static int read_figures(csv_t *csv, plot_curve_point_t *point) {
    if (csv_u64(csv, COLUMN_LIVE, columns[COLUMN_LIVE], &point->peak_live_bytes) != 0 ||
        read_known(csv, COLUMN_HEADROOM, "default", &point->headroom_pct) != 0 ||
        read_known(csv, COLUMN_RATIO, "none", &point->ratio) != 0)
        return -1;
    point->is_done = csv_is(csv_get(csv, COLUMN_COMPLETED), "yes");
    if (!point->is_done)
        return csv_is(csv_get(csv, COLUMN_COMPLETED), "none")
                   ? 0
                   : csv_fail(csv, "completed is neither yes nor none");
    if (csv_u64(csv, COLUMN_DRIVER, columns[COLUMN_DRIVER], &point->driver_us) != 0 ||
        csv_u64(csv, COLUMN_WAIT, columns[COLUMN_WAIT], &point->wait_us) != 0 ||
        read_double(csv, COLUMN_RESERVED, &point->reserved_ratio) != 0)
        return -1;
    return read_double(csv, COLUMN_SHARE, &point->moved_share);
}

static int headroom_add(csv_t *csv, plot_curves_t *curves, double pct) {
    size_t at = 0;
    while (at < curves->headroom_count && curves->headrooms[at] < pct)
        at++;
    if (at < curves->headroom_count && curves->headrooms[at] == pct)
        return 0;
    if (curves->headroom_count == NAMES_MAX)
        return csv_fail(csv, "more than %d headrooms", NAMES_MAX);
    double *grown = realloc(curves->headrooms, (curves->headroom_count + 1) * sizeof *grown);
    if (grown == NULL)
        return csv_fail(csv, "no memory for a headroom");
    curves->headrooms = grown;
    memmove(grown + at + 1, grown + at, (curves->headroom_count - at) * sizeof *grown);
    grown[at] = pct;
    curves->headroom_count++;
    return 0;
}

static int read_row(csv_t *csv, plot_curves_t *curves) {
    if (curves->count == curves->capacity) {
        size_t capacity = curves->capacity == 0 ? 512 : 2 * curves->capacity;
        plot_curve_point_t *grown = realloc(curves->points, capacity * sizeof *grown);
        if (grown == NULL)
            return csv_fail(csv, "no memory for more rows");
        curves->points = grown;
        curves->capacity = capacity;
    }
    plot_curve_point_t *point = &curves->points[curves->count];
    *point = (plot_curve_point_t){0};
    if (read_name(csv, COLUMN_TRACE, &curves->traces, &point->trace) != 0 ||
        read_name(csv, COLUMN_LATENCY, &curves->latencies, &point->latency) != 0 ||
        read_allocator(csv, &curves->allocators, &point->allocator) != 0 ||
        read_kind(csv, &point->kind) != 0 || read_figures(csv, point) != 0)
        return -1;
    if (point->kind == PLOT_CURVE_CAPPED) {
        if (point->headroom_pct < 0)
            return csv_fail(csv, "a capped row without headroom_pct");
        if (headroom_add(csv, curves, point->headroom_pct) != 0)
            return -1;
    }
    curves->count++;
    return 0;
}

int plot_curves_read(plot_curves_t *curves, const trace_input_t *input, char *error,
                     size_t error_capacity) {
    csv_t csv;
    uint64_t lines;
    *curves = (plot_curves_t){.path = input->name};
    const trace_input_t rest = without_comments(input, &lines);
    if (csv_begin(&csv, &rest, columns, COLUMNS, error, error_capacity) != 0)
        return -1;
    csv.line += lines;
    for (int status; (status = csv_next(&csv)) != 0;)
        if (status < 0 || read_row(&csv, curves) != 0)
            return -1;
    if (curves->count != 0)
        return 0;
    trace_fail(error, error_capacity, "%s: there are no rows", input->name);
    return -1;
}

static void names_free(plot_names_t *names) {
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
}

void plot_curves_free(plot_curves_t *curves) {
    names_free(&curves->traces);
    names_free(&curves->latencies);
    names_free(&curves->allocators);
    free(curves->headrooms);
    free(curves->points);
    *curves = (plot_curves_t){0};
}
