// SPDX-License-Identifier: Apache-2.0
// One option's value between text and memory. Parsing is strict: the whole text must be the value,
// nothing overflows, and the locale has no say. Used by options.c only.
#ifndef BERM_FRONT_OPTION_VALUE_H
#define BERM_FRONT_OPTION_VALUE_H

#include <stdbool.h>

#include "base/defs.h"
#include "berm_introspect.h"
#include "front/options.h"

typedef enum berm_option_kind {
    BERM_OPTION_BYTES,    // uint64_t
    BERM_OPTION_POW2,     // uint64_t, a power of two of bytes
    BERM_OPTION_LIMIT,    // uint64_t bytes; "none" is UINT64_MAX
    BERM_OPTION_MS,       // uint64_t milliseconds; "-1" is UINT64_MAX
    BERM_OPTION_PERCENT,  // double; a % at the end is allowed
    BERM_OPTION_FRACTION, // double
    BERM_OPTION_BOOL,     // bool
    BERM_OPTION_CHOICE,   // an enum whose values are the places in info.range, split at |
    BERM_OPTION_TEXT,     // char[BERM_OPTION_TEXT_BYTES]
    BERM_OPTION_KIND_COUNT
} berm_option_kind_t;

typedef struct berm_option_row {
    berm_option_info_t info;
    berm_option_kind_t kind;
    size_t offset; // of the member in berm_options_t
    double least;  // of a number, or of a text's length
    double most;   //
} berm_option_row_t;

// A piece of a larger text.
typedef struct berm_text {
    const char *at;
    size_t length;
} berm_text_t;

bool berm__text_equals(berm_text_t text, const char *string);

// Sizes: a number with up to nine places that is a whole number of bytes, and B, or K, M, G or T
// (powers of 1024, either case) with B, iB or neither. Decimals with up to nine places. Digits
// only, no sign, no exponent. False, *out untouched, for anything else.
BERM_NODISCARD bool berm__text_to_bytes(berm_text_t text, uint64_t *out);
BERM_NODISCARD bool berm__text_to_decimal(berm_text_t text, double *out);

// False, and nothing changed, if the option does not take the value.
BERM_NODISCARD bool berm__option_value_set(const berm_option_row_t *row, berm_options_t *options,
                                           berm_text_t value);

// Of a value that it did not take: "not in its range" or the like, to come after "is".
const char *berm__option_value_wrong(const berm_option_row_t *row, berm_text_t value);

// Writes the text that berm__option_value_set takes back to the same value.
void berm__option_value_get(const berm_option_row_t *row, const berm_options_t *options, char *text,
                            size_t capacity);

#endif
