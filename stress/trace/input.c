// SPDX-License-Identifier: Apache-2.0
// Reads a file into memory and unpacks gzip; leaves what the bytes mean to read.c and the readers.
//
// Bounds: memory grows with the bytes that really arrived, never with what a file claims: at most
// twice the limit of `trace_input_limits_t` for the unpacked bytes and as much for the packed
// ones. A gzip bomb stops at 256 times its own size (or 64 MiB, if that is more).
// Locks: none. May fail: every load; nothing is kept then.
#include "stress/trace/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/bits.h"

enum {
    RATIO_DEFAULT = 256,
    CHUNK_MAX = 1 << 24, // taken in one step: the limits are looked at after each
};
#define SIZE_DEFAULT_BYTES    BERM_GIB(4)
#define RATIO_FREE_BYTES      BERM_MIB(64) // unpacked bytes below which the ratio is not looked at
#define BUFFER_SMALLEST_BYTES BERM_KIB(64)

typedef struct buffer {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
} buffer_t;

void trace_fail(char *error, size_t error_capacity, const char *format, ...) {
    if (error == NULL || error_capacity == 0) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, error_capacity, format, arguments);
    va_end(arguments);
    for (char *c = error; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
}

static trace_input_limits_t fill_limits(const trace_input_limits_t *limits) {
    trace_input_limits_t filled = limits == NULL ? (trace_input_limits_t){0} : *limits;
    if (filled.size_bytes == 0) {
        filled.size_bytes = SIZE_DEFAULT_BYTES;
    }
    if (filled.ratio == 0) {
        filled.ratio = RATIO_DEFAULT;
    }
    return filled;
}

// Makes room for at least one more byte.
static int buffer_grow(buffer_t *buffer) {
    if (buffer->size < buffer->capacity) {
        return 0;
    }
    size_t capacity = buffer->capacity == 0 ? BUFFER_SMALLEST_BYTES : buffer->capacity * 2;
    uint8_t *bytes = realloc(buffer->bytes, capacity);
    if (bytes == NULL) {
        return -1;
    }
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return 0;
}

// One member of a gzip file after another into `out`. The line of error, or NULL.
static const char *inflate_members(z_stream *z, const trace_input_t *packed, buffer_t *out,
                                   const trace_input_limits_t *limits) {
    size_t left = packed->size;
    z->next_in = (z_const Bytef *)packed->bytes;
    int status = Z_OK;
    while (status != Z_STREAM_END || left + z->avail_in > 0) {
        if (status == Z_STREAM_END && inflateReset(z) != Z_OK) {
            return "gzip: cannot start the next member";
        }
        if (z->avail_in == 0) {
            z->avail_in = (uInt)berm__min_u64(left, CHUNK_MAX);
            left -= z->avail_in;
        }
        if (buffer_grow(out) != 0) {
            return "no memory to unpack it";
        }
        z->next_out = out->bytes + out->size;
        uInt room = (uInt)berm__min_u64(out->capacity - out->size, CHUNK_MAX);
        z->avail_out = room;
        status = inflate(z, Z_NO_FLUSH);
        size_t made = room - z->avail_out;
        out->size += made;
        if (status == Z_BUF_ERROR || (status == Z_OK && made == 0 && left + z->avail_in == 0)) {
            return "gzip: the data is cut off";
        }
        if (status != Z_OK && status != Z_STREAM_END) {
            return status == Z_MEM_ERROR ? "no memory to unpack it" : "gzip: the data is damaged";
        }
        if (out->size > limits->size_bytes) {
            return "gzip: it unpacks to more than is read; cut the recording into shorter ones";
        }
        if (out->size > RATIO_FREE_BYTES && out->size / limits->ratio > packed->size) {
            return "gzip: it unpacks to far more than a trace does; refused as a bomb "
                   "(unpack it with gunzip if it is right)";
        }
    }
    return NULL;
}

// Replaces packed bytes by what they unpack to.
static int unpack(trace_input_t *input, const trace_input_limits_t *limits, char *error,
                  size_t error_capacity) {
    z_stream z = {0};
    buffer_t out = {0};
    if (inflateInit2(&z, 15 + 16) != Z_OK) {
        trace_fail(error, error_capacity, "%s: no memory to unpack it", input->name);
        return -1;
    }
    const char *what = inflate_members(&z, input, &out, limits);
    if (what != NULL) {
        size_t at = z.next_in == NULL ? 0 : (size_t)(z.next_in - input->bytes);
        trace_fail(error, error_capacity, "%s: at byte %zu: %s", input->name, at, what);
    }
    inflateEnd(&z);
    if (what != NULL) {
        free(out.bytes);
        return -1;
    }
    free(input->owned);
    input->owned = out.bytes;
    input->bytes = out.bytes;
    input->size = out.size;
    return 0;
}

static int unpack_if_gzip(trace_input_t *input, const trace_input_limits_t *limits, char *error,
                          size_t error_capacity) {
    if (input->size < 2 || input->bytes[0] != 0x1f || input->bytes[1] != 0x8b) {
        return 0;
    }
    return unpack(input, limits, error, error_capacity);
}

int trace_input_borrow(trace_input_t *input, const char *name, const void *bytes, size_t size,
                       const trace_input_limits_t *limits, char *error, size_t error_capacity) {
    trace_input_limits_t filled = fill_limits(limits);
    *input = (trace_input_t){.name = name, .bytes = bytes, .size = size};
    return unpack_if_gzip(input, &filled, error, error_capacity);
}

// Reads until the end of the file. The line of error, or NULL.
static const char *read_all(int fd, buffer_t *out, uint64_t limit_bytes) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return strerror(errno);
    }
    if (S_ISDIR(status.st_mode)) {
        return "is a directory, not a trace";
    }
    if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) {
        return "is neither a file nor a pipe";
    }
    for (;;) {
        if (buffer_grow(out) != 0) {
            return "no memory to read it";
        }
        ssize_t got = read(fd, out->bytes + out->size,
                           (size_t)berm__min_u64(out->capacity - out->size, CHUNK_MAX));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return strerror(errno);
        }
        if (got == 0) {
            return NULL;
        }
        out->size += (size_t)got;
        if (out->size > limit_bytes) {
            return "is larger than is read; cut the recording into shorter ones";
        }
    }
}

int trace_input_load(trace_input_t *input, const char *path, const trace_input_limits_t *limits,
                     char *error, size_t error_capacity) {
    trace_input_limits_t filled = fill_limits(limits);
    *input = (trace_input_t){.name = path};
    // O_NONBLOCK would make an unwritten pipe look empty; a pipe without a writer waits, as cat's.
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        trace_fail(error, error_capacity, "%s: %s", path, strerror(errno));
        return -1;
    }
    buffer_t buffer = {0};
    const char *what = read_all(fd, &buffer, filled.size_bytes);
    if (what != NULL) {
        trace_fail(error, error_capacity, "%s: %s", path, what);
    }
    close(fd);
    if (what != NULL) {
        free(buffer.bytes);
        return -1;
    }
    input->owned = buffer.bytes;
    input->bytes = buffer.bytes;
    input->size = buffer.size;
    if (unpack_if_gzip(input, &filled, error, error_capacity) != 0) {
        trace_input_unload(input);
        return -1;
    }
    return 0;
}

void trace_input_unload(trace_input_t *input) {
    free(input->owned);
    input->owned = NULL;
    input->bytes = NULL;
    input->size = 0;
}
