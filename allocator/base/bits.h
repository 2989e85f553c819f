// SPDX-License-Identifier: Apache-2.0
// Bit scans, alignment and checked arithmetic on 64-bit integers.
#ifndef BERM_BASE_BITS_H
#define BERM_BASE_BITS_H

#include <stdbool.h>

#include "base/defs.h"
#include "base/insist.h"

// Index of the lowest and of the highest set bit; x must not be 0.
static inline unsigned berm__bit_lowest(uint64_t x) {
    BERM_ASSERT(x != 0, "bit scan of zero");
    return (unsigned)__builtin_ctzll(x);
}

static inline unsigned berm__bit_highest(uint64_t x) {
    BERM_ASSERT(x != 0, "bit scan of zero");
    return 63u - (unsigned)__builtin_clzll(x);
}

static inline bool berm__is_pow2(uint64_t x) {
    return x != 0 && (x & (x - 1)) == 0;
}

// Rounds to a multiple of a power of two. align_up wraps at 2^64: callers bound x first.
static inline uint64_t berm__align_up(uint64_t x, uint64_t alignment) {
    BERM_ASSERT(berm__is_pow2(alignment), "alignment is a power of two");
    return (x + alignment - 1) & ~(alignment - 1);
}

static inline uint64_t berm__align_down(uint64_t x, uint64_t alignment) {
    BERM_ASSERT(berm__is_pow2(alignment), "alignment is a power of two");
    return x & ~(alignment - 1);
}

static inline bool berm__is_aligned(uint64_t x, uint64_t alignment) {
    return (x & (alignment - 1)) == 0;
}

// Sum and product that report overflow: true on success, *out is written only then.
BERM_NODISCARD static inline bool berm__add_checked(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

BERM_NODISCARD static inline bool berm__mul_checked(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline uint64_t berm__min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t berm__max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

#endif
