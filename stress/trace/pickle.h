// SPDX-License-Identifier: Apache-2.0
// A reader of Python pickles that hold plain values and nothing else: None, bool, int (64 bits),
// float, str, bytes, list, tuple, dict. Nothing in a pickle is ever executed: an opcode that would
// import, call or build something is refused by name and offset.
//
// Values are numbered; a number may be met at several places (the pickle's memo shares values), and
// a list or dict may even contain itself: callers descend to a fixed depth and bound what they
// visit. Text is borrowed from the input.
#ifndef STRESS_TRACE_PICKLE_H
#define STRESS_TRACE_PICKLE_H

#include "base/defs.h"
#include "stress/trace/input.h"

typedef enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_STR, // as it stands in the file: UTF-8, or with escapes in protocol 0
    PICKLE_BYTES,
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_DICT,
} pickle_kind_t;

typedef struct pickle pickle_t;
typedef uint32_t pickle_ref_t;

// Reads the first pickle in the input, which must outlive the result. NULL with one line in
// `error` ("FILE: at byte N: what"; N counts unpacked bytes).
// Memory: at most 16 bytes per byte of input, or 256 MiB if that is more.
pickle_t *pickle_read(const trace_input_t *input, char *error, size_t error_capacity);
void pickle_destroy(pickle_t *pickle);

pickle_ref_t pickle_root(const pickle_t *pickle);
pickle_kind_t pickle_kind(const pickle_t *pickle, pickle_ref_t value);
const char *pickle_kind_name(pickle_kind_t kind);

// Of a BOOL (0 or 1) or INT; of a FLOAT; of a STR or BYTES (not NUL-terminated).
int64_t pickle_int(const pickle_t *pickle, pickle_ref_t value);
double pickle_float(const pickle_t *pickle, pickle_ref_t value);
const char *pickle_text(const pickle_t *pickle, pickle_ref_t value, size_t *length);
bool pickle_text_is(const pickle_t *pickle, pickle_ref_t value, const char *text);

// Number of items of a LIST or TUPLE, of pairs of a DICT.
size_t pickle_count(const pickle_t *pickle, pickle_ref_t value);
pickle_ref_t pickle_item(const pickle_t *pickle, pickle_ref_t value, size_t index);

// The value of a str key (the last one set), found by walking the pairs. False if there is none.
bool pickle_find(const pickle_t *pickle, pickle_ref_t dict, const char *key, pickle_ref_t *found);

// Bytes of memory the values take.
size_t pickle_memory_bytes(const pickle_t *pickle);

#endif
