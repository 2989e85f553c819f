// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of stress/trace: traces read from text, growing byte buffers, a temporary
// folder, and the line of the last error.
#ifndef TESTS_UNIT_TRACE_HELPERS_H
#define TESTS_UNIT_TRACE_HELPERS_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "stress/trace/input.h"
#include "stress/trace/trace_builder.h"

// Criterion loses one of its own records where tests run side by side, and at each skip.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libcriterion\n";
}

static char th_error[512];

typedef struct th_bytes {
    uint8_t *bytes;
    size_t size, capacity;
} th_bytes_t;

static inline void th_put(th_bytes_t *out, const void *bytes, size_t size) {
    if (out->size + size > out->capacity) {
        out->capacity = (out->size + size) * 2;
        out->bytes = realloc(out->bytes, out->capacity);
        cr_assert(out->bytes != NULL);
    }
    if (size > 0) {
        memcpy(out->bytes + out->size, bytes, size);
        out->size += size;
    }
}

static inline void th_put_text(th_bytes_t *out, const char *text) {
    th_put(out, text, strlen(text));
}

static inline void th_put_repeated(th_bytes_t *out, char c, size_t count) {
    for (size_t i = 0; i < count; i++) {
        th_put(out, &c, 1);
    }
}

static inline trace_t *th_read_bytes(const void *bytes, size_t size) {
    // A copy of the exact size, so that a sanitizer sees every read beyond the end.
    uint8_t *copy = malloc(size + (size == 0));
    cr_assert(copy != NULL);
    if (size > 0) {
        memcpy(copy, bytes, size);
    }
    th_error[0] = '\0';
    trace_t *trace = trace_read_memory("T", copy, size, NULL, th_error, sizeof th_error);
    free(copy);
    cr_assert((trace == NULL) == (th_error[0] != '\0'), "a line if and only if it failed: %s",
              th_error);
    cr_assert(strchr(th_error, '\n') == NULL);
    return trace;
}

static inline trace_t *th_read(const char *text) {
    return th_read_bytes(text, strlen(text));
}

// Expects that reading fails with exactly this line.
static inline void th_refuse_bytes(const void *bytes, size_t size, const char *line) {
    trace_t *trace = th_read_bytes(bytes, size);
    cr_assert(trace == NULL, "accepted; expected: %s", line);
    cr_assert(strcmp(th_error, line) == 0, "got:      %s\nexpected: %s", th_error, line);
}

static inline void th_refuse(const char *text, const char *line) {
    th_refuse_bytes(text, strlen(text), line);
}

// Gzip of `bytes`, to be freed.
static inline th_bytes_t th_gzip(const void *bytes, size_t size) {
    th_bytes_t out = {0};
    z_stream z = {0};
    cr_assert(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
    out.capacity = deflateBound(&z, size);
    out.bytes = malloc(out.capacity);
    cr_assert(out.bytes != NULL);
    z.next_in = (z_const Bytef *)bytes;
    z.avail_in = (uInt)size;
    z.next_out = out.bytes;
    z.avail_out = (uInt)out.capacity;
    cr_assert(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out.size = out.capacity - z.avail_out;
    deflateEnd(&z);
    return out;
}

// Writes the pickle (protocol 2) of a Python literal of dicts, lists, tuples, ints, names and
// single-quoted strings; the end of what was read. Recursive: for short texts of our own.
static inline const char *th_put_value(th_bytes_t *out, const char *at) {
    at += strspn(at, " \n,:");
    if (*at == '{' || *at == '[' || *at == '(') {
        char open = *at++;
        char close = open == '{' ? '}' : open == '[' ? ']' : ')';
        th_put_text(out, open == '{' ? "}(" : open == '[' ? "](" : "(");
        for (at += strspn(at, " \n,"); *at != close; at += strspn(at, " \n,")) {
            cr_assert(*at != '\0', "a literal is not closed");
            at = th_put_value(out, at);
        }
        th_put_text(out, open == '{' ? "u" : open == '[' ? "e" : "t");
        return at + 1;
    }
    if (*at == '\'') {
        uint32_t length = (uint32_t)strcspn(at + 1, "'");
        th_put_text(out, "X");
        th_put(out, &length, sizeof length);
        th_put(out, at + 1, length);
        return at + length + 2;
    }
    if (strncmp(at, "None", 4) == 0 || strncmp(at, "True", 4) == 0) {
        th_put_text(out, *at == 'N' ? "N" : "\x88");
        return at + 4;
    }
    char *end;
    long long number = strtoll(at, &end, 0);
    cr_assert(end != at, "no literal: %s", at);
    char line[32];
    snprintf(line, sizeof line, "L%lldL\n", number);
    th_put_text(out, line);
    return end;
}

static inline th_bytes_t th_pickle(const char *literal) {
    th_bytes_t out = {0};
    th_put_text(&out, "\x80\x02");
    th_put_value(&out, literal);
    th_put_text(&out, ".");
    return out;
}

// A new folder; th_remove_folder removes it and the files in it named so far.
typedef struct th_folder {
    char path[64];
    char files[8][96];
    size_t count;
} th_folder_t;

static inline th_folder_t th_make_folder(void) {
    th_folder_t folder = {.path = "/tmp/berm-trace-XXXXXX"};
    cr_assert(mkdtemp(folder.path) != NULL);
    return folder;
}

static inline const char *th_name_file(th_folder_t *folder, const char *name) {
    char *path = folder->files[folder->count++];
    char joined[sizeof folder->files[0]]; // gcc takes path and folder for overlapping
    snprintf(joined, sizeof joined, "%s/%s", folder->path, name);
    memcpy(path, joined, sizeof joined);
    return path;
}

static inline const char *th_write_file(th_folder_t *folder, const char *name, const void *bytes,
                                        size_t size) {
    const char *path = th_name_file(folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL);
    cr_assert(size == 0 || fwrite(bytes, 1, size, file) == size);
    cr_assert(fclose(file) == 0);
    return path;
}

static inline void th_remove_folder(th_folder_t *folder) {
    for (size_t i = 0; i < folder->count; i++) {
        unlink(folder->files[i]);
    }
    cr_assert(rmdir(folder->path) == 0);
}

#endif
