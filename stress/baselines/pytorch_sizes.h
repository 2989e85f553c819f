// SPDX-License-Identifier: Apache-2.0
// The sizes of PyTorch's native caching allocator: how a request is rounded, which pool serves it,
// how large a new segment is, when a block is split. Pure functions of the options.
#ifndef STRESS_BASELINES_PYTORCH_SIZES_H
#define STRESS_BASELINES_PYTORCH_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PYTORCH_BLOCK_MIN     UINT64_C(512)
#define PYTORCH_SMALL_MAX     (UINT64_C(1) << 20) // of a request of the small pool, inclusive
#define PYTORCH_SMALL_SEGMENT (UINT64_C(2) << 20)
#define PYTORCH_LARGE_MIN     (UINT64_C(10) << 20) // from here a segment is the request's own
#define PYTORCH_SEGMENT_ROUND (UINT64_C(2) << 20)
#define PYTORCH_REQUEST_LIMIT (UINT64_C(1) << 60)

typedef struct pytorch_sizes {
    uint64_t large_segment_bytes;    // large_segment_size_mb, 20 MiB
    uint64_t max_split_bytes;        // max_split_size_mb, UINT64_MAX: no limit
    uint64_t max_non_split_rounding; // max_non_split_rounding_mb, 20 MiB
    uint64_t roundup_divisions;      // roundup_power2_divisions, 0: off
} pytorch_sizes_t;

// PyTorch's defaults, then `conf` ("key:value,key:value" with the four keys above as PyTorch spells
// them). False with a line in `error` for anything else.
bool pytorch_sizes_parse(pytorch_sizes_t *sizes, const char *conf, char *error,
                         size_t error_capacity);

uint64_t pytorch_round(const pytorch_sizes_t *sizes, uint64_t request_bytes);
bool pytorch_is_small(uint64_t rounded_bytes);
uint64_t pytorch_segment_bytes(const pytorch_sizes_t *sizes, uint64_t rounded_bytes);
bool pytorch_may_take(const pytorch_sizes_t *sizes, uint64_t rounded_bytes, uint64_t block_bytes);
bool pytorch_must_split(const pytorch_sizes_t *sizes, bool is_small, uint64_t rounded_bytes,
                        uint64_t block_bytes);

#endif
