// SPDX-License-Identifier: Apache-2.0
// Follows a cyclic plan: which of its items is the next request?
//
// Items are numbered in order of their begin. A cursor stands where the next request should be; a
// request is the item of its size, not yet served in this pass, that is nearest to the cursor, a
// few places to both sides (around the end of the period too): not more, so that a changed request
// does not take the place of a later equal one. When too many requests are no item, the cursor
// moves to where most of the last sizes stand before it, within BERM_FOLLOW_REACH; and when that
// does not help, anywhere.
// Constant time: one comparison when the plan is followed exactly. Locks: the owner's.
#ifndef BERM_CORE_FOLLOW_H
#define BERM_CORE_FOLLOW_H

#include <stdbool.h>

#include "base/defs.h"

#define BERM_FOLLOW_NONE UINT32_MAX

enum {
    BERM_FOLLOW_REACH = 64
};

typedef struct berm_follow berm_follow_t;

// The sizes of the items in order of begin, at least one; copied. The cursor stands at item 0.
// NULL without host memory.
BERM_NODISCARD berm_follow_t *berm__follow_create(const uint64_t *size_bytes, uint32_t item_count);
void berm__follow_destroy(berm_follow_t *follow); // NULL is allowed

// The item a request of this size is, or BERM_FOLLOW_NONE. Changes nothing.
uint32_t berm__follow_find(const berm_follow_t *follow, uint64_t size_bytes);

// The item that the next request should be: one after another, whatever their sizes were.
uint32_t berm__follow_due(const berm_follow_t *follow);

// After each request exactly one of these three. accept: it was served as `item`, which
// berm__follow_find returned; the cursor moves behind it. pass: it is that item, but was served
// otherwise. skip: it is no item.
void berm__follow_accept(berm_follow_t *follow, uint32_t item);
void berm__follow_pass(berm_follow_t *follow, uint32_t item);
void berm__follow_skip(berm_follow_t *follow, uint64_t size_bytes);

// Puts the cursor before `item`, in a pass of which nothing has been served.
void berm__follow_seek(berm_follow_t *follow, uint32_t item);

// Where the cursor is.
uint32_t berm__follow_cursor(const berm_follow_t *follow);

// How many of the last requests, as many as the plan has items, were accepted, in thousandths.
// Requests before the first count as accepted, so that a new plan is not dropped at once.
uint32_t berm__follow_match_permille(const berm_follow_t *follow);

#endif
