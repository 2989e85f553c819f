// SPDX-License-Identifier: Apache-2.0
// Quotas: the most that blocks with a tag may have of a device. A request books its bytes before it
// is served and gives the booking back afterwards, when the tag's count has them: so two threads
// never exceed a quota together. While a quota is set no request is a hit (hit.h).
//
// Locks: none; the bookings are atomic. Calls no driver.
#ifndef BERM_FRONT_QUOTA_H
#define BERM_FRONT_QUOTA_H

#include "front/heap.h"

// What a request has booked; `count` NULL: nothing.
typedef struct berm_booking {
    berm_tag_count_t *count;
    uint64_t bytes;
} berm_booking_t;

// QUOTA, with its message, where the calling thread's tag has no room for so many bytes.
berm_status_t berm__quota_book(int ordinal, uint64_t size_bytes, berm_booking_t *booking);

// How many bytes too few the calling thread's tag has for a request; 0: it has room.
uint64_t berm__quota_short(int ordinal, uint64_t size_bytes);

static inline void berm__quota_unbook(const berm_booking_t *booking) {
    if (BERM_UNLIKELY(booking->count != NULL))
        atomic_fetch_sub(&booking->count->booked, booking->bytes);
}

// Whether any is set.
static inline bool berm__quota_any(void) {
    return BERM_UNLIKELY(atomic_load_explicit(&berm__heap.quotas, memory_order_relaxed) != 0);
}

#endif
