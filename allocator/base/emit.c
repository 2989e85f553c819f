// SPDX-License-Identifier: Apache-2.0
// The emitter: see emit.h. State is a stack of levels; each item first writes what separates it
// from the one before, then its key, then its value.
#include "base/emit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/insist.h"

static void emit_text(berm_emit_t *emit, const char *text) {
    emit->write(emit->context, text, strlen(text));
}

static void emit_escaped(berm_emit_t *emit, const char *text, size_t length);

// What comes before the value of an item: separator, indentation and key.
static void emit_item(berm_emit_t *emit, const char *key) {
    if (emit->depth == 0)
        return;
    unsigned level = emit->depth - 1;
    bool in_array = emit->is_array[level];
    if (emit->format == BERM_EMIT_JSON) {
        if (emit->has_items[level])
            emit_text(emit, ",");
        if (!in_array) {
            emit_escaped(emit, key, strlen(key));
            emit_text(emit, ":");
        }
    } else {
        for (unsigned i = 1; i < emit->depth; i++)
            emit_text(emit, "  ");
        if (in_array)
            emit_text(emit, "- ");
        else {
            emit_text(emit, key);
            emit_text(emit, ": ");
        }
    }
    emit->has_items[level] = true;
}

static void emit_line_end(berm_emit_t *emit) {
    if (emit->format == BERM_EMIT_TABLE)
        emit_text(emit, "\n");
}

static void emit_scalar(berm_emit_t *emit, const char *key, const char *text) {
    emit_item(emit, key);
    emit_text(emit, text);
    emit_line_end(emit);
}

static void emit_open(berm_emit_t *emit, const char *key, bool is_array) {
    BERM_INSIST(emit->depth < BERM_EMIT_DEPTH_MAX, "emitter nested too deep");
    bool is_root = emit->depth == 0;
    emit_item(emit, key);
    if (emit->format == BERM_EMIT_JSON)
        emit_text(emit, is_array ? "[" : "{");
    else if (!is_root)
        emit_text(emit, "\n");
    emit->is_array[emit->depth] = is_array;
    emit->has_items[emit->depth] = false;
    emit->depth++;
}

static void emit_close(berm_emit_t *emit, bool is_array) {
    BERM_INSIST(emit->depth > 0 && emit->is_array[emit->depth - 1] == is_array,
                "emitter begin and end do not match");
    emit->depth--;
    if (emit->format == BERM_EMIT_JSON)
        emit_text(emit, is_array ? "]" : "}");
}

// Length of the valid UTF-8 sequence at text, or 0. Overlong forms and surrogates are refused.
static size_t utf8_length(const unsigned char *text, size_t left) {
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : 0;
    if (text[0] >> 3 == 30)
        n = 4;
    if (n == 0 || n > left)
        return 0;
    if (n == 1)
        return 1;
    uint32_t code = text[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if (text[i] >> 6 != 2)
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < smallest[n] || code > 0x10ffff || is_surrogate ? 0 : n;
}

static void emit_escaped(berm_emit_t *emit, const char *text, size_t length) {
    emit_text(emit, "\"");
    for (size_t i = 0; i < length;) {
        const unsigned char *at = (const unsigned char *)text + i;
        size_t n = utf8_length(at, length - i);
        if (n == 0 || *at < 0x20 || *at == 0x7f) {
            char code[8];
            (void)snprintf(code, sizeof code, "\\u%04x", *at);
            emit_text(emit, code);
            n = 1;
        } else {
            if (*at == '"' || *at == '\\')
                emit_text(emit, "\\");
            emit->write(emit->context, text + i, n);
        }
        i += n;
    }
    emit_text(emit, "\"");
}

void berm__emit_init(berm_emit_t *emit, berm_emit_format_t format, berm_emit_write_fn write,
                     void *context) {
    *emit = (berm_emit_t){.write = write, .context = context, .format = format};
}

void berm__emit_object_begin(berm_emit_t *emit, const char *key) {
    emit_open(emit, key, false);
}

void berm__emit_object_end(berm_emit_t *emit) {
    emit_close(emit, false);
}

void berm__emit_array_begin(berm_emit_t *emit, const char *key) {
    emit_open(emit, key, true);
}

void berm__emit_array_end(berm_emit_t *emit) {
    emit_close(emit, true);
}

void berm__emit_u64(berm_emit_t *emit, const char *key, uint64_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    emit_scalar(emit, key, text);
}

void berm__emit_i64(berm_emit_t *emit, const char *key, int64_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    emit_scalar(emit, key, text);
}

void berm__emit_bool(berm_emit_t *emit, const char *key, bool value) {
    emit_scalar(emit, key, value ? "true" : "false");
}

void berm__emit_null(berm_emit_t *emit, const char *key) {
    emit_scalar(emit, key, "null");
}

void berm__emit_string(berm_emit_t *emit, const char *key, const char *value) {
    berm__emit_string_n(emit, key, value, strlen(value));
}

void berm__emit_string_n(berm_emit_t *emit, const char *key, const char *value, size_t length) {
    emit_item(emit, key);
    if (emit->format == BERM_EMIT_JSON)
        emit_escaped(emit, value, length);
    else
        emit->write(emit->context, value, length);
    emit_line_end(emit);
}

void berm__emit_double(berm_emit_t *emit, const char *key, double value, int decimals) {
    if (!isfinite(value)) {
        berm__emit_null(emit, key);
        return;
    }
    char text[352]; // 309 digits of the largest double, sign, point and 9 decimals
    (void)snprintf(text, sizeof text, "%.*f", decimals, value);
    emit_scalar(emit, key, text);
}

void berm__emit_addr(berm_emit_t *emit, const char *key, berm_addr_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "0x%" PRIx64, value);
    berm__emit_string(emit, key, text);
}

void berm__emit_finish(berm_emit_t *emit) {
    BERM_INSIST(emit->depth == 0, "emitter finished with an open object or array");
    if (emit->format == BERM_EMIT_JSON)
        emit_text(emit, "\n");
}

void berm__emit_write_file(void *file, const char *text, size_t length) {
    (void)fwrite(text, 1, length, file);
}
