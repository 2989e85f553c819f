// SPDX-License-Identifier: Apache-2.0
// A recording as lines: RMM's log, the event CSV that `berm replay` takes, and a table of all that
// is known of each event. See record.h.
//
// What lived before the first event comes first where a form knows no other way to say it.
// Locks: none. Cannot fail.
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "host/mem.h"
#include "record/record.h"

typedef struct lines {
    berm_emit_write_fn write;
    void *context;
} lines_t;

BERM_PRINTF(2, 3) static void line(const lines_t *lines, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0)
        lines->write(lines->context, text, berm__min_u64((uint64_t)length, sizeof text - 1));
}

// "hh:mm:ss.uuuuuu" of the day, as RMM's log has it: UTC.
static void time_text(const berm_record_t *record, uint64_t time_ns, char text[32]) {
    struct tm parts;
    int64_t wall_ns = (int64_t)time_ns + record->wall_ns;
    time_t seconds = (time_t)(wall_ns / 1000000000);
    if (gmtime_r(&seconds, &parts) == NULL)
        parts = (struct tm){0};
    (void)snprintf(text, 32, "%02d:%02d:%02d.%06d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                   (int)(wall_ns / 1000 % 1000000));
}

// --- blocks of before ----------------------------------------------------------------------------

// Blocks that live at the end and whose ALLOC is no event, and those whose FREE is the first event
// of their address, lived before the first event. Called for each.
typedef void (*before_fn)(void *context, uint64_t addr, uint64_t size_bytes, int64_t stream);

typedef struct seen {
    uint64_t *addrs; // open addressing; 0: empty
    uint64_t count;  // a power of two
} seen_t;

// True if it was not there.
static bool seen_add(const seen_t *seen, uint64_t addr) {
    uint64_t at = addr * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; at++) {
        uint64_t *slot = &seen->addrs[at & (seen->count - 1)];
        if (*slot == addr)
            return false;
        if (*slot == 0) {
            *slot = addr;
            return true;
        }
    }
}

typedef struct before {
    uint64_t addr, size_bytes;
    int64_t stream;
} before_t;

static int compare_before(const void *one, const void *other) {
    const before_t *a = one, *b = other;
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

// The list of them, which has room for all; how many.
static uint64_t before_list(const berm_record_device_t *device, const seen_t *seen,
                            before_t *list) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        bool is_block = event->kind == BERM_RECORD_ALLOC || event->kind == BERM_RECORD_FREE;
        if (is_block && seen_add(seen, event->addr) && event->kind == BERM_RECORD_FREE)
            list[count++] = (before_t){event->addr, event->size_bytes, event->stream};
    }
    for (uint64_t i = 0; i < device->segment_count; i++) {
        const berm_record_segment_t *segment = &device->segments[i];
        for (uint64_t at = 0; at < segment->block_count; at++) {
            const berm_record_block_t *block = &device->blocks[segment->block_first + at];
            if (block->state == BERM_RECORD_LIVE && seen_add(seen, block->addr))
                list[count++] = (before_t){block->addr, block->requested_bytes, segment->stream};
        }
    }
    return count;
}

// In the order of their addresses. Without host memory nothing is called: the frees of those blocks
// have no alloc then, which readers refuse.
static void before_each(const berm_record_device_t *device, before_fn fn, void *context) {
    uint64_t most = device->event_count + device->block_count + 1;
    seen_t seen = {.count = UINT64_C(4) << berm__bit_highest(most)};
    seen.addrs = berm__mem_reserve(seen.count * sizeof *seen.addrs);
    before_t *list = berm__mem_reserve(most * sizeof *list);
    uint64_t count = seen.addrs != NULL && list != NULL ? before_list(device, &seen, list) : 0;
    if (count > 0)
        qsort(list, count, sizeof *list, compare_before);
    for (uint64_t i = 0; i < count; i++)
        fn(context, list[i].addr, list[i].size_bytes, list[i].stream);
    berm__mem_unreserve(seen.addrs, seen.count * sizeof *seen.addrs);
    berm__mem_unreserve(list, most * sizeof *list);
}

// --- RMM's log -----------------------------------------------------------------------------------

typedef struct rmm {
    lines_t lines;
    const berm_record_t *record;
    uint64_t first_ns;
} rmm_t;

static void rmm_row(const rmm_t *rmm, uint32_t thread, uint64_t time_ns, const char *action,
                    uint64_t addr, uint64_t size_bytes, int64_t stream) {
    char time[32];
    time_text(rmm->record, time_ns, time);
    line(&rmm->lines, "%" PRIu32 ",%s,%s,0x%" PRIx64 ",%" PRIu64 ",0x%" PRIx64 "\n", thread, time,
         action, addr, size_bytes, (uint64_t)stream);
}

static void rmm_before(void *context, uint64_t addr, uint64_t size_bytes, int64_t stream) {
    const rmm_t *rmm = context;
    rmm_row(rmm, 0, rmm->first_ns, "allocate", addr, size_bytes, stream);
}

void berm__record_write_rmm(const berm_record_t *record, const berm_record_device_t *device,
                            berm_emit_write_fn write, void *context) {
    rmm_t rmm = {{write, context}, record, record->now_ns};
    if (device->event_count > 0)
        rmm.first_ns = device->events[0].time_ns;
    line(&rmm.lines, "Thread,Time,Action,Pointer,Size,Stream\n");
    before_each(device, rmm_before, &rmm);
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        if (event->kind <= BERM_RECORD_FAIL)
            rmm_row(&rmm, event->thread, event->time_ns,
                    event->kind == BERM_RECORD_ALLOC  ? "allocate"
                    : event->kind == BERM_RECORD_FREE ? "free"
                                                      : "allocate failure",
                    event->addr, event->size_bytes, event->stream);
    }
}

// --- event CSV -----------------------------------------------------------------------------------

typedef struct replay {
    lines_t lines;
    uint64_t rows;
} replay_t;

// An address is a good id: it may be used again once its block is free.
static void replay_row(replay_t *replay, const char *op, uint64_t addr, uint64_t size_bytes,
                       int64_t stream) {
    line(&replay->lines, "%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", replay->rows++, op,
         addr, size_bytes, (uint64_t)stream);
}

static void replay_before(void *context, uint64_t addr, uint64_t size_bytes, int64_t stream) {
    replay_row(context, "alloc", addr, size_bytes, stream);
}

void berm__record_write_replay(const berm_record_t *record, const berm_record_device_t *device,
                               berm_emit_write_fn write, void *context) {
    replay_t replay = {.lines = {write, context}};
    (void)record;
    line(&replay.lines, "event_index,op,id,size_bytes,stream\n");
    before_each(device, replay_before, &replay);
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        if (event->kind <= BERM_RECORD_FAIL)
            replay_row(&replay,
                       event->kind == BERM_RECORD_ALLOC  ? "alloc"
                       : event->kind == BERM_RECORD_FREE ? "free"
                                                         : "oom",
                       event->addr, event->size_bytes, event->stream);
    }
}

// --- everything ----------------------------------------------------------------------------------

// A name in quotes, those inside doubled.
static void quoted(const lines_t *lines, const char *text) {
    line(lines, "\"");
    for (; *text != '\0'; text++)
        lines->write(lines->context, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    line(lines, "\"");
}

void berm__record_write_csv(const berm_record_t *record, berm_emit_write_fn write, void *context) {
    const lines_t lines = {write, context};
    line(&lines, "device,time_ns,thread,event,address,size_bytes,stream,pool_high,pool_low,number,"
                 "site,tag\n");
    for (unsigned d = 0; d < record->device_count; d++) {
        const berm_record_device_t *device = &record->devices[d];
        for (uint64_t i = 0; i < device->event_count; i++) {
            const berm_record_event_t *event = &device->events[i];
            line(&lines,
                 "%d,%" PRIu64 ",%" PRIu32 ",%s,0x%" PRIx64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64
                 ",%" PRIu64 ",%" PRIu64 ",0x%" PRIx64 ",",
                 device->ordinal, event->time_ns, event->thread,
                 berm__record_kind_name((berm_record_kind_t)event->kind), event->addr,
                 event->size_bytes, event->stream, event->pool_high, event->pool_low, event->number,
                 event->site);
            quoted(&lines, record->tags[event->tag]);
            line(&lines, "\n");
        }
    }
}
