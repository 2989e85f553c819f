// SPDX-License-Identifier: Apache-2.0
// berm_peer_enable and berm_peer_disable: who may use what is mapped, and what is mapped later.
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/peer_device.h"
#include "tests/support/raw_share.h"

static void begin(int devices) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = devices, .memory_bytes = 64 * MIB});
}

Test(peer, may_use_what_is_mapped_and_what_will_be) {
    begin(3);
    void *stream = heap_stream_create();
    berm_addr_t before[3], after;
    for (int i = 0; i < 3; i++)
        before[i] = heap_alloc(6 * MIB, i == 2 ? BERM_STREAM_NONE : stream);
    heap_free(before[1], stream); // a free range between them is mapped too
    for (int i = 0; i < 3; i++)
        cr_assert(peer_access_of(before[i], 1) == 0);
    EXPECT(BERM_OK, berm_peer_enable(0, 1));
    EXPECT(BERM_OK, berm_peer_enable(0, 1)); // once is enough
    after = heap_alloc(20 * MIB, stream);
    for (int i = 0; i < 3; i++)
        cr_assert(peer_access_of(before[i], 1) == 3 && peer_access_of(before[i], 2) == 0);
    cr_assert(peer_access_of(after, 1) == 3 && peer_access_of(after + 20 * MIB - 1, 1) == 3);
    peer_use(1, after, 20 * MIB, 1000);
    EXPECT(BERM_OK, berm_peer_enable(0, 2));
    cr_assert(peer_access_of(after, 2) == 3);
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    berm_addr_t last = heap_alloc(12 * MIB, stream);
    const berm_addr_t all[] = {before[0], before[2], after, last};
    for (int i = 0; i < 4; i++)
        cr_assert(peer_access_of(all[i], 1) == 0 && peer_access_of(all[i], 2) == 3 &&
                  peer_access_of(all[i], 0) == 3);
    peer_devices_end();
    BERM_TEST_END();
}

// Enabling costs one cuMemSetAccess a run of mapped granules; the miss that maps one more run, one.
Test(peer, kept_neighbours_are_left_alone) {
    begin(2);
    berm_addr_t blocks[5];
    for (int i = 0; i < 5; i++)
        blocks[i] = heap_alloc(8 * MIB, NULL);
    for (int i = 1; i < 5; i += 2)
        heap_free(blocks[i], NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL)); // three runs are left
    uint64_t calls = simcuda_calls("cuMemSetAccess");
    EXPECT(BERM_OK, berm_peer_enable(0, 1));
    cr_assert(simcuda_calls("cuMemSetAccess") == calls + 3);
    berm_addr_t addr = heap_alloc(8 * MIB, NULL);
    cr_assert(simcuda_calls("cuMemSetAccess") == calls + 4);
    cr_assert(peer_access_of(addr, 1) == 3 && peer_access_of(addr, 0) == 3);
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    BERM_TEST_END();
}

// More runs than are looked for at once.
Test(peer, many_runs) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2, .memory_bytes = 1024 * MIB});
    enum {
        BLOCKS = 300
    };
    static berm_addr_t blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = heap_alloc(2 * MIB, NULL);
    for (int i = 1; i < BLOCKS; i += 2)
        heap_free(blocks[i], NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    EXPECT(BERM_OK, berm_peer_enable(0, 1));
    for (int i = 0; i < BLOCKS; i += 2)
        cr_assert(peer_access_of(blocks[i], 1) == 3, "block %d", i);
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    for (int i = 0; i < BLOCKS; i += 2)
        cr_assert(peer_access_of(blocks[i], 1) == 0);
    BERM_TEST_END();
}

Test(peer, imports_of_the_device_are_open_too) {
    begin(2);
    int home = raw_export(2 * MIB, 0), away = raw_export(2 * MIB, 1);
    berm_addr_t before, after, other;
    EXPECT(BERM_OK, berm_import(home, 2 * MIB, 0, &before));
    EXPECT(BERM_OK, berm_import(away, 2 * MIB, 0, &other));
    EXPECT(BERM_OK, berm_peer_enable(0, 1));
    EXPECT(BERM_OK, berm_import(home, 2 * MIB, 0, &after));
    cr_assert(peer_access_of(before, 1) == 3 && peer_access_of(after, 1) == 3);
    cr_assert(peer_access_of(other, 1) == 0, "it is no memory of device 0");
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    cr_assert(peer_access_of(before, 1) == 0 && peer_access_of(after, 1) == 0);
    const berm_addr_t all[] = {before, after, other};
    for (int i = 0; i < 3; i++)
        EXPECT(BERM_OK, berm_import_close(all[i], BERM_STREAM_NONE));
    (void)close(home);
    (void)close(away);
    BERM_TEST_END();
}

// Pages move while a peer has access, and the peer may use them where they go. A block that a
// peer's stream uses waits for that stream. The strict device aborts on any work over moved pages.
static void pages_move(const char *conf) {
    heap_fixture_begin(
        &(heap_fixture_options_t){.devices = 2, .memory_bytes = 64 * MIB, .berm = conf});
    void *stream = heap_stream_create();
    EXPECT(BERM_OK, berm_peer_enable(0, 1));
    berm_addr_t blocks[10];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 10; i++) {
            blocks[i] = heap_alloc(6 * MIB, stream);
            peer_follow(1, stream);
            peer_use(1, blocks[i], 6 * MIB, 500000);
        }
        for (int i = 0; i < 10; i++) {
            if (i % 2 == 0)
                EXPECT(BERM_OK, berm_record_stream(blocks[i], peer_stream(1)));
            heap_free(blocks[i], i % 2 == 0 ? stream : peer_stream(1));
        }
        berm_addr_t large = heap_alloc(60 * MIB, stream);
        heap_use(stream, large, 60 * MIB, 1000);
        peer_follow(1, stream);
        peer_use(1, large, 60 * MIB, 1000);
        heap_free(large, peer_stream(1));
        large = heap_alloc(50 * MIB, BERM_STREAM_NONE);
        heap_free(large, BERM_STREAM_NONE);
    }
    peer_devices_end();
    EXPECT(BERM_OK, berm_stream_retire(0, stream));
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    BERM_TEST_END();
}

Test(peer, pages_move_after_the_peer_is_done) {
    pages_move(NULL);
}

Test(peer, pages_move_by_alias) {
    pages_move("remap:alias");
}

Test(peer, pages_move_where_edits_wait) {
    pages_move("sync_edits:on");
}

// Work of both devices is waited for: taking access away under it is a hazard.
Test(peer, disable_waits) {
    begin(2);
    berm_addr_t addr = heap_alloc(4 * MIB, NULL);
    EXPECT(BERM_OK, berm_peer_enable(0, 1));
    peer_use(1, addr, 4 * MIB, 1000000000);
    uint64_t before = simcuda_now_ns();
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    cr_assert(simcuda_now_ns() - before >= 1000000000);
    peer_devices_end();
    BERM_TEST_END();
}

Test(peer, what_is_refused) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2, .lacks_peers = 1});
    EXPECT(BERM_ERROR_PEER_ACCESS, berm_peer_enable(0, 1));
    EXPECT_MESSAGE("device 0");
    EXPECT(BERM_ERROR_ARGUMENT, berm_peer_enable(1, 1));
    EXPECT(BERM_ERROR_ARGUMENT, berm_peer_disable(0, 0));
    EXPECT(BERM_ERROR_DEVICE, berm_peer_enable(0, 2));
    EXPECT(BERM_ERROR_DEVICE, berm_peer_enable(-1, 0));
    EXPECT(BERM_ERROR_DEVICE, berm_peer_disable(2, 0));
    EXPECT(BERM_OK, berm_peer_disable(0, 1));
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_peer_enable(0, 1));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_peer_disable(0, 1));
}

Test(peer, an_enable_or_disable_that_fails_changes_nothing) {
    begin(2);
    berm_addr_t blocks[5];
    for (int i = 0; i < 5; i++)
        blocks[i] = heap_alloc(8 * MIB, NULL);
    for (int i = 1; i < 5; i += 2)
        heap_free(blocks[i], NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL)); // three runs are left
    for (int wants = 1; wants >= 0; wants--) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            cr_assert(simcuda_fault_nth("cuMemSetAccess", nth, 1, 999) == 0);
            EXPECT(BERM_ERROR_DRIVER, wants ? berm_peer_enable(0, 1) : berm_peer_disable(0, 1));
            simcuda_faults_clear();
            for (int i = 0; i < 5; i += 2)
                cr_assert(peer_access_of(blocks[i], 1) == (wants ? 0 : 3));
        }
        EXPECT(BERM_OK, wants ? berm_peer_enable(0, 1) : berm_peer_disable(0, 1));
        for (int i = 0; i < 5; i += 2)
            cr_assert(peer_access_of(blocks[i], 1) == (wants ? 3 : 0));
    }
    BERM_TEST_END();
}

Test(peer, a_lost_device) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2, .is_lenient = 1});
    (void)heap_alloc(4 * MIB, NULL);
    simcuda_device_lose(0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_peer_enable(0, 1));
    EXPECT(BERM_OK, berm_shutdown(NULL));
}
