// SPDX-License-Identifier: Apache-2.0
// Segments of a pool's source, with the internals: I36 broken by hand, the audit must give the
// number; and a source lives as long as what uses it.
#include <criterion/criterion.h>

#include "policy/source.h"
#include "tests/support/heap_inside.h"

static const berm_pool_id_t id = {0, 36};
static unsigned dones;

static berm_addr_t source_alloc(void *context, uint64_t size_bytes, int device, void *stream) {
    (void)context, (void)device, (void)stream;
    return heap_driver_alloc(size_bytes);
}

static void source_free(void *context, berm_addr_t addr, uint64_t size_bytes, int device,
                        void *stream) {
    (void)context, (void)size_bytes, (void)device, (void)stream;
    heap_driver_free(addr);
}

static void source_done(void *context) {
    (void)context;
    dones++;
}

// A block in a segment of the source.
static berm_segment_t *source_begin(berm_addr_t *addr) {
    const berm_pool_options_t options = {
        .size = sizeof options,
        .source = {.alloc = source_alloc, .free = source_free, .done = source_done}};
    heap_fixture_begin(NULL);
    cr_assert(berm_pool_create(0, id, &options) == BERM_OK);
    cr_assert(berm_alloc_from(id, 1000, 512, 0, NULL, addr) == BERM_OK);
    return berm__addr_dir_find(&berm__heap.dir, *addr);
}

static void audit_expect(int number) {
    char error[200] = "";
    int found = berm__audit_run(error, sizeof error);
    cr_assert(found == number, "expected I%d, the audit says I%d: %s", number, found, error);
}

// Breaks a member, expects I36, and mends it.
#define BREAKS(member, value)                                                                      \
    do {                                                                                           \
        __typeof__(member) kept_ = (member);                                                       \
        (member) = (value);                                                                        \
        audit_expect(36);                                                                          \
        (member) = kept_;                                                                          \
        audit_expect(0);                                                                           \
    } while (0)

Test(source, I36_segments_of_sources) {
    berm_addr_t addr = 0;
    berm_segment_t *segment = source_begin(&addr);
    berm_source_return_t *last = segment->source_return;
    berm_group_t *group = berm__group_find(heap_device(), id);
    berm_source_t *other = last->source + 1; // never looked into
    audit_expect(0);
    BREAKS(segment->source_return, NULL);
    BREAKS(last->source, other);
    BREAKS(last->addr, last->addr + 512);
    BREAKS(last->size_bytes, last->size_bytes - 1);
    BREAKS(group->source, NULL);
    BERM_TEST_END_INSIDE();
    cr_assert(dones == 1);
}

Test(source, users_are_the_group_and_its_segments) {
    berm_addr_t addr = 0, large = 0;
    berm_segment_t *segment = source_begin(&addr);
    berm_source_return_t *last = segment->source_return;
    cr_assert(atomic_load(&last->source->users) == 2);
    cr_assert(berm_alloc_from(id, BERM_MIB(30), 512, 0, NULL, &large) == BERM_OK);
    cr_assert(atomic_load(&last->source->users) == 3);
    cr_assert(berm_free(large, 0, NULL) == BERM_OK && berm_trim(0, 0, NULL) == BERM_OK);
    cr_assert(atomic_load(&last->source->users) == 2);
    cr_assert(berm_pool_release(0, id) == BERM_OK);
    cr_assert(atomic_load(&last->source->users) >= 1 && dones == 0, "a block lives on");
    cr_assert(berm_free(addr, 0, NULL) == BERM_OK && berm_trim(0, 0, NULL) == BERM_OK);
    cr_assert(dones == 1 && atomic_load(&heap_device()->returns) == NULL);
    BERM_TEST_END_INSIDE();
}
