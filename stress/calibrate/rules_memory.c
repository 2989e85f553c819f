// SPDX-License-Identifier: Apache-2.0
// Rules about what calls do: one SetAccess and one unmap over several mappings, a handle that is
// released while mapped, moved, or mapped twice. Contents are checked where memory has some, by
// copies and fills on one stream. Running the rules is left to rules.c.
//
// Work has ended before addresses or handles change; rules under running work are
// rules_kernels.c. Nothing is allocated on the host.
#include <string.h>

#include "base/defs.h"
#include "stress/calibrate/rules.h"

enum {
    PATTERN_BYTES = 4096,
    ALIAS_ROUNDS = 32,
};

static void pattern_make(unsigned char *pattern, unsigned seed) {
    unsigned value = seed * 2654435761u + 1;
    for (int i = 0; i < PATTERN_BYTES; i++) {
        value = value * 1664525u + 1013904223u;
        pattern[i] = (unsigned char)(value >> 24);
    }
}

// The start of a unit, and its end.
static uint64_t spot_of(const stress_place_t *p, unsigned unit, int end) {
    uint64_t addr = stress_place_at(p, unit);
    return end != 0 ? addr + p->unit_bytes - PATTERN_BYTES : addr;
}

static int unit_write(stress_place_t *p, unsigned unit, unsigned seed) {
    unsigned char pattern[PATTERN_BYTES];
    int result = BERM_CU_SUCCESS;
    for (int end = 0; p->c->is_backed && result == BERM_CU_SUCCESS && end < 2; end++) {
        pattern_make(pattern, seed + (unsigned)end);
        result = p->c->copy_to_device(spot_of(p, unit, end), pattern, sizeof pattern, p->stream);
        if (result == BERM_CU_SUCCESS)
            result = p->d->stream_synchronize(p->stream);
    }
    return result;
}

static void contents_wrong(stress_place_t *p, const char *what) {
    p->is_wrong = true;
    (void)snprintf(p->detail, sizeof p->detail, "%s", what);
}

// The CUresult; wrong contents are noted in the place.
static int unit_verify(stress_place_t *p, unsigned unit, unsigned seed) {
    unsigned char pattern[PATTERN_BYTES], found[PATTERN_BYTES];
    int result = BERM_CU_SUCCESS;
    if (!p->c->is_backed)
        (void)snprintf(p->detail, sizeof p->detail, "contents not checked: memory has none");
    for (int end = 0; p->c->is_backed && result == BERM_CU_SUCCESS && end < 2; end++) {
        pattern_make(pattern, seed + (unsigned)end);
        memset(found, 0, sizeof found);
        result = p->c->copy_to_host(found, spot_of(p, unit, end), sizeof found, p->stream);
        if (result == BERM_CU_SUCCESS)
            result = p->d->stream_synchronize(p->stream);
        if (result == BERM_CU_SUCCESS && memcmp(pattern, found, sizeof found) != 0)
            contents_wrong(p, "other bytes than were written");
    }
    return result;
}

static int access_several(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_map(p, 1, STRESS_PLACE_WIDE));
    STRESS_THEN(result, stress_place_map(p, 3, STRESS_PLACE_B));
    STRESS_THEN(result, stress_place_access(p, 0, 4));
    for (unsigned unit = 0; unit < 4; unit++)
        STRESS_THEN(result, unit_write(p, unit, 10 * unit));
    for (unsigned unit = 0; unit < 4; unit++)
        STRESS_THEN(result, unit_verify(p, unit, 10 * unit));
    return result;
}

// That all is unmapped shows in that all of it can be mapped anew.
static int unmap_several(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_map(p, 1, STRESS_PLACE_WIDE));
    STRESS_THEN(result, stress_place_map(p, 3, STRESS_PLACE_B));
    STRESS_THEN(result, p->d->mem_unmap(stress_place_at(p, 0), 4 * p->unit_bytes));
    if (result != BERM_CU_SUCCESS)
        return result;
    p->mapping_count = 0;
    STRESS_THEN(result, stress_place_map(p, 0, STRESS_PLACE_WIDE));
    STRESS_THEN(result, stress_place_map(p, 2, STRESS_PLACE_B));
    STRESS_THEN(result, stress_place_map(p, 3, STRESS_PLACE_A));
    STRESS_THEN(result, stress_place_access(p, 0, 4));
    return result;
}

static int unmap_between(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_map(p, 1, STRESS_PLACE_WIDE));
    STRESS_THEN(result, stress_place_map(p, 3, STRESS_PLACE_B));
    STRESS_THEN(result, stress_place_access(p, 0, 4));
    STRESS_THEN(result, unit_write(p, 0, 1));
    STRESS_THEN(result, unit_write(p, 3, 7));
    STRESS_THEN(result, p->d->mem_unmap(stress_place_at(p, 1), 2 * p->unit_bytes));
    STRESS_THEN(result, unit_verify(p, 0, 1));
    STRESS_THEN(result, unit_verify(p, 3, 7));
    return result;
}

static int release_mapped(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, p->d->mem_release(p->handles[STRESS_PLACE_A]));
    if (result != BERM_CU_SUCCESS)
        return result;
    p->is_made[STRESS_PLACE_A] = false;
    STRESS_THEN(result, stress_place_access(p, 0, 1));
    STRESS_THEN(result, unit_write(p, 0, 3));
    STRESS_THEN(result, unit_verify(p, 0, 3));
    return result;
}

static int remap_contents(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_access(p, 0, 1));
    STRESS_THEN(result, unit_write(p, 0, 5));
    STRESS_THEN(result, p->d->mem_unmap(stress_place_at(p, 0), p->unit_bytes));
    STRESS_THEN(result, stress_place_map(p, 5, STRESS_PLACE_A));
    STRESS_THEN(result, stress_place_access(p, 5, 1));
    STRESS_THEN(result, unit_verify(p, 5, 5));
    return result;
}

// Fills through one address and copies from the other, on one stream with no wait in between.
static int alias_round(stress_place_t *p, unsigned from, unsigned to, unsigned char value) {
    unsigned char found[PATTERN_BYTES];
    memset(found, ~value, sizeof found);
    int result = p->c->fill(stress_place_at(p, from), value, p->unit_bytes, p->stream);
    STRESS_THEN(result, p->c->copy_to_host(found, spot_of(p, to, 1), sizeof found, p->stream));
    STRESS_THEN(result, p->d->stream_synchronize(p->stream));
    for (size_t i = 0; result == BERM_CU_SUCCESS && i < sizeof found; i++)
        if (found[i] != value)
            contents_wrong(p, "a later operation of the stream saw old bytes");
    return result;
}

static int alias_order(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_map(p, 4, STRESS_PLACE_A));
    STRESS_THEN(result, stress_place_access(p, 0, 1));
    STRESS_THEN(result, stress_place_access(p, 4, 1));
    if (!p->c->is_backed)
        (void)snprintf(p->detail, sizeof p->detail, "contents not checked: memory has none");
    for (unsigned i = 0; p->c->is_backed && i < ALIAS_ROUNDS; i++)
        STRESS_THEN(result, alias_round(p, i % 2 * 4, 4 - i % 2 * 4, (unsigned char)(i * 7 + 1)));
    return result;
}

const stress_rule_t stress_rules_of_memory[] = {
    {"access_several", "one cuMemSetAccess covers several mappings", true, BERM_CU_SUCCESS,
     access_several},
    {"unmap_several", "one cuMemUnmap covers several mappings", true, BERM_CU_SUCCESS,
     unmap_several},
    {"unmap_between", "cuMemUnmap leaves the mappings beside it and their contents", true,
     BERM_CU_SUCCESS, unmap_between},
    {"remap_contents", "a handle mapped at another address keeps its contents", true,
     BERM_CU_SUCCESS, remap_contents},
    {"release_mapped", "a handle may be released while mapped, and its memory stays", false,
     BERM_CU_SUCCESS, release_mapped},
    {"alias_order", "what is written through one alias is seen through the other, in stream order",
     false, BERM_CU_SUCCESS, alias_order},
};
const size_t stress_rules_of_memory_count = BERM_ARRAY_LENGTH(stress_rules_of_memory);
