// SPDX-License-Identifier: Apache-2.0
// The harness's own map of live blocks: finds blocks that overlap or are not aligned.
#ifndef STRESS_SHADOW_H
#define STRESS_SHADOW_H

#include "stress/baselines/ordered_set.h"

typedef struct shadow {
    ordered_set_t blocks;
    uint32_t alignment_bytes; // that addresses must have: 512, unless set after shadow_init
} shadow_t;

void shadow_init(shadow_t *shadow);
void shadow_destroy(shadow_t *shadow);
// False with a line in `error`; the block is not in the map then.
bool shadow_add(shadow_t *shadow, uint64_t addr, uint64_t size_bytes, char *error,
                size_t error_capacity);
void shadow_remove(shadow_t *shadow, uint64_t addr); // nothing happens for an unknown address

#endif
