// SPDX-License-Identifier: Apache-2.0
// Size classes of small requests: 1 to 65,536 bytes in 24 classes, all multiples of 512.
//
//   512 1024 1536 2048 2560 3072 3584 4096, then four per doubling: 5120 6144 7168 8192 ... 65536
//
// BOUNDS (tests/unit/test_size_class.c checks them for every size)
//   W1  class - request < max(512, request / 4): at most a fifth of any class above 2 KiB is unused
//   W2  a slab is a multiple of 64 KiB, and its unused tail is at most 1/16 of it
//   W3  a slab holds at least 8 slots
//   W4  a slab is at most 512 KiB, so one live slot holds back less than that
// Slabs of classes up to 8 KiB are 64 KiB; larger classes take the least multiple that keeps W2,
// W3. Constant data; no locks.
#ifndef BERM_CORE_SIZE_CLASS_H
#define BERM_CORE_SIZE_CLASS_H

#include "base/bits.h"

#define BERM_SMALL_MAX_BYTES   BERM_KIB(64)
#define BERM_CELL_BYTES        BERM_KIB(64) // slabs are multiples of this
#define BERM_SIZE_CLASS_COUNT  24u
#define BERM_SIZE_CLASS_LINEAR 8u // classes below 4 KiB and at it, 512 bytes apart

typedef struct berm_size_class {
    uint32_t size_bytes;
    uint32_t slots; // per slab
    uint32_t slab_bytes;
    uint32_t inverse; // see berm__size_class_slot_of
} berm_size_class_t;

extern const berm_size_class_t berm__size_classes[BERM_SIZE_CLASS_COUNT];

// The smallest class that holds size_bytes, 1 to BERM_SMALL_MAX_BYTES. No branch.
static inline unsigned berm__size_class_of(uint64_t size_bytes) {
    BERM_ASSERT(size_bytes - 1 < BERM_SMALL_MAX_BYTES, "a small request");
    uint64_t last = size_bytes - 1;
    unsigned high = berm__bit_highest(last | 2048); // below 4 KiB all steps are as at 2 KiB
    return (high - 11) * 4 + (unsigned)(last >> (high - 2));
}

static inline uint64_t berm__size_class_bytes(unsigned size_class) {
    BERM_ASSERT(size_class < BERM_SIZE_CLASS_COUNT, "a size class");
    return berm__size_classes[size_class].size_bytes;
}

// Which slot of a slab an offset lies in: offset / size without a division. Exact for every offset
// below 512 KiB, the largest slab: in units of 512 bytes, x * (floor(2^20 / n) + 1) / 2^20 for x up
// to 1024 and n up to 128.
static inline uint32_t berm__size_class_slot_of(unsigned size_class, uint64_t offset_bytes) {
    return (uint32_t)(((offset_bytes >> 9) * berm__size_classes[size_class].inverse) >> 20);
}

static inline uint32_t berm__size_class_slots(unsigned size_class) {
    BERM_ASSERT(size_class < BERM_SIZE_CLASS_COUNT, "a size class");
    return berm__size_classes[size_class].slots;
}

static inline uint64_t berm__size_class_slab_bytes(unsigned size_class) {
    BERM_ASSERT(size_class < BERM_SIZE_CLASS_COUNT, "a size class");
    return berm__size_classes[size_class].slab_bytes;
}

#endif
