// SPDX-License-Identifier: Apache-2.0
// front/audit.c, from both sides: each numbered invariant is broken by hand in a small heap, and
// the audit must give its number; and a busy heap must be clean after every operation.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "berm_share.h"
#include "policy/share.h"
#include "tests/support/exportable.h"
#include "tests/support/heap_inside.h"
#include "tests/support/raw_share.h"

static char error[256];

// The audit must give `number`, and a line that names it.
static void audit_expect(int number) {
    error[0] = '\0';
    int found = berm__audit_run(error, sizeof error);
    cr_assert(found == number, "expected I%d, the audit says I%d: %s", number, found, error);
    char name[8];
    (void)snprintf(name, sizeof name, "I%d: ", number);
    cr_assert(number == 0 || strncmp(error, name, strlen(name)) == 0, "%s", error);
    cr_assert(number == 0 || strstr(error, "device 0") != NULL, "%s", error);
}

// Breaks a member, expects the number, and mends it.
#define BREAKS(number, member, value)                                                              \
    do {                                                                                           \
        __typeof__(member) kept_ = (member);                                                       \
        (member) = (value);                                                                        \
        audit_expect(number);                                                                      \
        (member) = kept_;                                                                          \
        audit_expect(0);                                                                           \
    } while (0)

// A small heap with one of everything: stream a has a live block with a use on b, a free range, an
// awaited block and an awaited slot, a slab of live slots and an empty one; one handle is idle.
static struct {
    void *a, *b;
    berm_addr_t block, small;
    berm_device_t *device;
    berm_pool_t *pool;
    berm_segment_t *segment;
    berm_range_t *live, *awaited;
    berm_slab_t *slab;
    berm_deferred_t *entry;
} heap;

static berm_range_t *range_in_state(berm_range_state_t state) {
    berm_range_t *range = heap.segment->ranges.first;
    while (range != NULL && range->state != state)
        range = range->next;
    cr_assert(range != NULL, "the heap has a range that is %s", berm__range_state_name(state));
    return range;
}

static void heap_build(void) {
    heap_fixture_begin(NULL);
    heap.a = heap_stream_create();
    heap.b = heap_stream_create();
    heap.block = heap_alloc(BERM_MIB(5), heap.a);
    berm_addr_t free_later = heap_alloc(BERM_MIB(7), heap.a);
    berm_addr_t awaited = heap_alloc(BERM_MIB(3), heap.a);
    heap.small = heap_alloc(1000, heap.a);
    berm_addr_t awaited_small = heap_alloc(1000, heap.a);
    berm_addr_t emptied = heap_alloc(3000, heap.a);
    cr_assert(berm_record_stream(heap.block, heap.b) == BERM_OK);
    heap_free(free_later, heap.a);
    heap_free(emptied, heap.a);
    heap_free(awaited_small, heap.b);
    heap_free(awaited, heap.b);
    heap.device = heap_device();
    heap.pool = heap_pool(heap.a);
    heap.segment = heap_segment(heap.pool);
    heap.live = heap_range(heap.pool, heap.block);
    heap.awaited = range_in_state(BERM_RANGE_AWAITED);
    uintptr_t slot = berm__segment_cell_read(heap.segment, heap.small - heap.segment->base);
    cr_assert((slot & BERM_CELL_IS_SLAB) != 0);
    heap.slab = (berm_slab_t *)(slot - BERM_CELL_IS_SLAB);
    heap.entry = BERM_CONTAINER_OF(heap.pool->deferred.prev, berm_deferred_t, link);
    cr_assert(heap.entry->range == heap.awaited);
    cr_assert(berm__store_create(&heap.device->phys.stores[0], 1) == BERM_OK);
    audit_expect(0);
}

#define MUTATION(name)                                                                             \
    static void break_##name(void);                                                                \
    Test(audit, name) {                                                                            \
        heap_build();                                                                              \
        break_##name();                                                                            \
        BERM_TEST_END_INSIDE();                                                                    \
    }                                                                                              \
    static void break_##name(void)

MUTATION(I1_ranges_tile) {
    BREAKS(1, heap.live->size_bytes, heap.live->size_bytes - 512);
    BREAKS(1, heap.live->start_bytes, heap.live->start_bytes + 512);
    BREAKS(1, heap.live->next->prev, NULL);
    BREAKS(1, heap.segment->ranges.span_bytes, heap.segment->ranges.span_bytes + 512);
}

MUTATION(I2_neighbours_are_joined) {
    berm_range_t *range = range_in_state(BERM_RANGE_FREE);
    cr_assert(berm__node_slab_reserve(&heap.pool->range_nodes, 2));
    range =
        berm__ranges_carve(&heap.segment->ranges, range, range->start_bytes, 1024, BERM_RANGE_FREE);
    audit_expect(2);
    (void)berm__ranges_settle(&heap.segment->ranges, range, BERM_RANGE_FREE);
    audit_expect(0);
}

MUTATION(I3_bins_hold_what_is_free) {
    BREAKS(3, heap.segment->ranges.free.level_bits, heap.segment->ranges.free.level_bits ^ 1);
    berm_range_t *range = range_in_state(BERM_RANGE_FREE);
    BREAKS(3, range->state, BERM_RANGE_BUSY);
}

MUTATION(I4_free_bytes) {
    BREAKS(4, heap.segment->ranges.free_bytes, heap.segment->ranges.free_bytes + 512);
}

MUTATION(I5_handles_behind_what_is_mapped) {
    uint64_t granule = berm__segment_granule_of(heap.segment, heap.live->start_bytes);
    BREAKS(5, heap.segment->handle_of[granule], NULL);
    uint64_t last = berm__segment_granule_of(heap.segment, heap.segment->span_bytes - 1);
    BREAKS(5, heap.segment->handle_of[last], heap.segment->handle_of[granule]);
    berm_range_t *end = range_in_state(BERM_RANGE_VOID);
    cr_assert(end->prev != NULL && end->prev->state != BERM_RANGE_VOID);
    uint64_t first = berm__segment_granule_of(heap.segment, end->start_bytes);
    BREAKS(5, heap.segment->handle_of[first + 1], heap.segment->handle_of[granule]);
}

MUTATION(I5_void_is_whole_granules) {
    berm_range_t *end = range_in_state(BERM_RANGE_VOID);
    cr_assert(end->prev->state == BERM_RANGE_FREE);
    berm__ranges_lift(&heap.segment->ranges, end->prev, BERM_RANGE_BUSY); // out of its bin
    end->start_bytes -= 512;
    end->size_bytes += 512;
    end->prev->size_bytes -= 512;
    audit_expect(5);
    end->prev->size_bytes += 512;
    end->size_bytes -= 512;
    end->start_bytes += 512;
    berm__ranges_lift(&heap.segment->ranges, end->prev, BERM_RANGE_FREE);
    audit_expect(0);
}

MUTATION(I6_handles_stand_in_a_row) {
    uint64_t granule = berm__segment_granule_of(heap.segment, heap.live->start_bytes);
    berm_phys_handle_t *handle = heap.segment->handle_of[granule];
    BREAKS(6, handle->granules, 2);
    BREAKS(6, handle->segment, NULL);
    BREAKS(6, heap.segment->handle_of[granule + 1], handle);
}

static void slot_breaks(uint64_t offset, uintptr_t value) {
    uintptr_t kept = berm__segment_cell_read(heap.segment, offset);
    berm__segment_cells_write(heap.segment, offset, 1, value);
    audit_expect(7);
    berm__segment_cells_write(heap.segment, offset, 1, kept);
    audit_expect(0);
}

MUTATION(I7_slots_lead_to_blocks) {
    uint64_t slab_at = heap.slab->range->start_bytes;
    slot_breaks(heap.live->start_bytes, 0);
    slot_breaks(heap.live->start_bytes, (uintptr_t)heap.awaited);
    slot_breaks(slab_at, (uintptr_t)heap.slab);
    slot_breaks(heap.awaited->start_bytes, (uintptr_t)heap.awaited);
    slot_breaks(heap.live->start_bytes + BERM_MIB(1), (uintptr_t)heap.live);
    slot_breaks(heap.segment->span_bytes - 1, (uintptr_t)heap.live);
}

MUTATION(I8_tickets_of_granules_were_given_out) {
    uint64_t granule = berm__segment_granule_of(heap.segment, heap.live->start_bytes);
    const berm_stream_ref_t *stream = heap.pool->stream;
    BREAKS(8, heap.segment->ticket_of[granule], 0);
    BREAKS(8, heap.segment->ticket_of[granule], stream->open_ticket + 1);
    cr_assert(stream->is_open_used);
    BREAKS(8, heap.pool->stream->is_open_used, false);
}

MUTATION(I9_tickets_of_uses_were_given_out) {
    berm_use_t *use = heap.live->owner;
    BREAKS(9, use->ticket, 2);
    use = heap.entry->uses;
    BREAKS(9, use->ticket, 0);
    BREAKS(9, use->ticket, use->stream->open_ticket + 1);
}

MUTATION(I10_reserved_is_the_sum_of_handles) {
    BREAKS(10, heap.device->phys.reserved_bytes, heap.device->phys.reserved_bytes + 1);
    BREAKS(10, heap.device->phys.handle_count, heap.device->phys.handle_count + 1);
}

MUTATION(I11_idle_lists) {
    berm_phys_t *phys = &heap.device->phys;
    berm_store_t *store = &phys->stores[0];
    BREAKS(11, store->idle_small_count, store->idle_small_count + 1);
    BREAKS(11, store->idle_small_count, store->idle_small_count - 1);
    BREAKS(11, store->idle_odd_granules, 1);
    berm_phys_handle_t *idle = BERM_CONTAINER_OF(store->idle_small.next, berm_phys_handle_t, link);
    BREAKS(11, idle->segment, heap.segment);
    BREAKS(11, idle->granules, phys->large_granules);
    BREAKS(11, idle->store, store + 1);
}

MUTATION(I12_figures) {
    BREAKS(12, heap.pool->taken_blocks, heap.pool->taken_blocks + 1);
    BREAKS(12, heap.device->requested.current, 0);
    BREAKS(12, heap.device->allocated.current, heap.device->allocated.current + 512);
    BREAKS(12, heap.device->active.current, heap.device->allocated.current);
    BREAKS(12, heap.device->blocks.current, heap.device->blocks.current + 1);
}

MUTATION(I13_bits_of_slabs) {
    BREAKS(13, heap.slab->used, 3);
    BREAKS(13, heap.slab->taken[0], heap.slab->taken[0] ^ 3);
    BREAKS(13, heap.slab->slot[heap.slab->slots - 1].state, BERM_SLOT_LIVE);
    BREAKS(13, heap.slab->slot[0].requested, 1024);
    BREAKS(13, heap.slab->slots, 8);
    BREAKS(13, heap.slab->range, heap.live);
}

MUTATION(I14_lists_of_slabs) {
    BREAKS(14, heap.slab->fullness, 2);
    berm_list_t *home = heap.slab->link.prev;
    berm__list_remove(&heap.slab->link);
    audit_expect(14);
    berm__list_push_front(&heap.pool->partial[heap.slab->size_class + 1][0], &heap.slab->link);
    audit_expect(14);
    berm__list_remove(&heap.slab->link);
    berm__list_push_front(&heap.pool->empties[heap.slab->size_class], &heap.slab->link);
    audit_expect(14);
    berm__list_remove(&heap.slab->link);
    berm__list_insert_after(home, &heap.slab->link);
    audit_expect(0);
}

MUTATION(I15_awaited_blocks_are_queued_once) {
    BREAKS(15, heap.entry->uses, NULL);
    BREAKS(15, heap.pool->deferred_bytes, heap.pool->deferred_bytes + 512);
    BREAKS(15, heap.entry->size_bytes, heap.entry->size_bytes + 512);
    BREAKS(15, heap.entry->range, heap.live);
    berm__list_remove(&heap.entry->link);
    audit_expect(15);
    berm__list_push_back(&heap.pool->deferred, &heap.entry->link);
    audit_expect(0);
}

MUTATION(I16_poisoned_bytes) {
    BREAKS(16, heap.segment->poisoned_bytes, 512);
    BREAKS(16, heap.device->poisoned_bytes, 512);
    berm_range_t *end = range_in_state(BERM_RANGE_VOID);
    berm__ranges_lift(&heap.segment->ranges, end, BERM_RANGE_POISONED);
    audit_expect(16);
    berm__ranges_lift(&heap.segment->ranges, end, BERM_RANGE_VOID);
    audit_expect(0);
}

MUTATION(I17_mappings) {
    BREAKS(17, heap.device->phys.mapping_count, heap.device->phys.mapping_count + 1);
}

MUTATION(I18_active_is_within_reserved) {
    BREAKS(18, heap.device->active.current, heap.device->phys.reserved_bytes + 1);
    BREAKS(18, heap.device->phys.reserved_bytes, 0);
}

MUTATION(I19_addresses_lead_to_segments) {
    BREAKS(19, heap.segment->dir_entry.size_bytes, heap.segment->span_bytes - 1);
    BREAKS(19, heap.segment->dir_entry.owner, heap.pool);
    BREAKS(19, heap.device->address_bytes, 0);
}

MUTATION(I20_tickets_rise) {
    berm_stream_ref_t *stream = heap.pool->stream;
    cr_assert(berm__stream_seal(stream) == BERM_OK);
    (void)berm__stream_ticket(stream);
    cr_assert(berm__stream_seal(stream) == BERM_OK);
    cr_assert(stream->sealed_count == 2);
    BREAKS(20, stream->sealed[1].ticket, stream->sealed[0].ticket);
    BREAKS(20, stream->passed_ticket, stream->sealed[0].ticket);
    BREAKS(20, stream->open_ticket, stream->sealed[1].ticket);
    BREAKS(20, stream->sealed_count, BERM_STREAM_SEALED_MAX + 1);
}

MUTATION(I22_handles_are_of_the_store_of_their_segment) {
    uint64_t granule = berm__segment_granule_of(heap.segment, heap.live->start_bytes);
    berm_phys_handle_t *handle = heap.segment->handle_of[granule];
    BREAKS(22, handle->store, handle->store + 1);
    BREAKS(22, heap.segment->mapped_bytes, heap.segment->mapped_bytes + 1);
}

MUTATION(I31_imports_are_whole_and_counted) {
    berm_addr_t addr;
    int fd = raw_export(BERM_MIB(4), 0);
    cr_assert(berm_import(fd, BERM_MIB(4), 0, &addr) == BERM_OK && close(fd) == 0);
    audit_expect(0);
    berm_import_t *import = BERM_CONTAINER_OF(heap.device->imports.next, berm_import_t, link);
    BREAKS(31, import->is_mapped, false);
    BREAKS(31, import->held_count, 0);
    BREAKS(31, import->mapped_bytes, BERM_MIB(2));
    BREAKS(31, import->base, 0);
    BREAKS(31, import->addr, import->base + BERM_MIB(4));
    BREAKS(31, import->size_bytes, BERM_MIB(2));
    BREAKS(31, heap.device->import_count, 2);
    BREAKS(31, heap.device->imported_bytes, 0);
    BREAKS(31, heap.device->imported_mappings, 2);
}

MUTATION(I32_what_was_exported_is_nobody_elses) {
    uint64_t size_bytes;
    int fd;
    berm_phys_t *phys = &heap.device->phys;
    berm_addr_t block = exportable_alloc(BERM_MIB(4), heap.a, NULL);
    berm_addr_t other = exportable_alloc(BERM_MIB(6), heap.a, NULL);
    heap_free(other, heap.a);
    cr_assert(berm_export(block, &fd, &size_bytes) == BERM_OK && close(fd) == 0);
    audit_expect(0);
    const berm_segment_t *segment = berm__addr_dir_find(heap.device->dir, block);
    berm_phys_handle_t *free_one =
        segment->handle_of[berm__segment_granule_of(segment, other - segment->base)];
    BREAKS(32, phys->exported_bytes, 0);
    BREAKS(32, free_one->is_exported, true);
    BREAKS(32, phys->leaving_count, 1);
    BREAKS(32, phys->leaving_granules, 1);
    berm_phys_handle_t *idle =
        BERM_CONTAINER_OF(phys->stores[0].idle_small.next, berm_phys_handle_t, link);
    BREAKS(32, idle->is_exported, true);
    heap_free(block, heap.a);
    cr_assert(simcuda_fault_nth("cuMemRelease", 1, 10, 999) == 0);
    cr_assert(berm_trim(0, 0, &size_bytes) == BERM_ERROR_DRIVER);
    simcuda_faults_clear();
    cr_assert(phys->leaving_count == 1);
    audit_expect(0);
    berm_phys_handle_t *leaving = BERM_CONTAINER_OF(phys->leaving.next, berm_phys_handle_t, link);
    BREAKS(32, leaving->is_exported, false);
}

MUTATION(I33_peers) {
    berm_gpu_t *gpu = &heap.device->gpu;
    BREAKS(33, gpu->access_count, 0);
    BREAKS(33, gpu->access_count, BERM_GPU_ACCESS_MAX + 1);
    BREAKS(33, gpu->access[0].location.id, 1);
    BREAKS(33, gpu->access_count, 3);
}

MUTATION(I23_pools_are_in_their_groups) {
    heap_free(heap_alloc(BERM_MIB(1), heap.b), heap.b);
    berm_pool_t *other = heap_pool(heap.b);
    cr_assert(other != NULL && other != heap.pool);
    BREAKS(23, heap.pool->stream->pool, NULL);
    BREAKS(23, heap.pool->stream->pool, other);
    BREAKS(23, heap.pool->stream->pool_count, 2);
    BREAKS(23, heap.pool->group, NULL);
    BREAKS(23, heap.device->group.store, heap.device->group.store + 1);
    berm__list_remove(&other->group_link);
    audit_expect(23);
    berm__list_push_back(&heap.device->group.pools, &other->group_link);
    audit_expect(0);
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)arg;
    (void)addr;
    (void)size_bytes;
}

static berm_pin_t *pin_of(berm_addr_t addr) {
    for (unsigned i = 0; i < BERM_PIN_BUCKETS; i++)
        BERM_LIST_EACH (berm_pin_t, pin, &heap.pool->pins.buckets[i], link)
            if (pin->addr == addr)
                return pin;
    return NULL;
}

MUTATION(I27_pins_are_on_blocks_and_handles) {
    berm_addr_t freed = heap_alloc(BERM_MIB(3), heap.a), live = heap_alloc(BERM_MIB(3), heap.a);
    cr_assert(berm_pin(freed, pin_told, NULL) == BERM_OK);
    cr_assert(berm_pin(live, pin_told, NULL) == BERM_OK);
    cr_assert(berm_pin(heap.small, pin_told, NULL) == BERM_OK);
    heap_free(freed, heap.a);
    heap_free(heap.small, heap.a);
    audit_expect(0);
    berm_pin_t *of_freed = pin_of(freed), *of_live = pin_of(live), *of_slot = pin_of(heap.small);
    cr_assert(of_freed->is_held && !of_live->is_held && of_slot->is_held);
    BREAKS(27, of_freed->is_held, false);
    BREAKS(27, of_live->is_held, true);
    BREAKS(27, of_slot->is_held, false);
    BREAKS(27, of_live->range->is_pinned, 0);
    BREAKS(27, of_slot->slab->pins, 0);
    BREAKS(27, heap.pool->pins.count, 2);
    BREAKS(27, heap.pool->pins.held_count, 3);
    BREAKS(27, heap.pool->pins.over_count, 1);
    BREAKS(27, of_live->is_over, true);
    BREAKS(27, heap.pool->pins.pinned_bytes, 0);
    berm_phys_handle_t *handle =
        heap.segment->handle_of[berm__segment_granule_of(heap.segment, live - heap.segment->base)];
    BREAKS(27, handle->pins, 0);
    BREAKS(27, handle->pins, handle->pins + 1);
    BREAKS(27, of_freed->addr, of_freed->addr + 512);
}

MUTATION(I28_plain_segments_are_one_allocation) {
    berm_group_t *group;
    berm_pool_t *pool;
    berm_place_t place;
    bool is_pushed;
    berm__mutex_lock(&heap.device->lock);
    cr_assert(berm__gpu_enter(&heap.device->gpu, &is_pushed) == BERM_OK);
    cr_assert(berm__group_create(heap.device, (berm_pool_id_t){0, 1}, BERM_GROUP_PLAIN, &group) ==
              BERM_OK);
    cr_assert(berm__group_pool(group, heap.pool->stream, &pool) == BERM_OK);
    berm__mutex_lock(&pool->lock);
    cr_assert(berm__large_take(pool, BERM_MIB(1), 512, true, &place) == BERM_OK);
    pool->taken_blocks++;
    berm__large_give(pool, place.segment, place.range);
    berm__mutex_unlock(&pool->lock);
    berm__gpu_leave(&heap.device->gpu, is_pushed);
    berm__mutex_unlock(&heap.device->lock);
    berm_segment_t *segment = place.segment;
    audit_expect(0);
    BREAKS(28, segment->is_plain, false);
    BREAKS(28, segment->plain_addr, segment->plain_addr + 512);
    BREAKS(28, segment->plain_bytes, segment->plain_bytes - 512);
    BREAKS(28, segment->handle_of[0]->granules, 3);
    berm__ranges_lift(&segment->ranges, segment->ranges.first, BERM_RANGE_VOID);
    audit_expect(28);
    berm__ranges_lift(&segment->ranges, segment->ranges.first, BERM_RANGE_FREE);
    BREAKS(10, segment->plain_bytes, segment->plain_bytes + 512);
    BREAKS(28, heap.segment->is_plain, true);
}

// A pool of a private group, beside the default one's.
static berm_pool_t *private_pool_build(berm_pool_id_t id) {
    berm_addr_t addr;
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_PRIVATE};
    cr_assert(berm_pool_create(0, id, &options) == BERM_OK);
    cr_assert(berm_alloc_from(id, BERM_MIB(6), 512, 0, heap.a, &addr) == BERM_OK);
    berm_group_t *group = berm__group_find(heap.device, id);
    audit_expect(0);
    return BERM_CONTAINER_OF(group->pools.next, berm_pool_t, group_link);
}

// What is a private pool's is in no other pool.
MUTATION(I6_I22_a_private_granule_stands_nowhere_else) {
    berm_pool_t *private_pool = private_pool_build((berm_pool_id_t){0, 1});
    berm_segment_t *its = heap_segment(private_pool);
    uint64_t granule = berm__segment_granule_of(heap.segment, heap.live->start_bytes);
    BREAKS(6, heap.segment->handle_of[granule], its->handle_of[0]);
    BREAKS(23, private_pool->group, &heap.device->group);
    BREAKS(23, its->store, its->store + 1);
    BREAKS(23, private_pool->stream->pool, private_pool);
}

MUTATION(I24_spare_pools_hold_nothing) {
    berm_addr_t addr;
    const berm_pool_id_t id = {0, 1};
    cr_assert(berm_pool_create(0, id, NULL) == BERM_OK);
    cr_assert(berm_alloc_from(id, BERM_MIB(6), 512, 0, heap.a, &addr) == BERM_OK);
    heap_free(addr, heap.a);
    heap_context_synchronize();
    cr_assert(berm_pool_release(0, id) == BERM_OK);
    cr_assert(!berm__list_is_empty(&heap.device->spares));
    berm_pool_t *spare = BERM_CONTAINER_OF(heap.device->spares.next, berm_pool_t, link);
    audit_expect(0);
    BREAKS(24, spare->group, &heap.device->group);
    BREAKS(24, spare->stream, heap.pool->stream);
    BREAKS(24, spare->taken_blocks, 1);
    BREAKS(24, heap_segment(spare)->mapped_bytes, 512);
    BREAKS(24, heap_segment(spare)->ranges.first->state, BERM_RANGE_FREE);
    BREAKS(24, heap_segment(spare)->span_bytes, heap_segment(spare)->span_bytes - 1);
}

MUTATION(I25_released_pools) {
    berm_pool_t *private_pool = private_pool_build((berm_pool_id_t){0, 1});
    berm_group_t *group = private_pool->group;
    BREAKS(25, heap.device->released_count, 1);
    BREAKS(25, group->use_count, 0);
    BREAKS(25, group->context, heap.pool->stream);
    heap_use(heap.a, heap.block, 512, 1000000);
    cr_assert(berm_pool_release(0, group->id) == BERM_OK);
    cr_assert(group->context != NULL && heap.device->released_count == 1);
    audit_expect(0);
    BREAKS(25, group->context_ticket, group->context->open_ticket + 1);
    BREAKS(25, heap.device->released_count, 0);
}

// --- the public call ---------------------------------------------------------------------------

Test(audit, public_call_gives_number_and_line) {
    int invariant = 7;
    heap_build();
    cr_assert(berm_audit(&invariant) == BERM_OK);
    cr_assert(invariant == 0);
    heap.segment->ranges.free_bytes += 512;
    cr_assert(berm_audit(&invariant) == BERM_ERROR_CORRUPTION);
    cr_assert(invariant == 4);
    cr_assert(berm_audit(NULL) == BERM_ERROR_CORRUPTION);
    cr_assert(strncmp(berm_error_message(), "I4: device 0, stream 0x", 23) == 0, "%s",
              berm_error_message());
    heap.segment->ranges.free_bytes -= 512;
    BERM_TEST_END_INSIDE();
    cr_assert(berm_audit(&invariant) == BERM_ERROR_SHUTDOWN);
    cr_assert(invariant == 0);
}

Test(audit, a_heap_that_never_ran_is_clean) {
    int invariant = 7;
    cr_assert(berm_audit(&invariant) == BERM_OK);
    cr_assert(invariant == 0);
}

// A short buffer is filled as far as it goes.
Test(audit, line_is_cut_to_the_buffer) {
    heap_build();
    char line[12] = "";
    heap.pool->taken_blocks++;
    cr_assert(berm__audit_run(line, sizeof line) == 12);
    cr_assert(strlen(line) == sizeof line - 1);
    heap.pool->taken_blocks--;
    BERM_TEST_END_INSIDE();
}

// --- a busy heap -------------------------------------------------------------------------------

enum {
    BUSY_BLOCKS = 40,
    BUSY_OPERATIONS = 1500
};

typedef struct busy_block {
    berm_addr_t addr;
    void *stream;
} busy_block_t;

static uint64_t busy_size(berm_rng_t *rng) {
    return berm__rng_below(rng, 2) == 0 ? 1 + berm__rng_below(rng, BERM_KIB(64))
                                        : BERM_KIB(64) + berm__rng_below(rng, BERM_MIB(12));
}

static void busy_step(berm_rng_t *rng, busy_block_t *blocks, void *const *streams) {
    busy_block_t *block = &blocks[berm__rng_below(rng, BUSY_BLOCKS)];
    void *stream = streams[berm__rng_below(rng, 2)];
    uint64_t kind = berm__rng_below(rng, 20);
    if (kind == 0) {
        uint64_t released;
        cr_assert(berm_trim(0, berm__rng_below(rng, BERM_MIB(64)), &released) == BERM_OK);
    } else if (block->addr == 0) {
        uint64_t size_bytes = busy_size(rng);
        block->stream = stream;
        if (berm_alloc(size_bytes, 0, stream, &block->addr) == BERM_OK)
            heap_use(stream, block->addr, size_bytes, 20000);
    } else if (kind < 5) {
        cr_assert(berm_record_stream(block->addr, stream) == BERM_OK);
    } else {
        void *named = kind < 10 ? BERM_STREAM_NONE : kind < 14 ? stream : block->stream;
        if (named == stream && stream != block->stream)
            heap_stream_follow(stream, block->stream);
        heap_free(block->addr, named);
        block->addr = 0;
    }
}

Test(audit, a_busy_heap_is_clean_after_every_operation) {
    for (uint64_t seed = 1; seed <= 2; seed++) {
        busy_block_t blocks[BUSY_BLOCKS] = {0};
        berm_rng_t rng;
        berm__rng_seed(&rng, seed);
        heap_fixture_begin(
            &(heap_fixture_options_t){.lacks_ctx_event = seed == 2, .has_caches = seed == 1});
        void *const streams[] = {heap_stream_create(), heap_stream_create()};
        for (int i = 0; i < BUSY_OPERATIONS; i++) {
            busy_step(&rng, blocks, streams);
            BERM_TEST_CHECK();
        }
        BERM_TEST_END_INSIDE();
    }
}

// The option does the same inside berm.
Test(audit, option_audits_after_each_call) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "audit:on"});
    void *stream = heap_stream_create();
    heap_free(heap_alloc(1000, stream), stream);
    heap_free(heap_alloc(BERM_MIB(3), stream), stream);
    BERM_TEST_END_INSIDE();
}
