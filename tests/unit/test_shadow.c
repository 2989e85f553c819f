// SPDX-License-Identifier: Apache-2.0
// The map of live blocks must see overlap from both sides and bad alignment, and nothing else.
#include <criterion/criterion.h>
#include <string.h>

#include "stress/shadow.h"

static shadow_t shadow;
static char error[256];

static bool add(uint64_t addr, uint64_t size_bytes) {
    error[0] = '\0';
    return shadow_add(&shadow, addr, size_bytes, error, sizeof error);
}

Test(shadow, sees_overlap) {
    shadow_init(&shadow);
    cr_assert(add(0x10000, 0x1000));
    cr_assert(add(0x11000, 0x1000), "a neighbour above");
    cr_assert(add(0xf000, 0x1000), "a neighbour below");
    cr_assert(!add(0x10000, 512), "the same address");
    cr_assert(!add(0x10200, 512), "inside");
    cr_assert(!add(0xe000, 0x1200), "over the start");
    cr_assert(strstr(error, "overlaps") != NULL);
    cr_assert(!add(0x8000, 0x100000), "over everything");
    shadow_remove(&shadow, 0x10000);
    cr_assert(add(0x10000, 0x1000), "free again");
    shadow_remove(&shadow, 0x999999);
    shadow_destroy(&shadow);
}

Test(shadow, sees_bad_addresses) {
    shadow_init(&shadow);
    cr_assert(!add(0, 512));
    cr_assert(!add(0x10100, 512));
    cr_assert(strstr(error, "aligned") != NULL);
    cr_assert(!add(UINT64_MAX - 511, 1024), "the end wraps");
    shadow_destroy(&shadow);
}
