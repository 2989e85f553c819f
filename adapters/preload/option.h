// SPDX-License-Identifier: Apache-2.0
// What the preloaded library is to do (option.def), read once from the environment, and the lines
// it writes. It writes nothing unless a program uses CUDA, and then only what is wrong.
#ifndef PRELOAD_OPTION_H
#define PRELOAD_OPTION_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/defs.h"

typedef struct preload_options {
#define PRELOAD_OPTION(member, key, kind, value, text) uint64_t member; // a SWITCH is 0 or 1
#include "option.def"
#undef PRELOAD_OPTION
} preload_options_t;

const preload_options_t *preload_options(void);

// One line on standard error, "berm: ..."; each place says it once in a process.
void preload_say(atomic_bool *was_said, const char *format, ...) BERM_PRINTF(2, 3);
#define PRELOAD_SAY(...)                                                                           \
    do {                                                                                           \
        static atomic_bool was_said_;                                                              \
        preload_say(&was_said_, __VA_ARGS__);                                                      \
    } while (0)
// What is wrong with the environment's text, said at the first request of a program.
void preload_options_complain(void);

#endif
