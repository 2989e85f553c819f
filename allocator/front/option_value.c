// SPDX-License-Identifier: Apache-2.0
// Values of options as text. What the options are, and where text comes from, is options.c.
// Members are written with memcpy at the row's offset, so that one function serves a kind.
// Locks: the owner's of the berm_options_t. Fails only for text that is no value.
#include "front/option_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

_Static_assert(sizeof(berm_remap_t) == sizeof(int) && sizeof(berm_log_level_t) == sizeof(int) &&
                   sizeof(berm_mem_backend_t) == sizeof(int) &&
                   sizeof(berm_backing_t) == sizeof(int),
               "every choice is stored as an int");

enum {
    DECIMAL_PLACES = 9
};

bool berm__text_equals(berm_text_t text, const char *string) {
    return strlen(string) == text.length && memcmp(text.at, string, text.length) == 0;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Takes the digits at the front of *text; false if there are none or they overflow.
static bool digits_take(berm_text_t *text, uint64_t *out) {
    uint64_t value = 0;
    size_t i = 0;
    for (; i < text->length && is_digit(text->at[i]); i++)
        if (!berm__mul_checked(value, 10, &value) ||
            !berm__add_checked(value, (uint64_t)(text->at[i] - '0'), &value))
            return false;
    if (i == 0)
        return false;
    text->at += i;
    text->length -= i;
    *out = value;
    return true;
}

// "", K, M, G or T with B, iB or neither, or B: the power of two that it means, or -1.
static int suffix_shift(berm_text_t suffix) {
    static const char letters[] = "KMGTkmgt";
    if (suffix.length == 0 || berm__text_equals(suffix, "B"))
        return 0;
    const char *letter = memchr(letters, suffix.at[0], sizeof letters - 1);
    suffix.at++;
    suffix.length--;
    if (letter == NULL ||
        !(suffix.length == 0 || berm__text_equals(suffix, "B") || berm__text_equals(suffix, "iB")))
        return -1;
    return 10 * (int)((letter - letters) % 4 + 1);
}

// The digits behind a point, as so many of `scale`.
static bool fraction_take(berm_text_t *text, uint64_t *part, uint64_t *scale) {
    *part = 0;
    *scale = 1;
    if (text->length == 0 || text->at[0] != '.')
        return true;
    text->at++;
    text->length--;
    size_t before = text->length;
    if (!digits_take(text, part) || before - text->length > DECIMAL_PLACES)
        return false;
    for (size_t places = before - text->length; places > 0; places--)
        *scale *= 10;
    return true;
}

bool berm__text_to_bytes(berm_text_t text, uint64_t *out) {
    uint64_t value, part, scale;
    if (!digits_take(&text, &value) || !fraction_take(&text, &part, &scale))
        return false;
    int shift = suffix_shift(text);
    if (shift < 0 || !berm__mul_checked(value, UINT64_C(1) << shift, &value))
        return false;
    // part < 10^9 and shift <= 40: below 2^70 only on paper, so the factors of 2 go first.
    while (shift > 0 && scale % 2 == 0) {
        scale /= 2;
        shift--;
    }
    if (part % scale != 0 || !berm__mul_checked(part / scale, UINT64_C(1) << shift, &part))
        return false; // no whole number of bytes
    return berm__add_checked(value, part, out);
}

bool berm__text_to_decimal(berm_text_t text, double *out) {
    uint64_t whole, part = 0;
    double scale = 1;
    if (!digits_take(&text, &whole) || whole >= (uint64_t)1 << 53)
        return false;
    if (text.length > 0 && text.at[0] == '.') {
        text.at++;
        text.length--;
        size_t places = text.length;
        if (places > DECIMAL_PLACES || !digits_take(&text, &part))
            return false;
        while (places-- > 0)
            scale *= 10;
    }
    if (text.length != 0)
        return false;
    *out = (double)whole + (double)part / scale;
    return true;
}

// Digits, and maybe a point and more digits, taken off the front of *text.
static bool number_skip(berm_text_t *text) {
    for (int part = 0; part < 2; part++) {
        size_t digits = 0;
        while (digits < text->length && is_digit(text->at[digits]))
            digits++;
        if (digits == 0)
            return false;
        text->at += digits;
        text->length -= digits;
        if (part > 0 || text->length == 0 || text->at[0] != '.')
            return true;
        text->at++;
        text->length--;
    }
    return true;
}

const char *berm__option_value_wrong(const berm_option_row_t *row, berm_text_t value) {
    uint64_t bytes;
    berm_text_t rest = value;
    bool is_number = number_skip(&rest);
    switch (row->kind) {
    case BERM_OPTION_CHOICE:
    case BERM_OPTION_BOOL:
        return "not one of its values";
    case BERM_OPTION_BYTES:
    case BERM_OPTION_POW2:
    case BERM_OPTION_LIMIT:
        if (!is_number || suffix_shift(rest) < 0)
            return "no size such as 512M, 1.5G or 20GiB";
        if (memchr(value.at, '.', value.length) != NULL && !berm__text_to_bytes(value, &bytes))
            return "no whole number of bytes";
        return "not in its range";
    case BERM_OPTION_PERCENT:
        rest.length -= rest.length == 1 && rest.at[0] == '%';
        return is_number && rest.length == 0 ? "not in its range" : "no number such as 2 or 0.5";
    case BERM_OPTION_FRACTION:
        return is_number && rest.length == 0 ? "not in its range" : "no number such as 2 or 0.5";
    case BERM_OPTION_MS:
    case BERM_OPTION_TEXT:
    case BERM_OPTION_KIND_COUNT:
        break;
    }
    return "not in its range";
}

// The place of the value in "a|b|c", or -1.
static int choice_of(const char *range, berm_text_t value) {
    for (int place = 0;; place++) {
        size_t length = strcspn(range, "|");
        if (length == value.length && memcmp(range, value.at, length) == 0)
            return place;
        if (range[length] == '\0')
            return -1;
        range += length + 1;
    }
}

static bool bool_of(berm_text_t value, bool *out) {
    static const char *const words[] = {"off", "on", "false", "true", "False", "True", "0", "1"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(words); i++)
        if (berm__text_equals(value, words[i])) {
            *out = i % 2 == 1;
            return true;
        }
    return false;
}

static bool bytes_set(const berm_option_row_t *row, void *member, berm_text_t value) {
    uint64_t bytes;
    if (row->kind == BERM_OPTION_LIMIT && berm__text_equals(value, "none"))
        bytes = UINT64_MAX;
    else if (!berm__text_to_bytes(value, &bytes) || bytes < (uint64_t)row->least ||
             bytes > (uint64_t)row->most ||
             (row->kind == BERM_OPTION_POW2 && !berm__is_pow2(bytes)))
        return false;
    memcpy(member, &bytes, sizeof bytes);
    return true;
}

static bool ms_set(const berm_option_row_t *row, void *member, berm_text_t value) {
    uint64_t ms = UINT64_MAX;
    if (!berm__text_equals(value, "-1") &&
        (!digits_take(&value, &ms) || value.length != 0 || ms > (uint64_t)row->most))
        return false;
    memcpy(member, &ms, sizeof ms);
    return true;
}

static bool decimal_set(const berm_option_row_t *row, void *member, berm_text_t value) {
    double number;
    if (row->kind == BERM_OPTION_PERCENT && value.length > 0 && value.at[value.length - 1] == '%')
        value.length--;
    if (!berm__text_to_decimal(value, &number) || number < row->least || number > row->most)
        return false;
    memcpy(member, &number, sizeof number);
    return true;
}

static bool text_set(const berm_option_row_t *row, char *member, berm_text_t value) {
    if ((double)value.length < row->least || value.length >= BERM_OPTION_TEXT_BYTES)
        return false;
    if (memchr(value.at, '\0', value.length) != NULL)
        return false;
    memcpy(member, value.at, value.length);
    member[value.length] = '\0';
    return true;
}

bool berm__option_value_set(const berm_option_row_t *row, berm_options_t *options,
                            berm_text_t value) {
    char *member = (char *)options + row->offset;
    switch (row->kind) {
    case BERM_OPTION_BYTES:
    case BERM_OPTION_POW2:
    case BERM_OPTION_LIMIT:
        return bytes_set(row, member, value);
    case BERM_OPTION_MS:
        return ms_set(row, member, value);
    case BERM_OPTION_PERCENT:
    case BERM_OPTION_FRACTION:
        return decimal_set(row, member, value);
    case BERM_OPTION_BOOL: {
        bool is_on;
        if (!bool_of(value, &is_on))
            return false;
        memcpy(member, &is_on, sizeof is_on);
        return true;
    }
    case BERM_OPTION_CHOICE: {
        int place = choice_of(row->info.range, value);
        if (place < 0)
            return false;
        memcpy(member, &place, sizeof place);
        return true;
    }
    case BERM_OPTION_TEXT:
        return text_set(row, member, value);
    case BERM_OPTION_KIND_COUNT:
        break;
    }
    return false;
}

static void bytes_get(uint64_t bytes, char *text, size_t capacity) {
    static const char suffixes[] = "KMGT";
    if (bytes == UINT64_MAX) {
        (void)snprintf(text, capacity, "none");
        return;
    }
    size_t shifts = 0;
    while (shifts < 4 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        shifts++;
    }
    (void)snprintf(text, capacity, "%" PRIu64 "%.*s", bytes, shifts > 0,
                   &suffixes[shifts > 0 ? shifts - 1 : 0]);
}

// Fixed point without its trailing zeros; made of integers, as printf's point is the locale's.
static void decimal_get(double number, char *text, size_t capacity) {
    const uint64_t unit = 1000000000; // DECIMAL_PLACES zeros
    uint64_t scaled = (uint64_t)(number * (double)unit + 0.5);
    uint64_t part = scaled % unit;
    int places = part == 0 ? 0 : DECIMAL_PLACES;
    while (part != 0 && part % 10 == 0) {
        part /= 10;
        places--;
    }
    if (places == 0)
        (void)snprintf(text, capacity, "%" PRIu64, scaled / unit);
    else
        (void)snprintf(text, capacity, "%" PRIu64 ".%0*" PRIu64, scaled / unit, places, part);
}

static void choice_get(const char *range, int place, char *text, size_t capacity) {
    while (place-- > 0)
        range += strcspn(range, "|") + 1;
    (void)snprintf(text, capacity, "%.*s", (int)strcspn(range, "|"), range);
}

void berm__option_value_get(const berm_option_row_t *row, const berm_options_t *options, char *text,
                            size_t capacity) {
    const char *member = (const char *)options + row->offset;
    uint64_t bytes;
    double number;
    bool is_on;
    int place;
    switch (row->kind) {
    case BERM_OPTION_BYTES:
    case BERM_OPTION_POW2:
    case BERM_OPTION_LIMIT:
        memcpy(&bytes, member, sizeof bytes);
        bytes_get(bytes, text, capacity);
        break;
    case BERM_OPTION_MS:
        memcpy(&bytes, member, sizeof bytes);
        (void)snprintf(text, capacity, "%" PRId64, (int64_t)bytes);
        break;
    case BERM_OPTION_PERCENT:
    case BERM_OPTION_FRACTION:
        memcpy(&number, member, sizeof number);
        decimal_get(number, text, capacity);
        break;
    case BERM_OPTION_BOOL:
        memcpy(&is_on, member, sizeof is_on);
        (void)snprintf(text, capacity, "%s", is_on ? "on" : "off");
        break;
    case BERM_OPTION_CHOICE:
        memcpy(&place, member, sizeof place);
        choice_get(row->info.range, place, text, capacity);
        break;
    case BERM_OPTION_TEXT:
    case BERM_OPTION_KIND_COUNT:
        (void)snprintf(text, capacity, "%s", member);
        break;
    }
}
