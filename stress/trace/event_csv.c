// SPDX-License-Identifier: Apache-2.0
// Reads event CSV, the project's own plain form: docs/trace-format.md has it in full. Its writer
// is write_csv.c.
//
// Ids name live blocks; an id may be used again once its block is free. event_index is not looked
// at: the order of the rows counts. A free repeats the size of its alloc, or says 0.
// Bounds: 24 to 48 bytes per id besides the trace.
// Locks: none. May fail: with FILE:LINE on any row that does not fit what came before it.
#include <string.h>

#include "stress/trace/csv.h"
#include "stress/trace/readers.h"
#include "stress/trace/trace_builder.h"

enum {
    COLUMN_INDEX,
    COLUMN_OP,
    COLUMN_ID,
    COLUMN_SIZE,
    COLUMN_STREAM,
    COLUMN_COUNT
};

static const char *const columns[COLUMN_COUNT] = {"event_index", "op", "id", "size_bytes",
                                                  "stream"};

bool trace_event_csv_matches(const trace_input_t *input) {
    return csv_has_columns(input, columns, COLUMN_COUNT);
}

static int read_alloc(csv_events_t *reader, uint64_t id, uint64_t size_bytes, uint64_t stream) {
    uint32_t block = trace_u64_map_get(&reader->blocks, id);
    if (block != TRACE_MAP_NONE &&
        trace_builder_state(reader->builder, block) == TRACE_BLOCK_LIVE) {
        return csv_fail(&reader->csv, "alloc of id %llu, which is live", (unsigned long long)id);
    }
    if (trace_builder_alloc(reader->builder, size_bytes, stream, 0, &block) != 0) {
        return csv_fail(&reader->csv, "%s", reader->builder->failure);
    }
    if (trace_u64_map_set(&reader->blocks, id, block) != 0) {
        return csv_fail(&reader->csv, "no memory for the trace");
    }
    return 0;
}

static int read_free(csv_events_t *reader, uint64_t id, uint64_t size_bytes, bool is_done) {
    const char *op = is_done ? "free_done" : "free";
    unsigned long long shown = id;
    uint32_t block = trace_u64_map_get(&reader->blocks, id);
    if (block == TRACE_MAP_NONE) {
        return csv_fail(&reader->csv, "%s of id %llu, which was never allocated", op, shown);
    }
    trace_block_state_t state = trace_builder_state(reader->builder, block);
    if (is_done && state != TRACE_BLOCK_FREED) {
        return csv_fail(&reader->csv, "free_done of id %llu, which %s", shown,
                        state == TRACE_BLOCK_LIVE ? "is live" : "was done before");
    }
    if (!is_done && state != TRACE_BLOCK_LIVE) {
        return csv_fail(&reader->csv, "free of id %llu, which was freed before", shown);
    }
    uint64_t allocated = reader->builder->trace->blocks[block].size_bytes;
    if (size_bytes != 0 && size_bytes != allocated) {
        return csv_fail(&reader->csv, "%s of id %llu with %llu byte%s; its alloc had %llu", op,
                        shown, (unsigned long long)size_bytes, BERM_PLURAL(size_bytes),
                        (unsigned long long)allocated);
    }
    int status = is_done ? trace_builder_free_done(reader->builder, block, 0)
                         : trace_builder_free(reader->builder, block, false, 0);
    return status == 0 ? 0 : csv_fail(&reader->csv, "%s", reader->builder->failure);
}

static int read_row(void *at) {
    csv_events_t *reader = at;
    csv_t *csv = &reader->csv;
    uint64_t id;
    uint64_t size_bytes;
    uint64_t stream;
    if (csv_u64(csv, COLUMN_ID, "id", &id) != 0 ||
        csv_u64(csv, COLUMN_SIZE, "size_bytes", &size_bytes) != 0 ||
        csv_u64(csv, COLUMN_STREAM, "stream", &stream) != 0) {
        return -1;
    }
    csv_field_t op = csv_get(csv, COLUMN_OP);
    if (csv_is(op, "alloc")) {
        return read_alloc(reader, id, size_bytes, stream);
    }
    if (csv_is(op, "free")) {
        return read_free(reader, id, size_bytes, false);
    }
    if (csv_is(op, "free_done")) {
        return read_free(reader, id, size_bytes, true);
    }
    if (csv_is(op, "oom")) {
        return trace_builder_oom(reader->builder, size_bytes, stream, 0) == 0
                   ? 0
                   : csv_fail(csv, "%s", reader->builder->failure);
    }
    return csv_fail(csv, "op: \"%.*s\" is none of alloc, free, free_done, oom",
                    (int)(op.length < 40 ? op.length : 40), op.text);
}

trace_t *trace_event_csv_read(const trace_input_t *input, const trace_read_options_t *options,
                              char *error, size_t error_capacity) {
    (void)options;
    csv_events_t reader = {0};
    return csv_events_read(&reader, "event-csv", input, columns, COLUMN_COUNT, read_row, error,
                           error_capacity);
}
