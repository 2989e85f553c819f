// SPDX-License-Identifier: Apache-2.0
// Reads a recording, and the trace in it: see recording.h. Rows are arrays of whole numbers, whose
// members record/write_json.c writes in this order.
//
// Bounds: the JSON is read as a whole, some 40 bytes a number. Locks: none. May fail: with the path
// of the value ("devices[0].events[17]") that is missing, of the wrong kind or out of range.
#include "stress/trace/recording.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/trace/readers.h"

typedef struct reader {
    const trace_input_t *input;
    char *error;
    size_t error_capacity;
    berm_record_t *record;
} reader_t;

enum {
    ROW_MAX = 11
};

BERM_PRINTF(2, 3) static bool fail(const reader_t *reader, const char *format, ...) {
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    trace_fail(reader->error, reader->error_capacity, "%s: %s", reader->input->name, what);
    return false;
}

static bool get_integer(const reader_t *reader, const json_t *object, const char *key,
                        int64_t *value) {
    const json_t *json = json_object_get(object, key);
    if (!json_is_integer(json))
        return fail(reader, "%s: is no whole number", key);
    *value = json_integer_value(json);
    return true;
}

static bool get_u64(const reader_t *reader, const json_t *object, const char *key,
                    uint64_t *value) {
    int64_t number = 0;
    if (!get_integer(reader, object, key, &number))
        return false;
    *value = (uint64_t)number;
    return number >= 0 || fail(reader, "%s: is negative", key);
}

static bool get_array(const reader_t *reader, const json_t *object, const char *key,
                      const json_t **array) {
    *array = json_object_get(object, key);
    return json_is_array(*array) || fail(reader, "%s: is no list", key);
}

// One row of `count` whole numbers.
static bool get_row(const reader_t *reader, const char *list, const json_t *array, size_t at,
                    size_t count, int64_t row[ROW_MAX]) {
    const json_t *json = json_array_get(array, at);
    if (!json_is_array(json) || json_array_size(json) != count)
        return fail(reader, "%s[%zu]: is no list of %zu numbers", list, at, count);
    for (size_t i = 0; i < count; i++) {
        if (!json_is_integer(json_array_get(json, i)))
            return fail(reader, "%s[%zu][%zu]: is no whole number", list, at, i);
        row[i] = json_integer_value(json_array_get(json, i));
    }
    return true;
}

static bool read_figures(const reader_t *reader, const json_t *json,
                         berm_record_figures_t *figures) {
    const json_t *object = json_object_get(json, "figures");
    const struct {
        const char *key;
        uint64_t *value;
    } rows[] = {{"memory_bytes", &figures->memory},
                {"driver_free_bytes", &figures->driver_free},
                {"granule_bytes", &figures->granule},
                {"requested_bytes", &figures->requested},
                {"requested_peak_bytes", &figures->requested_peak},
                {"allocated_bytes", &figures->allocated},
                {"active_bytes", &figures->active},
                {"reserved_bytes", &figures->reserved},
                {"reserved_peak_bytes", &figures->reserved_peak},
                {"cached_bytes", &figures->cached},
                {"pinned_bytes", &figures->pinned},
                {"exported_bytes", &figures->exported},
                {"poisoned_bytes", &figures->poisoned},
                {"moves_pages", &figures->moves_pages},
                {"requests", &figures->requests}};
    if (!json_is_object(object))
        return fail(reader, "figures: is no object");
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rows); i++)
        if (!get_u64(reader, object, rows[i].key, rows[i].value))
            return false;
    figures->limit = UINT64_MAX;
    return json_is_null(json_object_get(object, "limit_bytes")) ||
           get_u64(reader, object, "limit_bytes", &figures->limit);
}

static bool read_segments(const reader_t *reader, const json_t *json,
                          berm_record_device_t *device) {
    const json_t *array;
    int64_t row[ROW_MAX];
    uint64_t blocks = 0;
    if (!get_array(reader, json, "segments", &array))
        return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (!get_row(reader, "segments", array, i, 7, row))
            return false;
        const berm_record_segment_t segment = {.addr = (uint64_t)row[0],
                                               .size_bytes = (uint64_t)row[1],
                                               .stream = row[2],
                                               .pool_high = (uint64_t)row[3],
                                               .pool_low = (uint64_t)row[4],
                                               .is_plain = row[5] != 0,
                                               .block_first = blocks,
                                               .block_count = (uint64_t)row[6]};
        if (row[0] <= 0 || row[1] <= 0 || row[6] < 0 || segment.block_count > INT32_MAX)
            return fail(reader, "segments[%zu]: is out of range", i);
        blocks += segment.block_count;
        if (!berm__record_segment_add(device, &segment))
            return fail(reader, "no memory");
    }
    return true;
}

static bool read_blocks(const reader_t *reader, const json_t *json, berm_record_device_t *device) {
    const json_t *array;
    int64_t row[ROW_MAX];
    if (!get_array(reader, json, "blocks", &array))
        return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (!get_row(reader, "blocks", array, i, 7, row))
            return false;
        if (row[0] <= 0 || row[1] <= 0 || row[2] < 0 || row[3] < 0 || row[3] > BERM_RECORD_HELD ||
            row[4] < 0 || row[5] < 0 || row[5] >= reader->record->tag_count)
            return fail(reader, "blocks[%zu]: is out of range", i);
        const berm_record_block_t block = {.addr = (uint64_t)row[0],
                                           .size_bytes = (uint64_t)row[1],
                                           .requested_bytes = (uint64_t)row[2],
                                           .state = (uint8_t)row[3],
                                           .number = (uint64_t)row[4],
                                           .tag = (uint8_t)row[5],
                                           .is_small = row[6] != 0};
        if (!berm__record_block_add(device, &block))
            return fail(reader, "no memory");
    }
    return true;
}

// The blocks of each segment cover it.
static bool check_segments(const reader_t *reader, const berm_record_device_t *device) {
    uint64_t next = 0;
    for (uint64_t i = 0; i < device->segment_count; i++) {
        const berm_record_segment_t *segment = &device->segments[i];
        uint64_t at = segment->addr, count = segment->block_count;
        if (count > device->block_count - next)
            return fail(reader, "segments[%llu]: has more blocks than there are",
                        (unsigned long long)i);
        for (; count > 0; count--, next++) {
            if (device->blocks[next].addr != at)
                return fail(reader, "blocks[%llu]: does not begin where the last one ended",
                            (unsigned long long)next);
            at += device->blocks[next].size_bytes;
        }
        if (at != segment->addr + segment->size_bytes)
            return fail(reader, "segments[%llu]: its blocks do not cover it",
                        (unsigned long long)i);
    }
    return next == device->block_count || fail(reader, "blocks: more than the segments have");
}

static bool read_events(const reader_t *reader, const json_t *json, berm_record_device_t *device) {
    const json_t *array;
    int64_t row[ROW_MAX];
    if (!get_array(reader, json, "events", &array))
        return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (!get_row(reader, "events", array, i, 11, row))
            return false;
        if (row[0] < 0 || row[0] >= BERM_RECORD_KIND_COUNT || row[1] < 0 || row[2] < 0 ||
            row[2] > UINT32_MAX || row[3] < 0 || row[4] < 0 || row[8] < 0 ||
            row[8] >= reader->record->tag_count || (row[0] <= BERM_RECORD_FREE && row[3] == 0))
            return fail(reader, "events[%zu]: is out of range", i);
        const berm_record_event_t event = {.kind = (uint8_t)row[0],
                                           .time_ns = (uint64_t)row[1],
                                           .thread = (uint32_t)row[2],
                                           .addr = (uint64_t)row[3],
                                           .size_bytes = (uint64_t)row[4],
                                           .stream = row[5],
                                           .pool_high = (uint64_t)row[6],
                                           .pool_low = (uint64_t)row[7],
                                           .tag = (uint8_t)row[8],
                                           .number = (uint64_t)row[9],
                                           .site = (uint64_t)row[10]};
        if (!berm__record_event_add(device, &event))
            return fail(reader, "no memory");
    }
    device->has_lost = json_is_true(json_object_get(json, "has_lost_events"));
    uint64_t count = device->event_count;
    if (!berm__record_settle(device))
        return fail(reader, "no memory");
    return device->event_count == count ||
           fail(reader, "events: %llu of them contradict others, or the blocks at the end",
                (unsigned long long)(count - device->event_count));
}

static bool read_device(const reader_t *reader, const json_t *json) {
    uint64_t ordinal = 0;
    berm_record_device_t *device = &reader->record->devices[reader->record->device_count++];
    if (!json_is_object(json))
        return fail(reader, "devices: is no list of objects");
    if (!get_u64(reader, json, "device", &ordinal))
        return false;
    device->ordinal = (int)berm__min_u64(ordinal, BERM_RECORD_DEVICES_MAX);
    int before = reader->record->device_count > 1 ? device[-1].ordinal : -1;
    if (device->ordinal <= before || device->ordinal >= BERM_RECORD_DEVICES_MAX)
        return fail(reader, "device: devices do not rise from 0 to %d",
                    BERM_RECORD_DEVICES_MAX - 1);
    return read_figures(reader, json, &device->figures) && read_segments(reader, json, device) &&
           read_blocks(reader, json, device) && check_segments(reader, device) &&
           read_events(reader, json, device);
}

// A member that may be missing: recordings of earlier versions have none.
static bool get_text(const reader_t *reader, const json_t *object, const char *key, char *text,
                     size_t capacity) {
    const json_t *json = json_object_get(object, key);
    if (json == NULL)
        return true;
    const char *value = json_string_value(json);
    if (value == NULL || strlen(value) >= capacity)
        return fail(reader, "%s: is no text of less than %zu bytes", key, capacity);
    memcpy(text, value, strlen(value) + 1);
    return true;
}

static bool read_tags(const reader_t *reader, const json_t *root) {
    const json_t *array;
    if (!get_array(reader, root, "tags", &array))
        return false;
    size_t count = json_array_size(array);
    if (count == 0 || count > BERM_RECORD_TAGS_MAX)
        return fail(reader, "tags: not 1 to %d", BERM_RECORD_TAGS_MAX);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (name == NULL || strlen(name) >= BERM_RECORD_TAG_BYTES)
            return fail(reader, "tags[%zu]: is no name", i);
        memcpy(reader->record->tags[i], name, strlen(name) + 1);
    }
    reader->record->tag_count = (unsigned)count;
    return true;
}

// Files of code, where call sites were noted.
static bool read_modules(const reader_t *reader, const json_t *root) {
    const json_t *array;
    if (!get_array(reader, root, "modules", &array))
        return false;
    if (json_array_size(array) > BERM_RECORD_MODULES_MAX)
        return fail(reader, "modules: more than %d", BERM_RECORD_MODULES_MAX);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *json = json_array_get(array, i);
        berm_record_module_t *module = &reader->record->modules[reader->record->module_count++];
        const char *path = json_string_value(json_object_get(json, "path"));
        if (path == NULL || strlen(path) >= sizeof module->path)
            return fail(reader, "modules[%zu].path: is no path", i);
        memcpy(module->path, path, strlen(path) + 1);
        if (!get_u64(reader, json, "base", &module->base) ||
            !get_u64(reader, json, "first", &module->first) ||
            !get_u64(reader, json, "end", &module->end))
            return false;
    }
    return true;
}

static bool read_root(const reader_t *reader, const json_t *root) {
    const json_t *devices;
    uint64_t version = 0;
    if (!json_is_object(root) || !get_u64(reader, root, "berm_recording", &version))
        return json_is_object(root) ? false : fail(reader, "is no object");
    if (version != 1)
        return fail(reader, "a recording of version %llu, this berm knows 1",
                    (unsigned long long)version);
    if (!get_u64(reader, root, "pid", &reader->record->pid) ||
        !get_text(reader, root, "rank", reader->record->rank, BERM_RECORD_RANK_BYTES) ||
        !get_text(reader, root, "host", reader->record->host, BERM_RECORD_HOST_BYTES) ||
        !get_u64(reader, root, "now_ns", &reader->record->now_ns) ||
        !get_integer(reader, root, "wall_ns", &reader->record->wall_ns) ||
        !read_tags(reader, root) || !read_modules(reader, root) ||
        !get_array(reader, root, "devices", &devices))
        return false;
    if (json_array_size(devices) > BERM_RECORD_DEVICES_MAX)
        return fail(reader, "devices: more than %d", BERM_RECORD_DEVICES_MAX);
    for (size_t i = 0; i < json_array_size(devices); i++)
        if (!read_device(reader, json_array_get(devices, i)))
            return false;
    return true;
}

bool recording_matches(const trace_input_t *input) {
    static const char begin[] = "{\"berm_recording\":";
    return input->size > sizeof begin && memcmp(input->bytes, begin, sizeof begin - 1) == 0;
}

void recording_free(berm_record_t *record) {
    if (record != NULL)
        berm__record_destroy(record);
    free(record);
}

berm_record_t *recording_read(const trace_input_t *input, char *error, size_t error_capacity) {
    reader_t reader = {input, error, error_capacity, calloc(1, sizeof(berm_record_t))};
    json_error_t problem;
    json_t *root = json_loadb((const char *)input->bytes, input->size, 0, &problem);
    bool is_good = reader.record != NULL;
    if (root == NULL)
        is_good = fail(&reader, "line %d: %s", problem.line, problem.text);
    else if (!is_good)
        (void)fail(&reader, "no memory");
    is_good = is_good && read_root(&reader, root);
    json_decref(root);
    if (is_good)
        return reader.record;
    recording_free(reader.record);
    return NULL;
}

berm_record_t *recording_load(const char *path, char *error, size_t error_capacity) {
    trace_input_t input;
    if (trace_input_load(&input, path, NULL, error, error_capacity) != 0)
        return NULL;
    berm_record_t *record = NULL;
    if (recording_matches(&input))
        record = recording_read(&input, error, error_capacity);
    else
        trace_fail(error, error_capacity,
                   "%s: is no recording of berm's: make one with `berm record`, the option "
                   "recording, or berm_trace_write",
                   path);
    trace_input_unload(&input);
    return record;
}

// --- as a trace ----------------------------------------------------------------------------------

// The device asked for, or the one with most events; NULL if there is none.
static const berm_record_device_t *device_choose(const berm_record_t *record, int asked) {
    const berm_record_device_t *best = NULL;
    for (unsigned i = 0; i < record->device_count; i++) {
        const berm_record_device_t *device = &record->devices[i];
        bool is_better = best == NULL || device->event_count > best->event_count;
        if (asked < 0 ? is_better : device->ordinal == asked)
            best = device;
    }
    return best;
}

bool trace_recording_matches(const trace_input_t *input) {
    return recording_matches(input);
}

trace_t *trace_recording_read(const trace_input_t *input, const trace_read_options_t *options,
                              char *error, size_t error_capacity) {
    berm_record_t *record = recording_read(input, error, error_capacity);
    if (record == NULL)
        return NULL;
    char *rows = NULL;
    size_t size = 0;
    trace_t *trace = NULL;
    const berm_record_device_t *device = device_choose(record, options->device);
    FILE *file = device != NULL ? open_memstream(&rows, &size) : NULL;
    if (file != NULL) {
        berm__record_write_replay(record, device, berm__emit_write_file, file);
        if (fclose(file) == 0)
            trace = trace_read_memory(input->name, rows, size, options, error, error_capacity);
        if (trace != NULL) {
            trace->format = "berm-recording";
            trace->device = device->ordinal;
        }
        free(rows);
    } else {
        trace_fail(error, error_capacity, "%s: %s", input->name,
                   device == NULL ? "has nothing of such a device" : "no memory for the trace");
    }
    recording_free(record);
    return trace;
}
