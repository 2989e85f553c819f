// SPDX-License-Identifier: Apache-2.0
// policy/group.h: pools of a purpose. Whose pages may go where, blocks that own their handles
// (policy/owned.c), and memory of other properties that makes room.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "tests/support/heap_inside.h"

#define GRANULE BERM_MIB(2)

static berm_device_t *device;
static void *handle;
static berm_stream_ref_t *stream;

static void groups_begin(const char *conf) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = BERM_MIB(64), .berm = conf});
    handle = heap_stream_create();
    heap_free(heap_alloc(512, handle), handle);
    device = heap_device();
    stream = heap_pool(handle)->stream;
    cr_assert(berm_trim(0, 0, NULL) == BERM_OK);
}

static berm_group_t *group_make(uint64_t low, uint32_t traits) {
    berm_group_t *group;
    berm__mutex_lock(&device->lock);
    cr_assert(berm__group_create(device, (berm_pool_id_t){0, low}, traits, &group) == BERM_OK);
    berm__mutex_unlock(&device->lock);
    return group;
}

static berm_status_t try_alloc(berm_group_t *group, uint64_t size_bytes, uint64_t alignment,
                               berm_addr_t *out) {
    berm_pool_t *pool;
    berm__mutex_lock(&device->lock);
    cr_assert(berm__group_pool(group, stream, &pool) == BERM_OK);
    const berm_request_t request = {.size_bytes = size_bytes,
                                    .alignment_bytes = alignment,
                                    .number = atomic_fetch_add(&device->request_count, 1) + 1,
                                    .may_map = true};
    berm_counts_t counts = {0};
    uint64_t occupied;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_alloc(pool, &request, out, &occupied);
    berm__mutex_unlock(&pool->lock);
    if (status == BERM_OK) {
        berm__counts_alloc(&counts, size_bytes, occupied);
        berm__counts_merge(&counts, device);
    }
    berm__mutex_unlock(&device->lock);
    return status;
}

static berm_addr_t group_alloc(berm_group_t *group, uint64_t size_bytes) {
    berm_addr_t addr = 0;
    cr_assert(try_alloc(group, size_bytes, 512, &addr) == BERM_OK);
    heap_use(handle, addr, size_bytes, 1000);
    BERM_TEST_CHECK();
    return addr;
}

static const berm_phys_handle_t *handle_at(berm_addr_t addr) {
    const berm_segment_t *segment = berm__addr_dir_find(device->dir, addr);
    return segment->handle_of[berm__segment_granule_of(segment, addr - segment->base)];
}

static void work_finish(void) {
    simcuda_advance_ns(100000000);
}

Test(group, each_group_has_its_own_pool_of_a_stream) {
    groups_begin(NULL);
    berm_group_t *group = group_make(7, 0);
    berm_pool_t *pool, *again;
    cr_assert(berm__group_find(device, (berm_pool_id_t){0, 7}) == group);
    cr_assert(berm__group_find(device, (berm_pool_id_t){7, 0}) == NULL);
    cr_assert(berm__group_find(device, (berm_pool_id_t){0, 0}) == &device->group);
    cr_assert(berm__group_pool_find(group, stream) == NULL);
    cr_assert(berm__group_pool(group, stream, &pool) == BERM_OK && pool != stream->pool);
    cr_assert(berm__group_pool(group, stream, &again) == BERM_OK && again == pool);
    cr_assert(stream->pool_count == 2);
    berm_addr_t addr = group_alloc(group, BERM_MIB(3));
    cr_assert(((berm_segment_t *)berm__addr_dir_find(device->dir, addr))->pool == pool);
    heap_free(addr, handle);
    BERM_TEST_END_INSIDE();
}

// Free pages of an ordinary group serve the default one; those of a private or pinned group do not.
static void pages_move(uint32_t traits, bool may_move) {
    groups_begin("headroom:0,limit:32M");
    berm_group_t *group = group_make(1, traits);
    heap_free(group_alloc(group, BERM_MIB(20)), handle);
    work_finish();
    berm_addr_t addr;
    berm_status_t status = berm_alloc(BERM_MIB(20), 0, handle, &addr);
    cr_assert((status == BERM_OK) == may_move);
    uint64_t obtainable;
    cr_assert(berm_largest_obtainable_read(0, handle, &obtainable) == BERM_OK);
    if (!may_move) {
        cr_assert(status == BERM_ERROR_LIMIT && obtainable == BERM_MIB(12));
        heap_use(handle, group_alloc(group, BERM_MIB(20)), BERM_MIB(20), 1000); // it has it still
    }
    BERM_TEST_END_INSIDE();
}

Test(group, pages_of_an_ordinary_group_move) {
    pages_move(0, true);
}

Test(group, pages_of_a_private_group_stay) {
    pages_move(BERM_GROUP_PRIVATE, false);
}

Test(group, pages_of_a_pinned_group_stay) {
    pages_move(BERM_GROUP_PINNED, false);
}

// Nor within the group: a graph writes to them at every launch.
Test(group, a_private_group_does_not_move_its_own_pages) {
    groups_begin("headroom:0");
    berm_group_t *group = group_make(1, BERM_GROUP_PRIVATE);
    berm_addr_t a = group_alloc(group, BERM_MIB(8)), b = group_alloc(group, BERM_MIB(2));
    const berm_phys_handle_t *behind = handle_at(a);
    heap_free(a, handle);
    work_finish();
    berm_addr_t larger = group_alloc(group, BERM_MIB(12));
    cr_assert(larger != a && handle_at(a) == behind);
    heap_free(b, handle);
    heap_free(larger, handle);
    work_finish();
    cr_assert(berm_trim(0, 0, NULL) == BERM_OK);
    cr_assert(handle_at(a) == behind);
    BERM_TEST_END_INSIDE();
}

// --- blocks that own their handles -------------------------------------------------------------

Test(group, an_exportable_block_is_one_handle) {
    groups_begin("headroom:1000");
    berm_group_t *group = group_make(1, BERM_GROUP_EXPORTABLE);
    cr_assert(group->store != device->group.store);
    cr_assert(group->store->prop.requested_handle_types == BERM_CU_MEM_HANDLE_POSIX_FD);
    berm_addr_t a = group_alloc(group, BERM_MIB(5)), b = group_alloc(group, 512);
    cr_assert(handle_at(a)->granules == 3 && handle_at(b)->granules == 1);
    cr_assert(handle_at(a + 2 * GRANULE) == handle_at(a));
    const berm_phys_handle_t *of_a = handle_at(a);
    heap_free(a, handle);
    heap_free(b, handle);
    // Side by side in one free range, but not one block for that.
    berm_addr_t c = group_alloc(group, BERM_MIB(8));
    cr_assert(handle_at(c)->granules == 4 && c != a);
    uint64_t creates = simcuda_calls("cuMemCreate");
    cr_assert(group_alloc(group, BERM_MIB(6)) == a && handle_at(a) == of_a);
    cr_assert(simcuda_calls("cuMemCreate") == creates);
    BERM_TEST_END_INSIDE();
}

Test(group, exportable_blocks_are_aligned) {
    groups_begin(NULL);
    berm_group_t *group = group_make(1, BERM_GROUP_EXPORTABLE);
    (void)group_alloc(group, BERM_MIB(2));
    for (unsigned i = 0; i < 2; i++) {
        berm_addr_t addr;
        cr_assert(try_alloc(group, BERM_MIB(2), BERM_MIB(16), &addr) == BERM_OK);
        cr_assert(berm__is_aligned(addr, BERM_MIB(16)));
        heap_free(addr, handle);
    }
    BERM_TEST_END_INSIDE();
}

// Free handles of other sizes, idle ones and memory of other properties all make room.
Test(group, room_for_a_handle_of_its_size) {
    groups_begin("headroom:0,limit:32M");
    berm_group_t *group = group_make(1, BERM_GROUP_EXPORTABLE);
    heap_free(heap_alloc(BERM_MIB(16), handle), handle);
    heap_free(group_alloc(group, BERM_MIB(6)), handle);
    heap_free(group_alloc(group, BERM_MIB(10)), handle);
    berm_addr_t whole = group_alloc(group, BERM_MIB(32));
    cr_assert(handle_at(whole)->granules == 16);
    cr_assert(device->phys.reserved_bytes == BERM_MIB(32));
    berm_addr_t none;
    cr_assert(try_alloc(group, 512, 512, &none) == BERM_ERROR_LIMIT);
    heap_free(whole, handle);
    // And back: what has other properties makes room for the default group.
    cr_assert(heap_alloc(BERM_MIB(30), handle) != 0);
    BERM_TEST_END_INSIDE();
}

Test(group, an_idle_handle_of_its_size_is_taken) {
    groups_begin(NULL);
    berm_group_t *group = group_make(1, BERM_GROUP_EXPORTABLE);
    heap_free(group_alloc(group, BERM_MIB(6)), handle);
    work_finish();
    uint64_t taken = 0;
    bool is_pushed;
    berm_pool_t *pool = berm__group_pool_find(group, stream);
    cr_assert(berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK);
    cr_assert(berm__stream_seal(stream) == BERM_OK);
    work_finish();
    cr_assert(berm__steal_pool(pool, 3, &taken) == BERM_OK && taken == 3);
    berm__gpu_leave(&device->gpu, is_pushed);
    cr_assert(group->store->idle_odd_count == 1 && berm__store_has(group->store, 3));
    BERM_TEST_CHECK();
    uint64_t creates = simcuda_calls("cuMemCreate");
    cr_assert(handle_at(group_alloc(group, BERM_MIB(6)))->granules == 3);
    cr_assert(simcuda_calls("cuMemCreate") == creates && group->store->idle_odd_count == 0);
    BERM_TEST_END_INSIDE();
}

static void refused(const char *call) {
    groups_begin(NULL);
    berm_group_t *group = group_make(1, BERM_GROUP_EXPORTABLE);
    uint64_t reserved = device->phys.reserved_bytes;
    berm_addr_t addr = 1;
    cr_assert(simcuda_fault_nth(call, 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(try_alloc(group, BERM_MIB(6), 512, &addr) != BERM_OK);
    cr_assert(device->phys.reserved_bytes == reserved);
    BERM_TEST_CHECK();
    cr_assert(handle_at(group_alloc(group, BERM_MIB(6)))->granules == 3);
    BERM_TEST_END_INSIDE();
}

Test(group, a_refused_create_leaves_nothing) {
    refused("cuMemCreate");
}

Test(group, a_refused_map_leaves_nothing) {
    refused("cuMemMap");
}

Test(group, a_refused_access_leaves_nothing) {
    refused("cuMemSetAccess");
}

Test(group, what_cannot_be_unmapped_is_poisoned) {
    groups_begin(NULL);
    berm_group_t *group = group_make(1, BERM_GROUP_EXPORTABLE);
    berm_addr_t addr;
    cr_assert(simcuda_fault_nth("cuMemSetAccess", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(try_alloc(group, BERM_MIB(6), 512, &addr) == BERM_ERROR_DRIVER);
    cr_assert(device->poisoned_bytes == BERM_MIB(6));
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

Test(group, traits_that_the_device_does_not_have) {
    groups_begin(NULL);
    berm_group_t *group;
    berm__mutex_lock(&device->lock);
    cr_assert(berm__group_create(device, (berm_pool_id_t){0, 1},
                                 BERM_GROUP_PLAIN | BERM_GROUP_EXPORTABLE,
                                 &group) == BERM_ERROR_UNSUPPORTED);
    cr_assert(simcuda_fault_nth("cuDeviceGetAttribute", 1, 1, BERM_CU_INVALID_VALUE) == 0);
    cr_assert(berm__group_create(device, (berm_pool_id_t){0, 1}, BERM_GROUP_RDMA, &group) ==
              BERM_ERROR_UNSUPPORTED);
    cr_assert(simcuda_fault_nth("cuDeviceGetAttribute", 1, 1, BERM_CU_INVALID_VALUE) == 0);
    cr_assert(berm__group_create(device, (berm_pool_id_t){0, 1}, BERM_GROUP_EXPORTABLE, &group) ==
              BERM_ERROR_UNSUPPORTED);
    cr_assert(simcuda_fault_nth("cuMemGetAllocationGranularity", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__group_create(device, (berm_pool_id_t){0, 1}, BERM_GROUP_EXPORTABLE, &group) ==
              BERM_ERROR_DRIVER);
    cr_assert(group == NULL && device->phys.store_count == 1);
    cr_assert(berm__group_create(device, (berm_pool_id_t){0, 1},
                                 BERM_GROUP_RDMA | BERM_GROUP_EXPORTABLE, &group) == BERM_OK);
    cr_assert(group->store->prop.alloc_flags.gpu_direct_rdma_capable == 1);
    berm__mutex_unlock(&device->lock);
    BERM_TEST_END_INSIDE();
}
