// SPDX-License-Identifier: Apache-2.0
// Turns a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) into a trace. The pickle is
// read by pickle.h; this file knows the keys.
//
// A snapshot holds the segments as they were when it was taken, and per device the last events
// before that. What was live before the first event is worked out from both: an address whose first
// event is its free, and a block that is allocated at the end without any event.
// The events also say how PyTorch's reserved bytes changed; going back from the segments at the end
// gives the absolute figure at every event.
//
// Bounds: 40 bytes per event and 48 per address besides the values and the trace. Values of a
// pickle may be shared without limit, so the items visited are counted, and no more are visited
// than the file has bytes; only an item met twice can exceed that.
// Locks: none. May fail: with the path of the value ("device_traces[0][17].size") that is missing,
// is of the wrong kind, or contradicts earlier events.
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/trace/pickle.h"
#include "stress/trace/readers.h"
#include "stress/trace/trace_builder.h"

enum {
    KEYS_MAX = 64, // keys of one event, segment or block; PyTorch writes up to 15
};

typedef enum action {
    ACTION_ALLOC,
    ACTION_FREE_REQUESTED,
    ACTION_FREE_COMPLETED,
    ACTION_OOM,
    ACTION_SEGMENT_GROWS,   // segment_alloc, segment_map
    ACTION_SEGMENT_SHRINKS, // segment_free, segment_unmap
    ACTION_IGNORED,         // snapshot
} action_t;

typedef struct event {
    action_t action;
    uint64_t addr;
    uint64_t size_bytes;
    uint64_t stream;
    uint64_t time_us;
} event_t;

// A block that was live before the first event.
typedef struct held {
    uint64_t addr;
    uint64_t size_bytes;
    uint64_t stream;
} held_t;

typedef struct reader {
    const trace_input_t *input;
    const pickle_t *pickle;
    trace_builder_t *builder;
    char *error;
    size_t error_capacity;
    uint64_t visits_left;
    char place[96]; // path of the value being read
    size_t device;
    event_t *events;
    size_t event_count;
    held_t *held;
    size_t held_count, held_capacity;
    trace_u64_map_t seen;   // addresses with an event, or held
    trace_u64_map_t blocks; // address to its latest block
    uint64_t reserved_bytes;
    bool is_reserved_known;
} reader_t;

static void BERM_PRINTF(2, 3) set_place(reader_t *reader, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->place, sizeof reader->place, format, arguments);
    va_end(arguments);
}

// `key` may be empty. Returns -1.
static int fail(reader_t *reader, const char *key, const char *what) {
    trace_fail(reader->error, reader->error_capacity, "%s: %s%s%s: %s", reader->input->name,
               reader->place, *key == '\0' || *reader->place == '\0' ? "" : ".", key, what);
    return -1;
}

static int fail_memory(reader_t *reader) {
    trace_fail(reader->error, reader->error_capacity, "%s: no memory for the trace",
               reader->input->name);
    return -1;
}

static int fail_kind(reader_t *reader, const char *key, pickle_kind_t wanted, pickle_ref_t value) {
    char what[64];
    snprintf(what, sizeof what, "is %s, not %s",
             pickle_kind_name(pickle_kind(reader->pickle, value)), pickle_kind_name(wanted));
    return fail(reader, key, what);
}

// Counts `count` items about to be visited.
static int visit(reader_t *reader, size_t count) {
    if (count > reader->visits_left) {
        return fail(reader, "", "the same values are repeated more often than a snapshot does");
    }
    reader->visits_left -= count;
    return 0;
}

// Checks that a value is a dict small enough to be searched for its keys.
static int expect_record(reader_t *reader, pickle_ref_t value) {
    if (pickle_kind(reader->pickle, value) != PICKLE_DICT) {
        return fail_kind(reader, "", PICKLE_DICT, value);
    }
    if (pickle_count(reader->pickle, value) > KEYS_MAX) {
        return fail(reader, "", "has more keys than a snapshot's dicts do");
    }
    return 0;
}

static int get_list(reader_t *reader, pickle_ref_t dict, const char *key, pickle_ref_t *list) {
    if (!pickle_find(reader->pickle, dict, key, list)) {
        return fail(reader, key, "missing");
    }
    if (pickle_kind(reader->pickle, *list) != PICKLE_LIST) {
        return fail_kind(reader, key, PICKLE_LIST, *list);
    }
    return 0;
}

// A whole number of 0 or more. Where the key is missing: `*number` stays if `is_optional`.
static int get_u64(reader_t *reader, pickle_ref_t dict, const char *key, bool is_optional,
                   uint64_t *number) {
    pickle_ref_t value;
    if (!pickle_find(reader->pickle, dict, key, &value)) {
        return is_optional ? 0 : fail(reader, key, "missing");
    }
    if (pickle_kind(reader->pickle, value) != PICKLE_INT) {
        return fail_kind(reader, key, PICKLE_INT, value);
    }
    if (pickle_int(reader->pickle, value) < 0) {
        return fail(reader, key, "is negative");
    }
    *number = (uint64_t)pickle_int(reader->pickle, value);
    return 0;
}

// A stream is a handle or a small number; any 64 bits will do.
static int get_stream(reader_t *reader, pickle_ref_t dict, uint64_t *stream) {
    pickle_ref_t value;
    if (!pickle_find(reader->pickle, dict, "stream", &value)) {
        return fail(reader, "stream", "missing");
    }
    if (pickle_kind(reader->pickle, value) != PICKLE_INT) {
        return fail_kind(reader, "stream", PICKLE_INT, value);
    }
    *stream = (uint64_t)pickle_int(reader->pickle, value);
    return 0;
}

static int get_action(reader_t *reader, pickle_ref_t dict, action_t *action) {
    static const struct {
        const char *name;
        action_t action;
    } actions[] = {
        {"alloc", ACTION_ALLOC},
        {"free_requested", ACTION_FREE_REQUESTED},
        {"free_completed", ACTION_FREE_COMPLETED},
        {"oom", ACTION_OOM},
        {"segment_alloc", ACTION_SEGMENT_GROWS},
        {"segment_map", ACTION_SEGMENT_GROWS},
        {"segment_free", ACTION_SEGMENT_SHRINKS},
        {"segment_unmap", ACTION_SEGMENT_SHRINKS},
        {"snapshot", ACTION_IGNORED},
    };
    pickle_ref_t value;
    if (!pickle_find(reader->pickle, dict, "action", &value)) {
        return fail(reader, "action", "missing");
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(actions); i++) {
        if (pickle_text_is(reader->pickle, value, actions[i].name)) {
            *action = actions[i].action;
            return 0;
        }
    }
    return fail(reader, "action", "is none that PyTorch records");
}

static int read_event(reader_t *reader, pickle_ref_t dict, event_t *event) {
    if (expect_record(reader, dict) != 0 || get_action(reader, dict, &event->action) != 0) {
        return -1;
    }
    if (event->action == ACTION_IGNORED) {
        return 0;
    }
    if (get_u64(reader, dict, "time_us", true, &event->time_us) != 0 ||
        get_u64(reader, dict, "size", false, &event->size_bytes) != 0 ||
        get_stream(reader, dict, &event->stream) != 0) {
        return -1;
    }
    return event->action == ACTION_OOM ? 0 : get_u64(reader, dict, "addr", false, &event->addr);
}

// Chooses the device: the one asked for, or the one with most events.
static int choose_device(reader_t *reader, pickle_ref_t traces, int asked, pickle_ref_t *trace) {
    size_t count = pickle_count(reader->pickle, traces);
    size_t most = 0;
    if (visit(reader, count) != 0) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        pickle_ref_t one = pickle_item(reader->pickle, traces, i);
        set_place(reader, "device_traces[%zu]", i);
        if (pickle_kind(reader->pickle, one) != PICKLE_LIST) {
            return fail_kind(reader, "", PICKLE_LIST, one);
        }
        size_t events = pickle_count(reader->pickle, one);
        if (asked < 0 ? events > most : i == (size_t)asked) {
            most = events;
            reader->device = i;
            *trace = one;
        }
    }
    set_place(reader, "device_traces");
    if (asked >= 0) {
        set_place(reader, "device_traces[%d]", asked);
    }
    if (asked >= 0 && (size_t)asked >= count) {
        return fail(reader, "", "the snapshot has no such device");
    }
    if (most == 0) {
        return fail(reader, "",
                    "no events; record them with torch.cuda.memory._record_memory_history()");
    }
    return 0;
}

static int read_events(reader_t *reader, pickle_ref_t trace) {
    size_t count = pickle_count(reader->pickle, trace);
    if (visit(reader, count) != 0) {
        return -1;
    }
    reader->events = calloc(count, sizeof *reader->events);
    if (reader->events == NULL) {
        return fail_memory(reader);
    }
    for (; reader->event_count < count; reader->event_count++) {
        size_t i = reader->event_count;
        set_place(reader, "device_traces[%zu][%zu]", reader->device, i);
        if (read_event(reader, pickle_item(reader->pickle, trace, i), &reader->events[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static int add_held(reader_t *reader, const held_t *held) {
    if (reader->held_count == reader->held_capacity) {
        size_t capacity = reader->held_capacity == 0 ? 64 : reader->held_capacity * 2;
        held_t *moved = realloc(reader->held, capacity * sizeof *moved);
        if (moved == NULL) {
            return fail_memory(reader);
        }
        reader->held = moved;
        reader->held_capacity = capacity;
    }
    if (trace_u64_map_set(&reader->seen, held->addr, 1) != 0) {
        return fail_memory(reader);
    }
    reader->held[reader->held_count++] = *held;
    return 0;
}

// Finds the addresses that are freed before they are allocated. A completion alone tells of a
// block whose free was requested before the recording: it was no longer live.
static int hold_freed(reader_t *reader) {
    for (size_t i = 0; i < reader->event_count; i++) {
        const event_t *event = &reader->events[i];
        if (event->action > ACTION_FREE_COMPLETED ||
            trace_u64_map_get(&reader->seen, event->addr) != TRACE_MAP_NONE) {
            continue;
        }
        held_t held = {event->addr, event->size_bytes, event->stream};
        if (event->action == ACTION_FREE_REQUESTED) {
            if (add_held(reader, &held) != 0) {
                return -1;
            }
        } else if (trace_u64_map_set(&reader->seen, event->addr, 1) != 0) {
            return fail_memory(reader);
        }
    }
    return 0;
}

// One block of a segment at `*addr`, which moves on to the next. Older snapshots say neither the
// address of a block nor its requested size.
static int hold_block(reader_t *reader, pickle_ref_t dict, uint64_t stream, uint64_t *addr) {
    uint64_t size_bytes = 0;
    if (expect_record(reader, dict) != 0 ||
        get_u64(reader, dict, "size", false, &size_bytes) != 0 ||
        get_u64(reader, dict, "address", true, addr) != 0) {
        return -1;
    }
    held_t held = {.addr = *addr, .size_bytes = size_bytes, .stream = stream};
    if (get_u64(reader, dict, "requested_size", true, &held.size_bytes) != 0) {
        return -1;
    }
    if (!berm__add_checked(*addr, size_bytes, addr)) {
        return fail(reader, "size", "reaches beyond the last address");
    }
    pickle_ref_t state;
    if (!pickle_find(reader->pickle, dict, "state", &state)) {
        return fail(reader, "state", "missing");
    }
    if (!pickle_text_is(reader->pickle, state, "active_allocated") ||
        trace_u64_map_get(&reader->seen, held.addr) != TRACE_MAP_NONE) {
        return 0;
    }
    return add_held(reader, &held);
}

static int read_segment(reader_t *reader, pickle_ref_t dict, size_t index) {
    uint64_t device = 0;
    uint64_t addr;
    uint64_t total;
    uint64_t stream;
    pickle_ref_t blocks;
    set_place(reader, "segments[%zu]", index);
    if (expect_record(reader, dict) != 0 || get_u64(reader, dict, "device", true, &device) != 0) {
        return -1;
    }
    if (device != reader->device) {
        return 0;
    }
    if (get_u64(reader, dict, "address", false, &addr) != 0 ||
        get_u64(reader, dict, "total_size", false, &total) != 0 ||
        get_stream(reader, dict, &stream) != 0 || get_list(reader, dict, "blocks", &blocks) != 0) {
        return -1;
    }
    if (!berm__add_checked(reader->reserved_bytes, total, &reader->reserved_bytes)) {
        return fail(reader, "total_size", "the segments add up to more than 2^64 bytes");
    }
    size_t count = pickle_count(reader->pickle, blocks);
    if (visit(reader, count) != 0) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        set_place(reader, "segments[%zu].blocks[%zu]", index, i);
        if (hold_block(reader, pickle_item(reader->pickle, blocks, i), stream, &addr) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_segments(reader_t *reader, pickle_ref_t segments) {
    size_t count = pickle_count(reader->pickle, segments);
    if (visit(reader, count) != 0) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (read_segment(reader, pickle_item(reader->pickle, segments, i), i) != 0) {
            return -1;
        }
    }
    return 0;
}

// Takes the changes of all events back from what is reserved at the end. Unknown where events and
// segments do not agree, so that the figure would fall below 0, and where both say nothing.
static void rewind_reserved(reader_t *reader) {
    __int128 reserved = reader->reserved_bytes;
    bool is_known = reserved <= (__int128)INT64_MAX;
    bool has_changes = false;
    for (size_t i = reader->event_count; i > 0; i--) {
        const event_t *event = &reader->events[i - 1];
        if (event->action == ACTION_SEGMENT_GROWS) {
            reserved -= event->size_bytes;
        } else if (event->action == ACTION_SEGMENT_SHRINKS) {
            reserved += event->size_bytes;
        }
        has_changes = has_changes || event->action == ACTION_SEGMENT_GROWS ||
                      event->action == ACTION_SEGMENT_SHRINKS;
        is_known = is_known && reserved >= 0 && reserved <= (__int128)INT64_MAX;
    }
    reader->is_reserved_known = is_known && (has_changes || reserved > 0);
    reader->reserved_bytes = reader->is_reserved_known ? (uint64_t)reserved : 0;
}

static int compare_held(const void *a, const void *b) {
    const held_t *left = a;
    const held_t *right = b;
    return left->addr < right->addr ? -1 : left->addr > right->addr;
}

static void note_reserved(reader_t *reader, uint64_t peak_before) {
    trace_t *trace = reader->builder->trace;
    if (!reader->is_reserved_known) {
        return;
    }
    if (reader->reserved_bytes > trace->source_reserved_peak_bytes) {
        trace->source_reserved_peak_bytes = reader->reserved_bytes;
    }
    if (trace->peak_live_bytes > peak_before) {
        trace->source_reserved_at_peak_bytes = reader->reserved_bytes;
    }
}

static int alloc_block(reader_t *reader, uint64_t addr, uint64_t size_bytes, uint64_t stream,
                       uint64_t time_us) {
    uint32_t block;
    uint64_t peak_before = reader->builder->trace->peak_live_bytes;
    if (trace_builder_alloc(reader->builder, size_bytes, stream, time_us, &block) != 0) {
        return fail(reader, "", reader->builder->failure);
    }
    if (trace_u64_map_set(&reader->blocks, addr, block) != 0) {
        return fail_memory(reader);
    }
    note_reserved(reader, peak_before);
    return 0;
}

static int alloc_held(reader_t *reader) {
    if (reader->held_count > 0) {
        qsort(reader->held, reader->held_count, sizeof *reader->held, compare_held);
    }
    for (size_t i = 0; i < reader->held_count; i++) {
        const held_t *held = &reader->held[i];
        set_place(reader, "the block at 0x%llx, live before the recording",
                  (unsigned long long)held->addr);
        if (alloc_block(reader, held->addr, held->size_bytes, held->stream, 0) != 0) {
            return -1;
        }
    }
    reader->builder->trace->live_before = reader->held_count;
    return 0;
}

static int built(reader_t *reader, int status) {
    return status == 0 ? 0 : fail(reader, "", reader->builder->failure);
}

// An alloc at an address that other streams were still waited for ends the wait.
static int play_alloc(reader_t *reader, const event_t *event, uint64_t time_us) {
    trace_builder_t *builder = reader->builder;
    uint32_t block = trace_u64_map_get(&reader->blocks, event->addr);
    if (block != TRACE_MAP_NONE) {
        trace_block_state_t state = trace_builder_state(builder, block);
        if (state == TRACE_BLOCK_LIVE) {
            return fail(reader, "addr", "allocated while it is live");
        }
        if (state == TRACE_BLOCK_AWAITED && trace_builder_free_done(builder, block, time_us) != 0) {
            return fail(reader, "", builder->failure);
        }
    }
    return alloc_block(reader, event->addr, event->size_bytes, event->stream, time_us);
}

// A completion alone frees too: restoring the state of a captured graph's pool records just that.
static int play_free(reader_t *reader, size_t *index, uint64_t time_us) {
    const event_t *event = &reader->events[*index];
    const event_t *next = *index + 1 < reader->event_count ? event + 1 : NULL;
    bool is_request = event->action == ACTION_FREE_REQUESTED;
    bool is_completed =
        next != NULL && next->action == ACTION_FREE_COMPLETED && next->addr == event->addr;
    uint32_t block = trace_u64_map_get(&reader->blocks, event->addr);
    if (block == TRACE_MAP_NONE) { // completed only: freed before the recording
        return 0;
    }
    switch (trace_builder_state(reader->builder, block)) {
    case TRACE_BLOCK_LIVE:
        *index += is_request && is_completed;
        return built(reader, trace_builder_free(reader->builder, block, is_request && !is_completed,
                                                time_us));
    case TRACE_BLOCK_AWAITED:
        return is_request ? fail(reader, "addr", "freed twice")
                          : built(reader, trace_builder_free_done(reader->builder, block, time_us));
    default:
        return fail(reader, "addr", "freed twice");
    }
}

static int play_event(reader_t *reader, size_t *index) {
    const event_t *event = &reader->events[*index];
    uint64_t first_us = reader->events[0].time_us;
    uint64_t time_us = event->time_us > first_us ? event->time_us - first_us : 0;
    set_place(reader, "device_traces[%zu][%zu]", reader->device, *index);
    switch (event->action) {
    case ACTION_ALLOC:
        return play_alloc(reader, event, time_us);
    case ACTION_FREE_REQUESTED:
    case ACTION_FREE_COMPLETED:
        return play_free(reader, index, time_us);
    case ACTION_OOM:
        return built(reader,
                     trace_builder_oom(reader->builder, event->size_bytes, event->stream, time_us));
    case ACTION_SEGMENT_GROWS:
        reader->reserved_bytes += reader->is_reserved_known ? event->size_bytes : 0;
        break;
    case ACTION_SEGMENT_SHRINKS:
        reader->reserved_bytes -= reader->is_reserved_known ? event->size_bytes : 0;
        break;
    case ACTION_IGNORED:
        break;
    }
    note_reserved(reader, reader->builder->trace->peak_live_bytes);
    return 0;
}

static int read_snapshot(reader_t *reader, int device) {
    pickle_ref_t root = pickle_root(reader->pickle);
    pickle_ref_t traces;
    pickle_ref_t segments;
    pickle_ref_t trace = root;
    set_place(reader, "the pickle");
    if (expect_record(reader, root) != 0) {
        return -1;
    }
    set_place(reader, "%s", "");
    if (get_list(reader, root, "device_traces", &traces) != 0 ||
        get_list(reader, root, "segments", &segments) != 0 ||
        choose_device(reader, traces, device, &trace) != 0 || read_events(reader, trace) != 0 ||
        hold_freed(reader) != 0 || read_segments(reader, segments) != 0) {
        return -1;
    }
    rewind_reserved(reader);
    reader->builder->trace->device = (int)reader->device;
    reader->builder->trace->source_reserved_peak_bytes = reader->reserved_bytes;
    if (alloc_held(reader) != 0) {
        return -1;
    }
    for (size_t i = 0; i < reader->event_count; i++) {
        if (play_event(reader, &i) != 0) {
            return -1;
        }
    }
    return 0;
}

// The beginning of a pickle: protocol 2 and later start with 0x80, earlier ones with the root's own
// opcode. A GLOBAL is looked for too, so that its refusal says what the file is.
bool trace_pytorch_matches(const trace_input_t *input) {
    const uint8_t *bytes = input->bytes;
    if (bytes[0] == 0x80 || bytes[0] == '}' || bytes[0] == ']') {
        return true;
    }
    if (input->size >= 2 && bytes[0] == '(') {
        return strchr("dlt(}]cicNIJKX", bytes[1]) != NULL && bytes[1] != '\0';
    }
    size_t i = 1;
    while (bytes[0] == 'c' && i < input->size && i < 200 &&
           (isalnum(bytes[i]) || bytes[i] == '_' || bytes[i] == '.')) {
        i++;
    }
    return bytes[0] == 'c' && i > 1 && i < input->size && bytes[i] == '\n';
}

trace_t *trace_pytorch_read(const trace_input_t *input, const trace_read_options_t *options,
                            char *error, size_t error_capacity) {
    pickle_t *pickle = pickle_read(input, error, error_capacity);
    if (pickle == NULL) {
        return NULL;
    }
    reader_t reader = {.input = input,
                       .pickle = pickle,
                       .builder = trace_builder_create(input->name, "pytorch-snapshot"),
                       .error = error,
                       .error_capacity = error_capacity,
                       .visits_left = input->size};
    int status =
        reader.builder == NULL ? fail_memory(&reader) : read_snapshot(&reader, options->device);
    free(reader.events);
    free(reader.held);
    trace_u64_map_destroy(&reader.seen);
    trace_u64_map_destroy(&reader.blocks);
    pickle_destroy(pickle);
    if (status != 0) {
        trace_builder_destroy(reader.builder);
        return NULL;
    }
    return trace_builder_finish(reader.builder, error, error_capacity);
}
