// SPDX-License-Identifier: Apache-2.0
// PyTorch's size rules: see pytorch_sizes.h. Blocks and segments are left to pytorch.c.
// Nothing here can fail but the parser.
#include "stress/baselines/pytorch_sizes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum {
    KEY_CAPACITY = 64
};

static bool sizes_set(pytorch_sizes_t *sizes, const char *key, uint64_t value) {
    if (strcmp(key, "roundup_power2_divisions") == 0) {
        sizes->roundup_divisions = value;
        return value == 0 || berm__is_pow2(value);
    }
    if (value == 0 || value > UINT64_C(1) << 40)
        return false;
    if (strcmp(key, "large_segment_size_mb") == 0)
        sizes->large_segment_bytes = BERM_MIB(value);
    else if (strcmp(key, "max_split_size_mb") == 0)
        sizes->max_split_bytes = BERM_MIB(value);
    else if (strcmp(key, "max_non_split_rounding_mb") == 0)
        sizes->max_non_split_rounding = BERM_MIB(value);
    else
        return false;
    return true;
}

bool pytorch_sizes_parse(pytorch_sizes_t *sizes, const char *conf, char *error,
                         size_t error_capacity) {
    *sizes = (pytorch_sizes_t){.large_segment_bytes = BERM_MIB(20),
                               .max_split_bytes = UINT64_MAX,
                               .max_non_split_rounding = BERM_MIB(20)};
    for (const char *at = conf; *at != '\0';) {
        size_t length = strcspn(at, ",");
        char item[KEY_CAPACITY];
        char *colon = NULL, *end = NULL;
        bool is_good = length < sizeof item;
        if (is_good) {
            memcpy(item, at, length);
            item[length] = '\0';
            colon = strchr(item, ':');
            is_good = colon != NULL && colon[1] >= '0' && colon[1] <= '9';
        }
        if (is_good) {
            *colon = '\0';
            errno = 0;
            uint64_t value = strtoull(colon + 1, &end, 10);
            is_good = errno == 0 && *end == '\0' && sizes_set(sizes, item, value);
        }
        if (!is_good) {
            (void)snprintf(error, error_capacity,
                           "pytorch: option '%.*s' is none of large_segment_size_mb, "
                           "max_split_size_mb, max_non_split_rounding_mb, "
                           "roundup_power2_divisions with a whole number",
                           (int)(length < 200 ? length : 200), at);
            return false;
        }
        at += length + (at[length] == ',');
    }
    if (sizes->max_split_bytes < sizes->large_segment_bytes) {
        (void)snprintf(error, error_capacity,
                       "pytorch: max_split_size_mb is below large_segment_size_mb");
        return false;
    }
    return true;
}

uint64_t pytorch_round(const pytorch_sizes_t *sizes, uint64_t request_bytes) {
    if (request_bytes < PYTORCH_BLOCK_MIN)
        return PYTORCH_BLOCK_MIN;
    uint64_t divisions = sizes->roundup_divisions;
    if (divisions > 1 && request_bytes > PYTORCH_BLOCK_MIN * divisions &&
        !berm__is_pow2(request_bytes)) {
        uint64_t power = UINT64_C(1) << berm__bit_highest(request_bytes);
        uint64_t step = power / divisions;
        if (step > 0)
            return berm__align_up(request_bytes, step);
    }
    return berm__align_up(request_bytes, PYTORCH_BLOCK_MIN);
}

bool pytorch_is_small(uint64_t rounded_bytes) {
    return rounded_bytes <= PYTORCH_SMALL_MAX;
}

uint64_t pytorch_segment_bytes(const pytorch_sizes_t *sizes, uint64_t rounded_bytes) {
    if (pytorch_is_small(rounded_bytes))
        return PYTORCH_SMALL_SEGMENT;
    if (rounded_bytes < PYTORCH_LARGE_MIN && rounded_bytes <= sizes->large_segment_bytes)
        return sizes->large_segment_bytes;
    return berm__align_up(rounded_bytes, PYTORCH_SEGMENT_ROUND);
}

// Whether the best fit may be handed out at all.
bool pytorch_may_take(const pytorch_sizes_t *sizes, uint64_t rounded_bytes, uint64_t block_bytes) {
    if (rounded_bytes < sizes->max_split_bytes)
        return block_bytes < sizes->max_split_bytes;
    return block_bytes - rounded_bytes < sizes->max_non_split_rounding;
}

bool pytorch_must_split(const pytorch_sizes_t *sizes, bool is_small, uint64_t rounded_bytes,
                        uint64_t block_bytes) {
    uint64_t remainder = block_bytes - rounded_bytes;
    if (is_small)
        return remainder >= PYTORCH_BLOCK_MIN;
    return rounded_bytes < sizes->max_split_bytes && remainder > PYTORCH_SMALL_MAX;
}
