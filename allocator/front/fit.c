// SPDX-License-Identifier: Apache-2.0
// berm_would_fit: requests against the prices of berm_obtainable_read (obtainable.c) and the quota
// of the thread's tag. Locks: none of its own.
#include "base/bits.h"
#include "berm_diagnose.h"
#include "front/heap.h"
#include "front/quota.h"

enum {
    COUNT_MAX = 1 << 20
};

static berm_status_t arguments_check(const uint64_t *sizes_bytes, size_t count,
                                     const berm_fit_t *fit) {
    static const uint64_t most = UINT64_C(1) << 62;
    uint64_t sum = 0;
    if (sizes_bytes == NULL || fit == NULL || count == 0 || count > COUNT_MAX)
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_would_fit: a NULL pointer, or not 1 to 2^20 sizes");
    if (fit->size != sizeof *fit)
        return berm__error_set(BERM_ERROR_VERSION,
                               "berm_would_fit: a struct of %zu bytes, this library knows %zu",
                               fit->size, sizeof *fit);
    for (size_t i = 0; i < count; i++) {
        if (sizes_bytes[i] == 0)
            return berm__error_set(BERM_ERROR_ARGUMENT, "berm_would_fit: size %zu is 0", i);
        if (sizes_bytes[i] > most - sum)
            return berm__error_set(BERM_ERROR_SIZE_TOO_LARGE,
                                   "berm_would_fit: the sizes are above 2^62 together");
        sum += sizes_bytes[i];
    }
    return BERM_OK;
}

// What the sizes take of one piece, and of pages that are mapped for them.
static uint64_t piece_bytes(const uint64_t *sizes_bytes, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += berm__align_up(sizes_bytes[i], BERM_RANGE_UNIT_BYTES);
    return sum;
}

static uint64_t pages_bytes(const uint64_t *sizes_bytes, size_t count, uint64_t granule_bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += berm__align_up(sizes_bytes[i], count > 1 ? granule_bytes : 1);
    return sum;
}

static void step_choose(berm_fit_t *fit, const berm_prices_t *prices, uint64_t piece,
                        uint64_t pages) {
    const berm_price_t *steps[] = {&prices->now, &prices->waited, &prices->moved, &prices->trimmed,
                                   &prices->grown};
    for (unsigned i = 0; i < BERM_ARRAY_LENGTH(steps); i++) {
        if ((i < BERM_FIT_MOVED ? piece : pages) > steps[i]->size_bytes)
            continue;
        fit->step = (berm_fit_step_t)i;
        fit->modelled_us = steps[i]->modelled_us;
        fit->learned_us = steps[i]->learned_us;
        return;
    }
    fit->step = BERM_FIT_NOT;
    fit->missing_bytes = pages - prices->grown.size_bytes;
}

berm_status_t berm_would_fit(int ordinal, berm_stream_t stream, const uint64_t *sizes_bytes,
                             size_t count, berm_fit_t *fit) {
    berm_prices_t prices = BERM_PRICES_INIT;
    berm_device_t *device;
    uint64_t requested = 0, short_bytes;
    berm_status_t status = arguments_check(sizes_bytes, count, fit);
    if (status == BERM_OK) // with more pages than any request needs, `moved` is all that moves
        status = berm_obtainable_read(ordinal, stream, UINT64_MAX >> 24, &prices);
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, &device);
    if (status != BERM_OK)
        return status;
    *fit = (berm_fit_t)BERM_FIT_INIT;
    for (size_t i = 0; i < count; i++)
        requested += sizes_bytes[i];
    short_bytes = berm__quota_short(ordinal, requested);
    if (short_bytes != 0) {
        fit->step = BERM_FIT_QUOTA;
        fit->missing_bytes = short_bytes;
        return BERM_OK;
    }
    step_choose(fit, &prices, piece_bytes(sizes_bytes, count),
                pages_bytes(sizes_bytes, count, device->gpu.granule_bytes));
    return BERM_OK;
}
