// SPDX-License-Identifier: Apache-2.0
// Internal to learn*.c: from what a pool has seen to a plan (learn_plan.c). The pool's lock is
// held.
#ifndef BERM_POLICY_LEARN_INSIDE_H
#define BERM_POLICY_LEARN_INSIDE_H

#include "policy/learn.h"

// What was noted of request `number`, one of the last BERM_LEARN_NOTES_MAX.
berm_note_t *learn__note_at(const berm_learn_t *learn, uint32_t number);
// Bytes of blocks live now that a plan will have whose course is of `total` requests, in periods of
// `length`.
uint64_t learn__items_live_bytes(const berm_learn_t *learn, uint32_t length, uint32_t total);

// Begins to plan the last `length` requests; a slice of the work; whether the period that the plan
// is for is still the one that is seen.
void learn__planning_begin(berm_pool_t *pool, uint32_t length);
void learn__planning_step(berm_pool_t *pool);
bool learn__plan_is_current(const berm_learn_t *learn);
// No plan for a while: the period has to be seen as often again.
void learn__planning_give_up(berm_learn_t *learn);
// The planner and its items.
void learn__plan_forget(berm_learn_t *learn);

#endif
