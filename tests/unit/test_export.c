// SPDX-License-Identifier: Apache-2.0
// berm_export: which blocks have a descriptor, and what becomes of a handle that was exported.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/exportable.h"
#include "tests/support/other_process.h"

static volatile unsigned char *at(berm_addr_t addr) {
    return (volatile unsigned char *)(uintptr_t)addr;
}

static simcuda_ledger_t ledger_of(int device) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(device, &ledger);
    return ledger;
}

static int export(berm_addr_t addr, uint64_t want_bytes) {
    int fd = -1;
    uint64_t size_bytes = 0;
    EXPECT(BERM_OK, berm_export(addr, &fd, &size_bytes));
    cr_assert(fd >= 0 && size_bytes == want_bytes);
    cr_assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    return fd;
}

Test(export, a_block_and_its_import_are_the_same_bytes) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_backed = 1});
    void *stream = heap_stream_create();
    berm_addr_t block = exportable_alloc(3 * MIB + 5, stream, NULL), addr;
    cr_assert(stats_of(0).exported_bytes == 0);
    int fd = export(block, 4 * MIB);
    cr_assert(stats_of(0).exported_bytes == 4 * MIB);
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_import(fd, 4 * MIB, 0, &addr));
    (void)close(fd);
    *at(block + 3 * MIB) = 77;
    cr_assert(addr != block && *at(addr + 3 * MIB) == 77);
    EXPECT(BERM_OK, berm_import_close(addr, stream));
    fd = export(block, 4 * MIB); // as often as one likes
    (void)close(fd);
    cr_assert(stats_of(0).exported_bytes == 4 * MIB);
    heap_free(block, stream);
    BERM_TEST_END();
}

// Another request of the size is served by new memory: whoever imported the old block keeps it, and
// sees nothing of the new one.
Test(export, a_handle_that_was_exported_serves_no_other_block) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_backed = 1});
    void *stream = heap_stream_create();
    berm_addr_t block = exportable_alloc(4 * MIB, stream, NULL), addr, next;
    int fd = export(block, 4 * MIB);
    *at(block) = 1;
    heap_free(block, stream);
    next = exportable_alloc(4 * MIB, stream, NULL);
    *at(next) = 2;
    cr_assert(stats_of(0).reserved_bytes.current == 4 * MIB);
    cr_assert(stats_of(0).exported_bytes == 0);
    EXPECT(BERM_OK, berm_import(fd, 4 * MIB, 0, &addr)); // the descriptor alone has kept it
    cr_assert(*at(addr) == 1 && *at(next) == 2);
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_import_close(addr, stream));
    (void)close(fd);
    heap_free(next, stream);
    berm_addr_t again = exportable_alloc(4 * MIB, stream, NULL);
    cr_assert(again == next, "one that was never exported is used again as it is");
    BERM_TEST_END();
}

// Unmapping under work aborts on the strict device.
Test(export, its_streams_are_waited_for) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    for (int way = 0; way < 4; way++) {
        void *own = way == 3 ? BERM_STREAM_NONE : stream;
        berm_addr_t block = exportable_alloc(6 * MIB, own, NULL);
        (void)close(export(block, 6 * MIB));
        heap_use(stream, block, 6 * MIB, 50000000);
        heap_stream_follow(other, stream);
        heap_use(other, block, 6 * MIB, 50000000);
        if (way == 0)
            EXPECT(BERM_OK, berm_record_stream(block, other));
        heap_free(block, way == 0 ? stream : way == 1 ? other : BERM_STREAM_NONE);
        berm_whatis_t whatis = BERM_WHATIS_INIT;
        EXPECT(BERM_OK, berm_whatis(block, &whatis));
        cr_assert(whatis.kind == BERM_ADDRESS_AWAITED);
        cr_assert(stats_of(0).exported_bytes == 6 * MIB);
        BERM_TEST_CHECK();
        berm_addr_t next = exportable_alloc(2 * MIB, stream, NULL); // does not wait
        EXPECT(BERM_OK, berm_whatis(block, &whatis));
        cr_assert(whatis.kind == BERM_ADDRESS_AWAITED);
        heap_free(next, stream);
        EXPECT(BERM_OK, berm_trim(0, 0, NULL));
        EXPECT(BERM_OK, berm_whatis(block, &whatis));
        cr_assert(whatis.kind == BERM_ADDRESS_UNMAPPED);
        cr_assert(stats_of(0).exported_bytes == 0 && stats_of(0).reserved_bytes.current == 0);
        EXPECT(BERM_ERROR_DOUBLE_FREE, berm_free(block, 0, stream));
        BERM_TEST_CHECK();
    }
    BERM_TEST_END();
}

Test(export, is_neither_moved_nor_obtainable) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 32 * MIB});
    void *stream = heap_stream_create();
    uint64_t gate, obtainable;
    berm_addr_t block = exportable_alloc(20 * MIB, stream, NULL), addr;
    int fd = export(block, 20 * MIB);
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, stream, &obtainable));
    cr_assert(obtainable == 12 * MIB);
    cr_assert(simcuda_gate(stream, NULL, 0, &gate) == 0);
    heap_free(block, stream);
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, stream, &obtainable));
    cr_assert(obtainable == 12 * MIB, "it waits for its stream, and then goes away");
    (void)close(fd);
    cr_assert(simcuda_gate_open(gate) == 0);
    EXPECT(BERM_OK, berm_alloc(20 * MIB, 0, stream, &addr)); // nobody else has it
    BERM_TEST_END();
}

Test(export, which_blocks_can_be) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t small = heap_alloc(1000, stream), large = heap_alloc(4 * MIB, stream);
    berm_addr_t block = exportable_alloc(100, stream, NULL);
    int fd = 7;
    uint64_t size_bytes = 7;
    (void)close(export(block, 2 * MIB)); // a small one has a handle of its own, too
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_NOT_EXPORTABLE, berm_export(small, &fd, &size_bytes));
    EXPECT_MESSAGE("exportable pool");
    cr_assert(fd == -1 && size_bytes == 0);
    EXPECT(BERM_ERROR_NOT_EXPORTABLE, berm_export(large, &fd, &size_bytes));
    EXPECT(BERM_ERROR_NOT_EXPORTABLE, berm_share_send(0, large));
    EXPECT(BERM_ERROR_ADDRESS_INTERIOR, berm_export(block + 512, &fd, &size_bytes));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_export(4096, &fd, &size_bytes));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_export(0, &fd, &size_bytes));
    EXPECT(BERM_ERROR_ARGUMENT, berm_export(block, NULL, &size_bytes));
    EXPECT(BERM_ERROR_ARGUMENT, berm_export(block, &fd, NULL));
    state_expect_same(&before, 1);
    heap_free(block, stream);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_export(block, &fd, &size_bytes));
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_export(block, &fd, &size_bytes));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_share_send(0, block));
}

Test(export, descriptors_run_out) {
    struct rlimit before, none;
    heap_fixture_begin(NULL);
    berm_addr_t block = exportable_alloc(100, NULL, NULL);
    int fd = 7, top = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint64_t size_bytes;
    cr_assert(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0; // fewer than are open
    cr_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(BERM_ERROR_CEILING, berm_export(block, &fd, &size_bytes));
    cr_assert(setrlimit(RLIMIT_NOFILE, &before) == 0);
    cr_assert(fd == -1 && stats_of(0).exported_bytes == 0);
    (void)close(top);
    BERM_TEST_END();
}

Test(export, a_hundred_leave_nothing) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    (void)exportable_alloc(2 * MIB, stream, NULL);
    int files = open_files();
    simcuda_ledger_t before = ledger_of(-1);
    for (int i = 0; i < 100; i++) {
        berm_addr_t block = exportable_alloc((uint64_t)(1 + i % 9) * 2 * MIB, stream, NULL);
        int fd;
        uint64_t size_bytes;
        EXPECT(BERM_OK, berm_export(block, &fd, &size_bytes));
        (void)close(fd);
        heap_use(stream, block, size_bytes, 1000);
        heap_free(block, stream);
    }
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    simcuda_ledger_t after = ledger_of(-1);
    cr_assert(after.handles == before.handles && after.used_bytes == before.used_bytes);
    cr_assert(after.reserved_address_bytes == before.reserved_address_bytes);
    cr_assert(open_files() == files && stats_of(0).exported_bytes == 0);
    BERM_TEST_END();
}

Test(export, of_a_stream_that_is_retired) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t kept = exportable_alloc(2 * MIB, stream, NULL);
    berm_addr_t freed = exportable_alloc(2 * MIB, stream, NULL);
    (void)close(export(kept, 2 * MIB));
    (void)close(export(freed, 2 * MIB));
    heap_use(stream, freed, 2 * MIB, 50000000);
    heap_free(freed, stream);
    EXPECT(BERM_OK, berm_stream_retire(0, stream));
    cr_assert(stats_of(0).exported_bytes == 2 * MIB);
    heap_stream_destroy(stream);
    heap_use(NULL, kept, 2 * MIB, 50000000);
    heap_free(kept, NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).exported_bytes == 0);
    BERM_TEST_END();
}

// The driver does not take a handle back: it serves nobody, and goes later.
Test(export, a_release_that_fails) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t block = exportable_alloc(4 * MIB, stream, NULL);
    (void)close(export(block, 4 * MIB));
    heap_free(block, stream);
    cr_assert(simcuda_fault_nth("cuMemRelease", 1, 1, 999) == 0);
    berm_addr_t next = exportable_alloc(4 * MIB, stream, NULL);
    cr_assert(stats_of(0).exported_bytes == 4 * MIB && ledger_of(0).handles == 2);
    BERM_TEST_CHECK();
    heap_free(next, stream);
    EXPECT(BERM_OK, berm_trim(0, 4 * MIB, NULL));
    cr_assert(stats_of(0).exported_bytes == 0 && ledger_of(0).handles == 1,
              "what leaves goes before what is cached");
    BERM_TEST_END();
}

Test(export, an_unmap_that_fails) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t block = exportable_alloc(4 * MIB, stream, NULL);
    (void)close(export(block, 4 * MIB));
    heap_free(block, stream);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, 999) == 0);
    berm_addr_t next = exportable_alloc(4 * MIB, stream, NULL);
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(block, &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_POISONED && next != block);
    cr_assert(stats_of(0).poisoned_bytes == 4 * MIB && stats_of(0).exported_bytes == 4 * MIB);
    BERM_TEST_END();
}

Test(export, live_at_the_end) {
    heap_fixture_begin(NULL);
    berm_addr_t block = exportable_alloc(4 * MIB, NULL, NULL);
    int fd = export(block, 4 * MIB);
    BERM_TEST_END(); // nothing is left but the descriptor
    (void)close(fd);
}

Test(export, a_lost_device) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_lenient = 1});
    berm_addr_t block = exportable_alloc(4 * MIB, NULL, NULL);
    int fd = 7;
    uint64_t size_bytes;
    simcuda_device_lose(0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_export(block, &fd, &size_bytes));
    cr_assert(fd == -1);
    EXPECT(BERM_OK, berm_shutdown(NULL));
}
