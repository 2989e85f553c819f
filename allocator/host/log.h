// SPDX-License-Identifier: Apache-2.0
// Messages to the user, one line each. Levels are defined by how often a line may appear, not by
// how bad it is, so that a level is chosen by the amount of output wanted.
//
// Thread-safe; may be called with any lock held. A sink runs with no lock of the log held, must not
// call berm, and gets a line without newline. errno is kept.
#ifndef BERM_HOST_LOG_H
#define BERM_HOST_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/defs.h"

typedef enum berm_log_level {
    BERM_LOG_ERROR, // about once per process: something asked for cannot be had
    BERM_LOG_WARN,  // worth a look (the default): a request that failed, an option not known
    BERM_LOG_INFO,  // per event: what growth, moves and waits a request caused
} berm_log_level_t;

typedef void (*berm_log_sink_fn)(void *context, berm_log_level_t level, const char *line);

enum {
    BERM_LOG_LINE_BYTES = 1024, // a longer line is cut
    BERM_LOG_BURST = 8          // lines of one call site before BERM_LOG thins them out
};

void berm__log_level_set(berm_log_level_t level);
berm_log_level_t berm__log_level(void);

// Where lines go; NULL is the default: "berm: LINE" on standard error, in one write.
void berm__log_sink_set(berm_log_sink_fn sink, void *context);

// Writes one line if the level is wanted. Control characters come out as spaces.
void berm__log(berm_log_level_t level, const char *format, ...) BERM_PRINTF(2, 3);

// Of one call site: true for its first BERM_LOG_BURST lines, then for line number 16, 32, 64, ...
bool berm__log_is_due(_Atomic(uint64_t) *seen);

// The same with the rate limit: for lines that a busy program could repeat without end.
#define BERM_LOG(level, ...)                                                                       \
    do {                                                                                           \
        static _Atomic(uint64_t) berm_log_seen_;                                                   \
        if ((level) <= berm__log_level() && berm__log_is_due(&berm_log_seen_))                     \
            berm__log(level, __VA_ARGS__);                                                         \
    } while (0)

#endif
