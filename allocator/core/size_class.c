// SPDX-License-Identifier: Apache-2.0
// The table of size classes; header size_class.h states the bounds, and the table keeps to them.
// Each row: bytes of a slot, slots of a slab, KiB of a slab.
#include "core/size_class.h"

#define ROW(size_bytes, slab_kib)                                                                  \
    {                                                                                              \
        size_bytes, (slab_kib)*1024 / (size_bytes), (slab_kib)*1024,                               \
            (1u << 20) / ((size_bytes) / 512) + 1                                                  \
    }

const berm_size_class_t berm__size_classes[BERM_SIZE_CLASS_COUNT] = {
    // 512 bytes apart
    ROW(512, 64),
    ROW(1024, 64),
    ROW(1536, 64),
    ROW(2048, 64),
    ROW(2560, 64),
    ROW(3072, 64),
    ROW(3584, 64),
    ROW(4096, 64),
    // four per doubling
    ROW(5120, 64),
    ROW(6144, 64),
    ROW(7168, 64),
    ROW(8192, 64),
    ROW(10240, 128),
    ROW(12288, 128),
    ROW(14336, 128),
    ROW(16384, 128),
    ROW(20480, 192),
    ROW(24576, 192),
    ROW(28672, 256),
    ROW(32768, 256),
    ROW(40960, 320),
    ROW(49152, 384),
    ROW(57344, 448),
    ROW(65536, 512),
};

#undef ROW

_Static_assert(BERM_ARRAY_LENGTH(berm__size_classes) == BERM_SIZE_CLASS_COUNT, "one row a class");
