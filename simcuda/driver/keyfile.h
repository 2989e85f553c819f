// SPDX-License-Identifier: Apache-2.0
// Files of one "key=value" a line; "#" starts a comment, space at both ends is dropped.
#ifndef SIM_KEYFILE_H
#define SIM_KEYFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// A whole number, with or without K, M, G or T (powers of 1,024); false if it is anything else.
bool sim_bytes_parse(const char *text, uint64_t *bytes);

// Takes one line's key (which it may change) and value. NULL, or what is wrong.
typedef const char *(*sim_keyfile_fn)(void *context, char *key, const char *value);

// Calls `set` for every line of `file`, which `name` names in messages. 0, or -1 with "NAME:LINE:
// what" in `error`.
int sim_keyfile_read(FILE *file, const char *name, sim_keyfile_fn set, void *context, char *error,
                     size_t capacity);

#endif
