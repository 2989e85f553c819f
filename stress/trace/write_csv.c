// SPDX-License-Identifier: Apache-2.0
// Writes a trace as event CSV, packed by gzip where the path ends in ".gz". event_csv.c reads it
// back; times are not written.
//
// Bounds: no memory beyond the buffers of stdio and zlib. The same trace gives the same bytes.
// Locks: none. May fail: on any write; the file is then incomplete and says so by its error.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/defs.h"
#include "stress/trace/input.h"
#include "stress/trace/trace.h"

// Exactly one of the two is open.
typedef struct sink {
    FILE *plain;
    gzFile packed;
    bool has_failed;
} sink_t;

static void BERM_PRINTF(2, 3) put_line(sink_t *sink, const char *format, ...) {
    char line[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line) {
        sink->has_failed = true;
    } else if (sink->plain != NULL) {
        sink->has_failed |= fwrite(line, 1, (size_t)length, sink->plain) != (size_t)length;
    } else {
        sink->has_failed |= gzwrite(sink->packed, line, (unsigned)length) != length;
    }
}

static const char *name_op(uint8_t op) {
    static const char *const names[] = {
        [TRACE_ALLOC] = "alloc",
        [TRACE_FREE] = "free",
        [TRACE_FREE_DONE] = "free_done",
        [TRACE_OOM] = "oom",
    };
    return op < BERM_ARRAY_LENGTH(names) ? names[op] : "?";
}

static bool ends_in_gz(const char *path) {
    size_t length = strlen(path);
    return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

static bool sink_close(sink_t *sink) {
    if (sink->plain != NULL) {
        return fclose(sink->plain) == 0 && !sink->has_failed;
    }
    return gzclose(sink->packed) == Z_OK && !sink->has_failed;
}

int trace_write_csv(const trace_t *trace, const char *path, char *error, size_t error_capacity) {
    sink_t sink = {0};
    errno = 0;
    if (ends_in_gz(path)) {
        sink.packed = gzopen(path, "wbe");
    } else {
        sink.plain = fopen(path, "we");
    }
    if (sink.plain == NULL && sink.packed == NULL) {
        trace_fail(error, error_capacity, "%s: %s", path,
                   errno == 0 ? "no memory to write it" : strerror(errno));
        return -1;
    }
    put_line(&sink, "event_index,op,id,size_bytes,stream\n");
    for (size_t i = 0; i < trace->event_count && !sink.has_failed; i++) {
        const trace_event_t *event = &trace->events[i];
        const trace_block_t *block = &trace->blocks[event->block];
        put_line(&sink, "%zu,%s,%lu,%llu,%llu\n", i, name_op(event->op),
                 (unsigned long)event->block, (unsigned long long)block->size_bytes,
                 (unsigned long long)trace->streams[block->stream]);
    }
    if (!sink_close(&sink)) {
        trace_fail(error, error_capacity, "%s: cannot write it: %s", path,
                   errno == 0 ? "the packed stream failed" : strerror(errno));
        return -1;
    }
    return 0;
}
