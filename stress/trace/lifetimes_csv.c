// SPDX-License-Identifier: Apache-2.0
// Reads lifetimes CSV (id,lower,upper,size), the form of MiniMalloc's benchmarks: a buffer is live
// from `lower` up to but not including `upper`. Sizes are multiplied by options->scale.
//
// The events are those of a program that runs through the times in order. At equal times frees
// come before allocs; frees of one time are in the order of ids, and so are allocs. Times have no
// unit, so events carry none.
// Bounds: 40 bytes per row besides the trace; O(n log n).
// Locks: none. May fail: with FILE:LINE on a bad row.
#include <stdlib.h>

#include "base/bits.h"
#include "stress/trace/csv.h"
#include "stress/trace/readers.h"
#include "stress/trace/trace_builder.h"

enum {
    COLUMN_ID,
    COLUMN_LOWER,
    COLUMN_UPPER,
    COLUMN_SIZE,
    COLUMN_COUNT
};

static const char *const columns[COLUMN_COUNT] = {"id", "lower", "upper", "size"};

typedef struct buffer {
    uint64_t id, lower, upper, size_bytes;
    uint32_t block;
} buffer_t;

// One end of a lifetime.
typedef struct step {
    uint64_t time;
    uint64_t id;
    uint32_t buffer; // index
    bool is_alloc;
} step_t;

typedef struct reader {
    csv_t csv;
    uint64_t scale;
    buffer_t *buffers;
    size_t count, capacity;
    trace_u64_map_t ids; // id to buffer
} reader_t;

bool trace_lifetimes_csv_matches(const trace_input_t *input) {
    return csv_has_columns(input, columns, COLUMN_COUNT);
}

static int add_buffer(reader_t *reader, const buffer_t *buffer) {
    if (reader->count >= TRACE_MAP_NONE) {
        return csv_fail(&reader->csv, "more than 2^32 rows");
    }
    if (reader->count == reader->capacity) {
        size_t capacity = reader->capacity == 0 ? 64 : reader->capacity * 2;
        buffer_t *moved = realloc(reader->buffers, capacity * sizeof *moved);
        if (moved == NULL) {
            return csv_fail(&reader->csv, "no memory for the trace");
        }
        reader->buffers = moved;
        reader->capacity = capacity;
    }
    if (trace_u64_map_set(&reader->ids, buffer->id, (uint32_t)reader->count) != 0) {
        return csv_fail(&reader->csv, "no memory for the trace");
    }
    reader->buffers[reader->count++] = *buffer;
    return 0;
}

static int read_row(void *at) {
    reader_t *reader = at;
    csv_t *csv = &reader->csv;
    buffer_t buffer = {0};
    uint64_t size;
    if (csv_u64(csv, COLUMN_ID, "id", &buffer.id) != 0 ||
        csv_u64(csv, COLUMN_LOWER, "lower", &buffer.lower) != 0 ||
        csv_u64(csv, COLUMN_UPPER, "upper", &buffer.upper) != 0 ||
        csv_u64(csv, COLUMN_SIZE, "size", &size) != 0) {
        return -1;
    }
    if (buffer.upper <= buffer.lower) {
        return csv_fail(csv, "upper %llu is not after lower %llu", (unsigned long long)buffer.upper,
                        (unsigned long long)buffer.lower);
    }
    if (!berm__mul_checked(size, reader->scale, &buffer.size_bytes) ||
        buffer.size_bytes > TRACE_SIZE_MAX) {
        return csv_fail(csv, "size %llu times the scale %llu is larger than 2^62",
                        (unsigned long long)size, (unsigned long long)reader->scale);
    }
    if (size == 0) {
        return csv_fail(csv, "the size is 0");
    }
    if (trace_u64_map_get(&reader->ids, buffer.id) != TRACE_MAP_NONE) {
        return csv_fail(csv, "id %llu is in an earlier row too", (unsigned long long)buffer.id);
    }
    return add_buffer(reader, &buffer);
}

static int compare_steps(const void *a, const void *b) {
    const step_t *left = a;
    const step_t *right = b;
    if (left->time != right->time) {
        return left->time < right->time ? -1 : 1;
    }
    if (left->is_alloc != right->is_alloc) {
        return left->is_alloc ? 1 : -1;
    }
    return left->id < right->id ? -1 : left->id > right->id;
}

// The builder's failure, or NULL.
static const char *build(reader_t *reader, trace_builder_t *builder) {
    size_t count = reader->count * 2;
    step_t *steps = malloc((count + 1) * sizeof *steps);
    if (steps == NULL) {
        return "no memory for the trace";
    }
    for (size_t i = 0; i < reader->count; i++) {
        const buffer_t *buffer = &reader->buffers[i];
        steps[2 * i] = (step_t){buffer->lower, buffer->id, (uint32_t)i, true};
        steps[2 * i + 1] = (step_t){buffer->upper, buffer->id, (uint32_t)i, false};
    }
    qsort(steps, count, sizeof *steps, compare_steps);
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        buffer_t *buffer = &reader->buffers[steps[i].buffer];
        status = steps[i].is_alloc
                     ? trace_builder_alloc(builder, buffer->size_bytes, 0, 0, &buffer->block)
                     : trace_builder_free(builder, buffer->block, false, 0);
    }
    free(steps);
    return status == 0 ? NULL : builder->failure;
}

trace_t *trace_lifetimes_csv_read(const trace_input_t *input, const trace_read_options_t *options,
                                  char *error, size_t error_capacity) {
    reader_t reader = {.scale = options->scale == 0 ? 1 : options->scale};
    trace_builder_t *builder = NULL;
    if (csv_each_row(&reader.csv, input, columns, COLUMN_COUNT, read_row, &reader, error,
                     error_capacity) == 0) {
        builder = trace_builder_create(input->name, "lifetimes-csv");
        const char *what = builder == NULL ? "no memory for the trace" : build(&reader, builder);
        if (what != NULL) {
            trace_fail(error, error_capacity, "%s: %s", input->name, what);
            trace_builder_destroy(builder);
            builder = NULL;
        }
    }
    free(reader.buffers);
    trace_u64_map_destroy(&reader.ids);
    return builder == NULL ? NULL : trace_builder_finish(builder, error, error_capacity);
}
