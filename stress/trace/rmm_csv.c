// SPDX-License-Identifier: Apache-2.0
// Reads the log that RMM's logging adaptor writes: Thread,Time,Action,Pointer,Size,Stream with the
// actions allocate, free and "allocate failure".
//
// Pointers name live blocks and are used again. A free may say size 0 or none that fits: RMM does
// not know better, the alloc counts. Size 0 at a null pointer is what RMM logs for a request of
// nothing; both its rows are passed over. Threads are merged in the order of the rows.
// Bounds: 24 to 48 bytes per distinct pointer besides the trace.
// Locks: none. May fail: with FILE:LINE on any row that does not fit what came before it.
#include <string.h>

#include "stress/trace/csv.h"
#include "stress/trace/readers.h"
#include "stress/trace/trace_builder.h"

enum {
    COLUMN_TIME,
    COLUMN_ACTION,
    COLUMN_POINTER,
    COLUMN_SIZE,
    COLUMN_STREAM,
    COLUMN_COUNT
};

#define DAY_US (UINT64_C(24) * 3600 * 1000000)

static const char *const columns[COLUMN_COUNT] = {"Time", "Action", "Pointer", "Size", "Stream"};

typedef struct reader {
    csv_events_t events; // first; a pointer is a block's id
    bool has_time;
    uint64_t first_us;    // of the first row, since midnight
    uint64_t previous_us; // since the first row
} reader_t;

bool trace_rmm_csv_matches(const trace_input_t *input) {
    return csv_has_columns(input, columns, COLUMN_COUNT);
}

static bool read_two_digits(const char *text, uint64_t *value) {
    if (text[0] < '0' || text[0] > '9' || text[1] < '0' || text[1] > '9') {
        return false;
    }
    *value = (uint64_t)(text[0] - '0') * 10 + (uint64_t)(text[1] - '0');
    return true;
}

// "HH:MM:SS" with up to six digits of a second after '.' or ':', as microseconds since midnight.
static bool parse_time(csv_field_t field, uint64_t *time_us) {
    const char *text = field.text;
    uint64_t hours;
    uint64_t minutes;
    uint64_t seconds;
    if (field.length < 8 || text[2] != ':' || text[5] != ':' || !read_two_digits(text, &hours) ||
        !read_two_digits(text + 3, &minutes) || !read_two_digits(text + 6, &seconds) ||
        hours > 23 || minutes > 59 || seconds > 60) {
        return false;
    }
    uint64_t us = ((hours * 60 + minutes) * 60 + seconds) * 1000000;
    uint64_t unit = 100000;
    if (field.length > 8 && text[8] != '.' && text[8] != ':') {
        return false;
    }
    for (size_t i = 9; i < field.length; i++) {
        if (text[i] < '0' || text[i] > '9' || unit == 0) {
            return false;
        }
        us += (uint64_t)(text[i] - '0') * unit;
        unit /= 10;
    }
    *time_us = us;
    return true;
}

// Time since the first row. The log has no dates, and rows of several threads may be slightly out
// of order: up to half a day forward, over midnight or not, is a step; anything else counts as
// none.
static int read_time(reader_t *reader, uint64_t *time_us) {
    csv_field_t field = csv_get(&reader->events.csv, COLUMN_TIME);
    uint64_t of_day;
    if (!parse_time(field, &of_day)) {
        return csv_fail(&reader->events.csv, "Time: \"%.*s\" is not HH:MM:SS.microseconds",
                        (int)(field.length < 40 ? field.length : 40), field.text);
    }
    if (!reader->has_time) {
        reader->has_time = true;
        reader->first_us = of_day;
    }
    uint64_t previous_of_day = (reader->first_us + reader->previous_us) % DAY_US;
    uint64_t step = (of_day + 2 * DAY_US - previous_of_day) % DAY_US;
    if (step <= DAY_US / 2) {
        reader->previous_us += step;
    }
    *time_us = reader->previous_us;
    return 0;
}

// A pointer or a stream: a number, or (nil), as some C libraries print a null pointer.
static int read_pointer(reader_t *reader, size_t column, const char *name, uint64_t *pointer) {
    csv_field_t field = csv_get(&reader->events.csv, column);
    if (csv_is(field, "(nil)")) {
        *pointer = 0;
        return 0;
    }
    return csv_u64(&reader->events.csv, column, name, pointer);
}

static int read_alloc(csv_events_t *reader, uint64_t pointer, uint64_t size_bytes, uint64_t stream,
                      uint64_t time_us) {
    if (pointer == 0 && size_bytes == 0) {
        return 0;
    }
    uint32_t block = trace_u64_map_get(&reader->blocks, pointer);
    if (block != TRACE_MAP_NONE &&
        trace_builder_state(reader->builder, block) == TRACE_BLOCK_LIVE) {
        return csv_fail(&reader->csv, "allocate of 0x%llx, which is live",
                        (unsigned long long)pointer);
    }
    if (trace_builder_alloc(reader->builder, size_bytes, stream, time_us, &block) != 0) {
        return csv_fail(&reader->csv, "%s", reader->builder->failure);
    }
    return trace_u64_map_set(&reader->blocks, pointer, block) == 0
               ? 0
               : csv_fail(&reader->csv, "no memory for the trace");
}

static int read_free(csv_events_t *reader, uint64_t pointer, uint64_t time_us) {
    uint32_t block = trace_u64_map_get(&reader->blocks, pointer);
    if (block == TRACE_MAP_NONE) {
        return pointer == 0 ? 0
                            : csv_fail(&reader->csv, "free of 0x%llx, which was never allocated",
                                       (unsigned long long)pointer);
    }
    if (trace_builder_state(reader->builder, block) != TRACE_BLOCK_LIVE) {
        return csv_fail(&reader->csv, "free of 0x%llx, which was freed before",
                        (unsigned long long)pointer);
    }
    return trace_builder_free(reader->builder, block, false, time_us) == 0
               ? 0
               : csv_fail(&reader->csv, "%s", reader->builder->failure);
}

static int read_row(void *at) {
    reader_t *reader = at;
    csv_t *csv = &reader->events.csv;
    uint64_t time_us = 0;
    uint64_t pointer;
    uint64_t size_bytes;
    uint64_t stream;
    if (read_time(reader, &time_us) != 0 ||
        read_pointer(reader, COLUMN_POINTER, "Pointer", &pointer) != 0 ||
        csv_u64(csv, COLUMN_SIZE, "Size", &size_bytes) != 0 ||
        read_pointer(reader, COLUMN_STREAM, "Stream", &stream) != 0) {
        return -1;
    }
    csv_field_t action = csv_get(csv, COLUMN_ACTION);
    if (csv_is(action, "allocate")) {
        return read_alloc(&reader->events, pointer, size_bytes, stream, time_us);
    }
    if (csv_is(action, "free")) {
        return read_free(&reader->events, pointer, time_us);
    }
    if (csv_is(action, "allocate failure")) {
        return trace_builder_oom(reader->events.builder, size_bytes, stream, time_us) == 0
                   ? 0
                   : csv_fail(csv, "%s", reader->events.builder->failure);
    }
    return csv_fail(csv, "Action: \"%.*s\" is none of allocate, allocate failure, free",
                    (int)(action.length < 40 ? action.length : 40), action.text);
}

trace_t *trace_rmm_csv_read(const trace_input_t *input, const trace_read_options_t *options,
                            char *error, size_t error_capacity) {
    (void)options;
    reader_t reader = {0};
    return csv_events_read(&reader.events, "rmm-csv", input, columns, COLUMN_COUNT, read_row, error,
                           error_capacity);
}
