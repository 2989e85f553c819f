// SPDX-License-Identifier: Apache-2.0
// What every api test says: a call gave this status; and a call that failed changed nothing that
// statistics, the largest free block or the device's own ledger can show.
#ifndef BERM_TESTS_API_TEST_H
#define BERM_TESTS_API_TEST_H

#include <criterion/criterion.h>
#include <string.h>

#include "berm_introspect.h"
#include "tests/support/heap_fixture.h"

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)

// The call returns `want`; a failure leaves a line for berm_error_message.
#define EXPECT(want, call)                                                                         \
    do {                                                                                           \
        berm_status_t got_ = (call);                                                               \
        cr_assert(got_ == (want), "%s: %s, not %s (%s)", #call, berm_status_name(got_),            \
                  berm_status_name(want), berm_error_message());                                   \
        cr_assert(got_ == BERM_OK || berm_error_message()[0] != '\0', "%s: no message", #call);    \
    } while (0)

// berm_error_message has `part` in it, and is one line.
#define EXPECT_MESSAGE(part)                                                                       \
    cr_assert(strstr(berm_error_message(), part) != NULL &&                                        \
                  strchr(berm_error_message(), '\n') == NULL,                                      \
              "'%s' is not in '%s'", part, berm_error_message())

static inline berm_stats_t stats_of(int device) {
    berm_stats_t stats = BERM_STATS_INIT;
    EXPECT(BERM_OK, berm_stats_read(device, &stats));
    return stats;
}

static inline uint64_t largest_free_of(void *stream) {
    uint64_t size_bytes = 1;
    EXPECT(BERM_OK, berm_largest_free_read(0, stream, &size_bytes));
    return size_bytes;
}

// Calls that make, move or give back memory and addresses, since the device was made.
static inline uint64_t memory_calls(void) {
    static const char *const names[] = {
        "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",   "cuMemRelease", "cuMemMap",
        "cuMemSetAccess",      "cuMemUnmap",       "cuMemAlloc_v2", "cuMemFree_v2",
    };
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        calls += simcuda_calls(names[i]);
    return calls;
}

typedef struct api_state {
    berm_stats_t stats[2];
    simcuda_ledger_t ledger;
    uint64_t largest_bytes, memory_calls;
} api_state_t;

static inline api_state_t state_take(int devices) {
    api_state_t state;
    memset(&state, 0, sizeof state);
    for (int device = 0; device < devices; device++) {
        state.stats[device] = stats_of(device);
        // Events and queries are free to happen; what was counted as a failure is not a change.
        memset(&state.stats[device].driver_calls, 0, sizeof state.stats[device].driver_calls);
        state.stats[device].out_of_memory = 0;
        state.stats[device].host_metadata_bytes = 0;
    }
    simcuda_ledger_read(-1, &state.ledger);
    state.ledger.events = 0;
    EXPECT(BERM_OK, berm_largest_free_read(0, NULL, &state.largest_bytes));
    state.memory_calls = memory_calls();
    return state;
}

static inline void state_expect_same(const api_state_t *before, int devices) {
    api_state_t after = state_take(devices);
    cr_assert(memcmp(before->stats, after.stats, sizeof after.stats) == 0, "statistics changed");
    cr_assert(memcmp(&before->ledger, &after.ledger, sizeof after.ledger) == 0, "ledger changed");
    cr_assert(before->largest_bytes == after.largest_bytes);
    cr_assert(before->memory_calls == after.memory_calls);
}

#endif
