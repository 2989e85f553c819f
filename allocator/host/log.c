// SPDX-License-Identifier: Apache-2.0
// Message lines: formatting on the stack, then the sink. Nothing is allocated, so a message about
// failed memory can be written. What is worth a message is the callers' business.
//
// Locks: one of rank LOG to read the sink, given back before the sink runs. A line that standard
// error does not take is lost.
#include "host/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "host/lock.h"

static berm_mutex_t sink_mutex = BERM_MUTEX_INITIALIZER(BERM_LOCK_LOG, "log sink");
static berm_log_sink_fn sink_fn BERM_GUARDED_BY(sink_mutex);
static void *sink_context BERM_GUARDED_BY(sink_mutex);
static _Atomic(unsigned) level_now = BERM_LOG_WARN;

void berm__log_level_set(berm_log_level_t level) {
    atomic_store_explicit(&level_now, (unsigned)level, memory_order_relaxed);
}

berm_log_level_t berm__log_level(void) {
    return (berm_log_level_t)atomic_load_explicit(&level_now, memory_order_relaxed);
}

void berm__log_sink_set(berm_log_sink_fn sink, void *context) {
    berm__mutex_lock(&sink_mutex);
    sink_fn = sink;
    sink_context = context;
    berm__mutex_unlock(&sink_mutex);
}

bool berm__log_is_due(_Atomic(uint64_t) *seen) {
    uint64_t number = atomic_fetch_add_explicit(seen, 1, memory_order_relaxed) + 1;
    return number <= BERM_LOG_BURST || berm__is_pow2(number);
}

static void line_write_stderr(const char *line) {
    char prefix[] = "berm: ", newline[] = "\n";
    struct iovec pieces[3] = {{prefix, sizeof prefix - 1},
                              {(void *)(uintptr_t)line, strlen(line)},
                              {newline, sizeof newline - 1}};
    ssize_t ignored = writev(STDERR_FILENO, pieces, 3);
    (void)ignored;
}

// One line, whatever the arguments held; a cut line ends in "...".
static void line_tidy(char *line, size_t capacity, int length) {
    if (length < 0)
        (void)snprintf(line, capacity, "(message could not be formatted)");
    else if ((size_t)length >= capacity)
        memcpy(line + capacity - 4, "...", 4);
    for (char *at = line; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' ';
}

void berm__log(berm_log_level_t level, const char *format, ...) {
    if (level > berm__log_level())
        return;
    int errno_before = errno;
    char line[BERM_LOG_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    line_tidy(line, sizeof line, length);
    berm__mutex_lock(&sink_mutex);
    berm_log_sink_fn sink = sink_fn;
    void *context = sink_context;
    berm__mutex_unlock(&sink_mutex);
    if (sink != NULL)
        sink(context, level, line);
    else
        line_write_stderr(line);
    errno = errno_before;
}
