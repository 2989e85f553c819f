// SPDX-License-Identifier: Apache-2.0
// One writer for JSON and for an indented human view, made by the same calls, so that the two
// cannot disagree (the idea is jemalloc's emitter). Output goes to a callback in pieces; nothing
// is allocated. JSON strings are escaped; bytes that are not valid UTF-8 come out as \u00XX.
#ifndef BERM_BASE_EMIT_H
#define BERM_BASE_EMIT_H

#include <stdbool.h>

#include "base/defs.h"

// Receives `length` bytes of `text` (not NUL-terminated); must not call back into the emitter.
typedef void (*berm_emit_write_fn)(void *context, const char *text, size_t length);

typedef enum berm_emit_format {
    BERM_EMIT_JSON,  // one value, no newline at the end of nested values
    BERM_EMIT_TABLE, // "name: value" lines, nested values indented by two spaces
} berm_emit_format_t;

enum {
    BERM_EMIT_DEPTH_MAX = 32
};

typedef struct berm_emit {
    berm_emit_write_fn write;
    void *context;
    berm_emit_format_t format;
    unsigned depth;
    bool has_items[BERM_EMIT_DEPTH_MAX]; // per level: a comma is due before the next item
    bool is_array[BERM_EMIT_DEPTH_MAX];
} berm_emit_t;

void berm__emit_init(berm_emit_t *emit, berm_emit_format_t format, berm_emit_write_fn write,
                     void *context);

// Every call takes the key of the item; it is ignored (pass NULL) inside an array and at the root.
void berm__emit_object_begin(berm_emit_t *emit, const char *key);
void berm__emit_object_end(berm_emit_t *emit);
void berm__emit_array_begin(berm_emit_t *emit, const char *key);
void berm__emit_array_end(berm_emit_t *emit);
void berm__emit_u64(berm_emit_t *emit, const char *key, uint64_t value);
void berm__emit_i64(berm_emit_t *emit, const char *key, int64_t value);
void berm__emit_bool(berm_emit_t *emit, const char *key, bool value);
void berm__emit_null(berm_emit_t *emit, const char *key);
void berm__emit_string(berm_emit_t *emit, const char *key, const char *value);
void berm__emit_string_n(berm_emit_t *emit, const char *key, const char *value, size_t length);
// Fixed point with `decimals` places (0 to 9); a value that is not finite becomes null.
void berm__emit_double(berm_emit_t *emit, const char *key, double value, int decimals);
// A device address, as a "0x…" string: JSON numbers lose 64-bit integers in many readers.
void berm__emit_addr(berm_emit_t *emit, const char *key, berm_addr_t value);
// Ends the document with a newline; every begin must have been ended.
void berm__emit_finish(berm_emit_t *emit);

// A berm_emit_write_fn whose context is a FILE *.
void berm__emit_write_file(void *file, const char *text, size_t length);

#endif
