// SPDX-License-Identifier: Apache-2.0
// Reads what `berm replay --series` writes, or counts live bytes through a trace. chart.c draws.
//
// Bounds: 48 bytes a row of a series, 8 an event of a trace. Locks: none. May fail: on bad input or
// for want of memory.
#include "stress/plot/series.h"

#include <stdlib.h>

#include "stress/trace/csv.h"

enum {
    COLUMN_REPEAT,
    COLUMN_LIVE, // then as plot_line_t
    COLUMN_ALLOCATED,
    COLUMN_RESERVED,
    COLUMNS,
    COLUMN_MOVED = COLUMNS, // then as plot_cost_t
    COLUMN_DRIVER_CALLS,
    COLUMN_DRIVER_US,
    COLUMNS_WITH_COSTS,
};

static const char *const columns[COLUMNS_WITH_COSTS] = {
    "repeat",      "live_bytes",   "allocated_bytes", "reserved_bytes",
    "moved_bytes", "driver_calls", "driver_us",
};

typedef struct reader {
    csv_t csv;
    plot_series_t *series;
    bool has_costs;
} reader_t;

bool plot_series_matches(const trace_input_t *input) {
    return csv_has_columns(input, columns, COLUMNS);
}

static bool grow_one(uint64_t **values, size_t capacity) {
    uint64_t *grown = realloc(*values, capacity * sizeof *grown);
    if (grown != NULL)
        *values = grown;
    return grown != NULL;
}

static bool grow(plot_series_t *series, bool has_costs) {
    size_t capacity = series->capacity == 0 ? 1024 : series->capacity * 2;
    for (int line = 0; line < PLOT_LINES; line++)
        if (!grow_one(&series->values[line], capacity))
            return false;
    for (int cost = 0; has_costs && cost < PLOT_COSTS; cost++)
        if (!grow_one(&series->costs[cost], capacity))
            return false;
    series->capacity = capacity;
    return true;
}

static int read_costs(reader_t *reader) {
    plot_series_t *series = reader->series;
    for (size_t cost = 0; cost < PLOT_COSTS; cost++) {
        uint64_t *value = &series->costs[cost][series->count];
        const char *name = columns[COLUMN_MOVED + cost];
        if (csv_u64(&reader->csv, COLUMN_MOVED + cost, name, value) != 0)
            return -1;
        if (series->count > 0 && *value < value[-1])
            return csv_fail(&reader->csv, "%s is less than in the row before", name);
    }
    return 0;
}

static int read_row(void *context) {
    reader_t *reader = context;
    plot_series_t *series = reader->series;
    if (series->count == series->capacity && !grow(series, reader->has_costs))
        return csv_fail(&reader->csv, "no memory for more rows");
    uint64_t repeat;
    if (csv_u64(&reader->csv, COLUMN_REPEAT, columns[COLUMN_REPEAT], &repeat) != 0)
        return -1;
    for (size_t line = 0; line < PLOT_LINES; line++)
        if (csv_u64(&reader->csv, COLUMN_LIVE + line, columns[COLUMN_LIVE + line],
                    &series->values[line][series->count]) != 0)
            return -1;
    if (reader->has_costs && read_costs(reader) != 0)
        return -1;
    if (repeat == UINT64_MAX)
        return csv_fail(&reader->csv, "repeat is too large");
    series->repeats = repeat + 1 > series->repeats ? repeat + 1 : series->repeats;
    series->count++;
    return 0;
}

int plot_series_read(plot_series_t *series, const trace_input_t *input, char *error,
                     size_t error_capacity) {
    *series = (plot_series_t){.path = input->name};
    // A series of an earlier version has no costs.
    reader_t reader = {.series = series,
                       .has_costs = csv_has_columns(input, columns, COLUMNS_WITH_COSTS)};
    if (csv_each_row(&reader.csv, input, columns, reader.has_costs ? COLUMNS_WITH_COSTS : COLUMNS,
                     read_row, &reader, error, error_capacity) != 0)
        return -1;
    if (series->count != 0)
        return 0;
    trace_fail(error, error_capacity, "%s: the series has no rows", input->name);
    return -1;
}

int plot_series_from_trace(plot_series_t *series, const trace_t *trace, char *error,
                           size_t error_capacity) {
    *series = (plot_series_t){.path = trace->path,
                              .repeats = 1,
                              .source_reserved_bytes = trace->source_reserved_peak_bytes};
    if (trace->event_count == 0) {
        trace_fail(error, error_capacity, "%s: the trace has no events", trace->path);
        return -1;
    }
    series->values[PLOT_LIVE] = calloc(trace->event_count, sizeof(uint64_t));
    if (series->values[PLOT_LIVE] == NULL) {
        trace_fail(error, error_capacity, "%s: no memory for %zu events", trace->path,
                   trace->event_count);
        return -1;
    }
    uint64_t live_bytes = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const trace_event_t *event = &trace->events[i];
        if (event->op == TRACE_ALLOC)
            live_bytes += trace->blocks[event->block].size_bytes;
        else if (event->op == TRACE_FREE)
            live_bytes -= trace->blocks[event->block].size_bytes;
        series->values[PLOT_LIVE][i] = live_bytes;
    }
    series->count = trace->event_count;
    return 0;
}

void plot_series_free(plot_series_t *series) {
    for (int line = 0; line < PLOT_LINES; line++)
        free(series->values[line]);
    for (int cost = 0; cost < PLOT_COSTS; cost++)
        free(series->costs[cost]);
    *series = (plot_series_t){0};
}
