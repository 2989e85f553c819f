// SPDX-License-Identifier: Apache-2.0
// Reads the segments of a snapshot (docs/snapshot.schema.json); jansson reads the JSON. map.c
// draws. Members that are not drawn are not looked at.
//
// Bounds: files of SNAPSHOT_BYTES_MAX; jansson takes up to some 40 bytes for each of theirs, and
// nests 2,048 deep. Locks: none. May fail: on bad input or for want of memory.
#include "stress/plot/segments.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    SNAPSHOT_BYTES_MAX = 128 << 20,
    WHERE_CAPACITY = 128,
};

const char *const plot_state_names[PLOT_STATES] = {"live",  "awaited",  "free", "busy",
                                                   "stale", "poisoned", "void"};

// One object of the snapshot and how messages call it.
typedef struct place {
    const json_t *json;
    char where[WHERE_CAPACITY]; // "devices[0].pools[1]", "" for the whole
} place_t;

typedef struct reader {
    const char *name; // of the file
    plot_segments_t *out;
    char *error;
    size_t error_capacity;
} reader_t;

static bool BERM_PRINTF(3, 4)
    fail(const reader_t *r, const place_t *place, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    trace_fail(r->error, r->error_capacity, "%s: %s%s%s", r->name, place->where,
               place->where[0] == '\0' ? "" : ": ", text);
    return false;
}

static bool get_u64(const reader_t *r, const place_t *place, const char *key, uint64_t *value) {
    const json_t *json = json_object_get(place->json, key);
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return fail(r, place, "no whole number '%s'", key);
    *value = (uint64_t)json_integer_value(json);
    return true;
}

static const char *get_text(const reader_t *r, const place_t *place, const char *key) {
    const json_t *json = json_object_get(place->json, key);
    if (!json_is_string(json))
        (void)fail(r, place, "no text '%s'", key);
    return json_string_value(json);
}

static bool get_array(const reader_t *r, const place_t *place, const char *key,
                      const json_t **array) {
    *array = json_object_get(place->json, key);
    return json_is_array(*array) || fail(r, place, "no array '%s'", key);
}

// The i-th element of the array `key` of *place, which is an object.
static bool get_element(const reader_t *r, const place_t *place, const char *key,
                        const json_t *array, size_t i, place_t *element) {
    element->json = json_array_get(array, i);
    (void)snprintf(element->where, sizeof element->where, "%.80s%s%s[%zu]", place->where,
                   place->where[0] == '\0' ? "" : ".", key, i);
    return json_is_object(element->json) || fail(r, element, "is no object");
}

static bool get_address(const reader_t *r, const place_t *place, const char *key, uint64_t *value) {
    const char *text = get_text(r, place, key);
    if (text == NULL)
        return false;
    size_t digits = strncmp(text, "0x", 2) == 0 ? strspn(text + 2, "0123456789abcdefABCDEF") : 0;
    if (digits == 0 || digits > 16 || text[2 + digits] != '\0')
        return fail(r, place, "'%s' is no address", key);
    *value = strtoull(text, NULL, 16);
    return true;
}

static bool read_state(const reader_t *r, const place_t *place, plot_state_t *state) {
    const char *text = get_text(r, place, "state");
    if (text == NULL)
        return false;
    for (int i = 0; i < PLOT_STATES; i++) {
        *state = (plot_state_t)i;
        if (strcmp(text, plot_state_names[i]) == 0)
            return true;
    }
    return fail(r, place, "unknown state '%.32s'", text);
}

static bool read_range(const reader_t *r, const place_t *place, uint64_t expected_start,
                       uint64_t span_bytes, plot_range_t *range) {
    if (!read_state(r, place, &range->state) ||
        !get_u64(r, place, "start_bytes", &range->start_bytes) ||
        !get_u64(r, place, "size_bytes", &range->size_bytes))
        return false;
    if (range->start_bytes != expected_start)
        return fail(r, place, "does not begin where the range before it ends");
    if (range->size_bytes == 0 || range->size_bytes > span_bytes - range->start_bytes)
        return fail(r, place, "is empty or ends behind the segment");
    const json_t *requested = json_object_get(place->json, "requested_bytes");
    if (requested != NULL && !get_u64(r, place, "requested_bytes", &range->requested_bytes))
        return false;
    place_t slab = *place;
    slab.json = json_object_get(place->json, "slab");
    return slab.json == NULL || (get_u64(r, &slab, "class_bytes", &range->slab_class_bytes) &&
                                 get_u64(r, &slab, "slots", &range->slab_slots) &&
                                 get_u64(r, &slab, "used", &range->slab_used));
}

static bool read_ranges(const reader_t *r, const place_t *place, plot_segment_t *segment) {
    const json_t *array;
    if (!get_array(r, place, "ranges", &array))
        return false;
    size_t count = json_array_size(array);
    segment->ranges = calloc(count + 1, sizeof *segment->ranges);
    if (segment->ranges == NULL)
        return fail(r, place, "no memory for %zu ranges", count);
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        place_t element;
        plot_range_t *range = &segment->ranges[i];
        if (!get_element(r, place, "ranges", array, i, &element) ||
            !read_range(r, &element, end, segment->span_bytes, range))
            return false;
        end = range->start_bytes + range->size_bytes;
        segment->state_bytes[range->state] += range->size_bytes;
    }
    segment->range_count = count;
    segment->mapped_bytes = segment->span_bytes - segment->state_bytes[PLOT_STATE_VOID];
    return end == segment->span_bytes || fail(r, place, "its ranges do not fill its span");
}

static bool read_handles(const reader_t *r, const place_t *place, uint64_t granule_bytes,
                         plot_segment_t *segment) {
    const json_t *array;
    if (!get_array(r, place, "handles", &array))
        return false;
    size_t count = json_array_size(array);
    segment->handles = calloc(count + 1, sizeof *segment->handles);
    if (segment->handles == NULL)
        return fail(r, place, "no memory for %zu handles", count);
    uint64_t granules_max = segment->span_bytes / granule_bytes;
    for (size_t i = 0; i < count; i++) {
        place_t element;
        plot_handles_t *handles = &segment->handles[i];
        uint64_t first, granules;
        if (!get_element(r, place, "handles", array, i, &element) ||
            !get_u64(r, &element, "first_granule", &first) ||
            !get_u64(r, &element, "granules", &granules) ||
            !get_u64(r, &element, "count", &handles->count))
            return false;
        if (first > granules_max || granules == 0 || handles->count == 0 ||
            handles->count > (granules_max - first) / granules)
            return fail(r, &element, "is empty or ends behind the segment");
        handles->start_bytes = first * granule_bytes;
        handles->each_bytes = granules * granule_bytes;
        segment->handle_count += handles->count;
    }
    segment->handles_count = count;
    return true;
}

// A place for one more segment at the end, or NULL.
static plot_segment_t *append(plot_segments_t *out) {
    if ((out->count & (out->count - 1)) == 0) {
        size_t capacity = out->count == 0 ? 1 : out->count * 2;
        plot_segment_t *segments = realloc(out->segments, capacity * sizeof *segments);
        if (segments == NULL)
            return NULL;
        out->segments = segments;
    }
    plot_segment_t *segment = &out->segments[out->count++];
    *segment = (plot_segment_t){0};
    return segment;
}

static bool read_pool(const reader_t *r, const place_t *place, uint64_t device,
                      uint64_t granule_bytes) {
    const json_t *array, *stream = json_object_get(place->json, "stream");
    if (!json_is_string(stream) && !json_is_null(stream))
        return fail(r, place, "no text or null 'stream'");
    if (!get_array(r, place, "segments", &array))
        return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        place_t element;
        if (!get_element(r, place, "segments", array, i, &element))
            return false;
        plot_segment_t *segment = append(r->out);
        if (segment == NULL)
            return fail(r, &element, "no memory");
        segment->device = device;
        (void)snprintf(segment->stream, sizeof segment->stream, "%s",
                       json_is_null(stream) ? "none" : json_string_value(stream));
        if (!get_address(r, &element, "base", &segment->base) ||
            !get_u64(r, &element, "span_bytes", &segment->span_bytes) ||
            !read_ranges(r, &element, segment) ||
            !read_handles(r, &element, granule_bytes, segment))
            return false;
    }
    return true;
}

static bool read_figure(const reader_t *r, const place_t *statistics, const char *key,
                        uint64_t *current) {
    place_t figure = *statistics;
    figure.json = json_object_get(statistics->json, key);
    return get_u64(r, &figure, "current", current) || fail(r, statistics, "no '%s'", key);
}

static bool read_device(const reader_t *r, const place_t *place, plot_device_t *device) {
    uint64_t granule_bytes;
    place_t statistics;
    (void)snprintf(statistics.where, sizeof statistics.where, "%.80s.statistics", place->where);
    statistics.json = json_object_get(place->json, "statistics");
    const json_t *array;
    if (!get_u64(r, place, "device", &device->device) ||
        !get_u64(r, place, "granule_bytes", &granule_bytes) ||
        !read_figure(r, &statistics, "requested_bytes", &device->requested_bytes) ||
        !read_figure(r, &statistics, "allocated_bytes", &device->allocated_bytes) ||
        !read_figure(r, &statistics, "active_bytes", &device->active_bytes) ||
        !read_figure(r, &statistics, "reserved_bytes", &device->reserved_bytes) ||
        !get_array(r, place, "pools", &array))
        return false;
    // So that no product with it overflows where the quotient by it fits.
    if (granule_bytes == 0)
        return fail(r, place, "'granule_bytes' is 0");
    for (size_t i = 0; i < json_array_size(array); i++) {
        place_t element;
        if (!get_element(r, place, "pools", array, i, &element) ||
            !read_pool(r, &element, device->device, granule_bytes))
            return false;
    }
    return true;
}

static bool read_root(const reader_t *r, const json_t *root) {
    place_t place = {.json = root};
    const json_t *array;
    uint64_t schema;
    if (!json_is_object(root))
        return fail(r, &place, "is no snapshot: its JSON is no object");
    if (json_object_get(root, "schema") == NULL || json_object_get(root, "berm") == NULL)
        return fail(r, &place, "is no snapshot of berm: no 'schema' and 'berm' in it");
    if (!get_u64(r, &place, "schema", &schema))
        return false;
    if (schema != 1)
        return fail(r, &place, "is a snapshot of schema %" PRIu64 "; this berm reads 1", schema);
    if (json_is_false(json_object_get(root, "is_running")))
        return fail(r, &place, "was written before the first use of berm: nothing to draw");
    if (!get_array(r, &place, "devices", &array))
        return false;
    size_t count = json_array_size(array);
    r->out->devices = calloc(count + 1, sizeof *r->out->devices);
    if (r->out->devices == NULL)
        return fail(r, &place, "no memory");
    for (size_t i = 0; i < count; i++) {
        place_t element;
        if (!get_element(r, &place, "devices", array, i, &element) ||
            !read_device(r, &element, &r->out->devices[i]))
            return false;
        r->out->device_count++;
    }
    return r->out->count != 0 || fail(r, &place, "the snapshot has no segments: nothing to draw");
}

bool plot_segments_match(const trace_input_t *input) {
    size_t i = 0;
    while (i < input->size && strchr(" \t\r\n", input->bytes[i]) != NULL && input->bytes[i] != 0)
        i++;
    return i < input->size && input->bytes[i] == '{';
}

int plot_segments_read(plot_segments_t *segments, const trace_input_t *input, char *error,
                       size_t error_capacity) {
    *segments = (plot_segments_t){.path = input->name};
    if (input->size > SNAPSHOT_BYTES_MAX) {
        trace_fail(error, error_capacity, "%s: %zu MiB of JSON; snapshots may have %d MiB",
                   input->name, input->size >> 20, SNAPSHOT_BYTES_MAX >> 20);
        return -1;
    }
    json_error_t problem;
    json_t *root = json_loadb((const char *)input->bytes, input->size, 0, &problem);
    if (root == NULL) {
        trace_fail(error, error_capacity, "%s:%d: %s", input->name, problem.line, problem.text);
        return -1;
    }
    reader_t reader = {input->name, segments, error, error_capacity};
    bool is_read = read_root(&reader, root);
    json_decref(root);
    return is_read ? 0 : -1;
}

void plot_segments_free(plot_segments_t *segments) {
    for (size_t i = 0; i < segments->count; i++) {
        free(segments->segments[i].ranges);
        free(segments->segments[i].handles);
    }
    free(segments->segments);
    free(segments->devices);
    *segments = (plot_segments_t){0};
}
