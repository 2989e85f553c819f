// SPDX-License-Identifier: Apache-2.0
// berm_import and berm_import_close: other processes' memory at addresses of its own, beside the
// heap, and every way in which it cannot be had.
#include <fcntl.h>
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/other_process.h"
#include "tests/support/raw_share.h"

static simcuda_ledger_t ledger_of(int device) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(device, &ledger);
    return ledger;
}

static berm_addr_t import(int fd, uint64_t size_bytes) {
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_import(fd, size_bytes, 0, &addr));
    cr_assert(addr != 0);
    return addr;
}

static void expect_nothing_imported(void) {
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.imports == 0 && stats.imported_bytes == 0);
    cr_assert(ledger_of(-1).imports == 0);
    BERM_TEST_CHECK();
}

Test(import, is_mapped_beside_the_heap) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(3 * MIB, stream);
    berm_stats_t before = stats_of(0);
    int fd = raw_export(6 * MIB, 0);
    berm_addr_t addr = import(fd, 6 * MIB);
    cr_assert(close(fd) == 0);
    heap_use(stream, addr, 6 * MIB, 1000);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.imports == 1 && stats.imported_bytes == 6 * MIB);
    cr_assert(stats.reserved_bytes.current == before.reserved_bytes.current);
    cr_assert(stats.mappings == before.mappings && stats.address_bytes == before.address_bytes);
    simcuda_ledger_t ledger = ledger_of(0);
    cr_assert(ledger.imports == 1 && ledger.import_bytes == 6 * MIB);
    BERM_TEST_CHECK();
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr + 5 * MIB, &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_IMPORTED && whatis.device == 0 && whatis.block == addr);
    cr_assert(whatis.offset_bytes == 5 * MIB && whatis.block_bytes == 6 * MIB);
    cr_assert(whatis.requested_bytes == 6 * MIB && whatis.stream == BERM_STREAM_NONE);
    EXPECT(BERM_OK, berm_import_close(addr, stream));
    EXPECT(BERM_OK, berm_whatis(addr, &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_FOREIGN);
    expect_nothing_imported();
    heap_free(block, stream);
    BERM_TEST_END();
}

// The strict device aborts if memory is unmapped under work.
Test(import, a_close_waits_for_the_stream_or_for_all) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    for (int all = 0; all < 2; all++) {
        int fd = raw_export(2 * MIB, 0);
        berm_addr_t addr = import(fd, 2 * MIB);
        (void)close(fd);
        heap_use(stream, addr, 2 * MIB, 1000000000);
        uint64_t before = simcuda_now_ns(), waits = stats_of(0).host_waits;
        EXPECT(BERM_OK, berm_import_close(addr, all ? BERM_STREAM_NONE : stream));
        cr_assert(simcuda_now_ns() - before >= 1000000000);
        cr_assert(stats_of(0).host_waits == waits + 1);
    }
    expect_nothing_imported();
    BERM_TEST_END();
}

Test(import, the_same_memory_twice) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_backed = 1});
    int fd = raw_export(2 * MIB, 0);
    berm_addr_t one = import(fd, 2 * MIB), two = import(fd, 2 * MIB);
    (void)close(fd);
    cr_assert(one != two);
    *(volatile char *)(uintptr_t)one = 17;
    cr_assert(*(volatile char *)(uintptr_t)two == 17);
    cr_assert(stats_of(0).imports == 2 && ledger_of(0).imports == 1);
    EXPECT(BERM_OK, berm_import_close(one, NULL));
    cr_assert(*(volatile char *)(uintptr_t)two == 17);
    EXPECT(BERM_OK, berm_import_close(two, NULL));
    expect_nothing_imported();
    BERM_TEST_END();
}

Test(import, a_hundred_leave_nothing) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0), files = open_files();
    simcuda_ledger_t before = ledger_of(-1);
    (void)import(fd, 2 * MIB); // opens the device
    uint64_t host_bytes = stats_of(0).host_metadata_bytes;
    for (int i = 0; i < 100; i++) {
        berm_addr_t addrs[3];
        for (int j = 0; j < 3; j++)
            addrs[j] = import(fd, j == 1 ? 2 * MIB : 4 * MIB);
        for (int j = 0; j < 3; j++)
            EXPECT(BERM_OK, berm_import_close(addrs[j], BERM_STREAM_NONE));
    }
    cr_assert(stats_of(0).host_metadata_bytes == host_bytes);
    simcuda_ledger_t after = ledger_of(-1);
    cr_assert(after.handles == before.handles + 1 && after.mappings == before.mappings + 1);
    cr_assert(after.reservations == before.reservations + 1);
    cr_assert(after.reserved_address_bytes == before.reserved_address_bytes + 2 * MIB);
    cr_assert(open_files() == files + 1, "one for the import that is open, of the driver's");
    (void)close(fd);
    BERM_TEST_END(); // ends that one too
}

Test(import, closed_twice_and_other_addresses) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    int fd = raw_export(4 * MIB, 0);
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(0, NULL));
    berm_addr_t block = heap_alloc(1000, NULL), addr = import(fd, 4 * MIB);
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(block, NULL));
    EXPECT_MESSAGE("0x");
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(addr + 512, NULL));
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(12345, NULL));
    EXPECT(BERM_ERROR_ADDRESS_IMPORTED, berm_free(addr, BERM_DEVICE_ANY, NULL));
    EXPECT_MESSAGE("berm_import_close");
    EXPECT(BERM_ERROR_ADDRESS_IMPORTED, berm_free(addr + 512, 0, BERM_STREAM_NONE));
    EXPECT(BERM_ERROR_ADDRESS_IMPORTED, berm_record_stream(addr, NULL));
    int exported = 7;
    uint64_t size_bytes = 7;
    EXPECT(BERM_ERROR_ADDRESS_IMPORTED, berm_export(addr, &exported, &size_bytes));
    cr_assert(exported == -1);
    state_expect_same(&before, 1);
    EXPECT(BERM_OK, berm_import_close(addr, NULL));
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(addr, NULL));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(addr, BERM_DEVICE_ANY, NULL));
    expect_nothing_imported();
    (void)close(fd);
    heap_free(block, NULL);
    BERM_TEST_END();
}

static void expect_refused(berm_status_t want, int fd, uint64_t size_bytes, int device) {
    berm_addr_t addr = 7;
    int files = open_files();
    EXPECT(want, berm_import(fd, size_bytes, device, &addr));
    cr_assert(addr == 0 && open_files() == files);
    expect_nothing_imported();
}

Test(import, wrong_sizes) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0);
    expect_refused(BERM_ERROR_ARGUMENT, fd, 0, 0);
    expect_refused(BERM_ERROR_ARGUMENT, fd, 4 * MIB - 1, 0);
    expect_refused(BERM_ERROR_ARGUMENT, fd, MIB, 0);
    EXPECT_MESSAGE("whole granules");
    expect_refused(BERM_ERROR_IMPORT_SIZE, fd, 6 * MIB, 0);
    EXPECT_MESSAGE("berm_import: 6291456 bytes were named");
    expect_refused(BERM_ERROR_SIZE_TOO_LARGE, fd, UINT64_MAX - 2 * MIB + 1, 0);
    expect_refused(BERM_ERROR_OUT_OF_ADDRESSES, fd, (uint64_t)1 << 50, 0);
    (void)close(fd);
    BERM_TEST_END();
}

Test(import, wrong_descriptors_and_devices) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0), other = open("/dev/null", O_RDWR | O_CLOEXEC);
    expect_refused(BERM_ERROR_ARGUMENT, -1, 4 * MIB, 0);
    expect_refused(BERM_ERROR_IMPORT_FD, 999, 4 * MIB, 0);
    EXPECT_MESSAGE("999");
    expect_refused(BERM_ERROR_IMPORT_FD, other, 4 * MIB, 0);
    expect_refused(BERM_ERROR_DEVICE, fd, 4 * MIB, 1);
    expect_refused(BERM_ERROR_DEVICE, fd, 4 * MIB, BERM_DEVICE_ANY);
    EXPECT(BERM_ERROR_ARGUMENT, berm_import(fd, 4 * MIB, 0, NULL));
    (void)close(fd);
    (void)close(other);
    BERM_TEST_END();
}

Test(import, after_the_device_is_lost) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_lenient = 1});
    int fd = raw_export(2 * MIB, 0);
    berm_addr_t addr = import(fd, 2 * MIB), again = 7;
    simcuda_device_lose(0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_import(fd, 2 * MIB, 0, &again));
    cr_assert(again == 0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_import_close(addr, NULL));
    EXPECT(BERM_OK, berm_audit(NULL));
    EXPECT(BERM_OK, berm_shutdown(NULL));
    (void)close(fd);
}

Test(import, after_shutdown_and_before_the_start) {
    heap_fixture_begin(&(heap_fixture_options_t){.stays_stopped = 1});
    berm_addr_t addr = 7;
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(4096, NULL));
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
    int fd = raw_export(2 * MIB, 0);
    (void)import(fd, 2 * MIB); // never closed: berm_shutdown does it
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_import(fd, 2 * MIB, 0, &addr));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_import_close(4096, NULL));
    cr_assert(addr == 0);
    (void)close(fd);
}

// A close that the driver refuses goes on where it stopped.
Test(import, a_close_that_fails_half_way) {
    static const char *const calls[] = {"cuStreamSynchronize", "cuMemUnmap", "cuMemRelease",
                                        "cuMemAddressFree"};
    heap_fixture_begin(NULL);
    int fd = raw_export(2 * MIB, 0);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        berm_addr_t addr = import(fd, 2 * MIB);
        berm_whatis_t whatis = BERM_WHATIS_INIT;
        cr_assert(simcuda_fault_nth(calls[i], 1, 1, 999) == 0);
        EXPECT(BERM_ERROR_DRIVER, berm_import_close(addr, NULL));
        EXPECT(BERM_OK, berm_audit(NULL));
        EXPECT(BERM_OK, berm_whatis(addr, &whatis));
        cr_assert(whatis.kind == BERM_ADDRESS_IMPORTED && whatis.block == addr);
        cr_assert(stats_of(0).imports == (i < 2), "one that is not mapped is not counted");
        EXPECT(BERM_OK, berm_import_close(addr, NULL));
        expect_nothing_imported();
        simcuda_faults_clear();
    }
    (void)close(fd);
    BERM_TEST_END();
}

// Nor does the driver take back what an import that failed had already: it is kept, and tried again
// by the next import, by trim, and at the end.
Test(import, what_cannot_be_undone_is_undone_later) {
    heap_fixture_begin(NULL);
    int fd = raw_export(2 * MIB, 0);
    for (int way = 0; way < 3; way++) {
        berm_addr_t addr = 7;
        cr_assert(simcuda_fault_nth("cuMemSetAccess", 1, 1, 999) == 0);
        cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 2, 999) == 0);
        EXPECT(BERM_ERROR_DRIVER, berm_import(fd, 2 * MIB, 0, &addr));
        cr_assert(addr == 0 && stats_of(0).imports == 1 && ledger_of(0).imports == 1);
        BERM_TEST_CHECK();
        simcuda_faults_clear();
        if (way == 0)
            EXPECT(BERM_OK, berm_import_close(import(fd, 2 * MIB), NULL));
        else if (way == 1)
            EXPECT(BERM_OK, berm_trim(0, 0, NULL));
        if (way < 2)
            expect_nothing_imported();
    }
    (void)close(fd);
    BERM_TEST_END();
}

Test(import, without_access_to_the_device_it_lies_on) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2, .lacks_peers = 1});
    int fd = raw_export(2 * MIB, 1);
    berm_addr_t addr = 7;
    EXPECT(BERM_ERROR_PEER_ACCESS, berm_import(fd, 2 * MIB, 0, &addr));
    cr_assert(addr == 0 && ledger_of(-1).imports == 0 && ledger_of(-1).reservations == 0);
    EXPECT(BERM_OK, berm_import(fd, 2 * MIB, 1, &addr));
    EXPECT(BERM_OK, berm_import_close(addr, BERM_STREAM_NONE));
    (void)close(fd);
    BERM_TEST_END();
}

Test(import, by_another_device_than_it_lies_on) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    int fd = raw_export(2 * MIB, 1);
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_import(fd, 2 * MIB, 0, &addr));
    heap_use(NULL, addr, 2 * MIB, 1000); // of device 0, whose context is current
    EXPECT(BERM_OK, berm_import_close(addr, NULL));
    (void)close(fd);
    BERM_TEST_END();
}
