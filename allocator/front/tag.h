// SPDX-License-Identifier: Apache-2.0
// Tags: names that an application gives to what its threads ask for. A block keeps the number of
// its tag in its record, one byte; names are kept for the life of the process.
//
//   0            no tag, ""
//   1 .. 255     in the order of their first push
//
// Locks: names are added under one of rank CALLBACK, and read without. A thread's stack is its own.
#ifndef BERM_FRONT_TAG_H
#define BERM_FRONT_TAG_H

#include "base/defs.h"

// The name of a number; "" for 0 and for one that was not given out.
const char *berm__tag_name(uint8_t tag);
// The number of a name; 0: it was never pushed.
uint8_t berm__tag_find(const char *name);
// The number of a name that berm__tag_name gave.
uint8_t berm__tag_of(const char *name);
// How many names there are: 1 to this many are numbers.
unsigned berm__tag_count(void);
// The calling thread's innermost tag; 0: none.
uint8_t berm__tag_top(void);

#endif
