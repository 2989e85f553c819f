// SPDX-License-Identifier: Apache-2.0
// Two processes and one block, by berm_share_send and berm_share_receive: both write and read it,
// either is killed, and the other goes on. Contents are real (the device's backed mode).
#include <string.h>
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/exportable.h"
#include "tests/support/other_process.h"

static volatile unsigned char *at(berm_addr_t addr) {
    return (volatile unsigned char *)(uintptr_t)addr;
}

static void begin(void) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_backed = 1});
}

static simcuda_ledger_t ledger_of(int device) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(device, &ledger);
    return ledger;
}

// Every process writes its own stripe of a block, and reads the other's.
enum {
    BLOCK_BYTES = 5 << 20,
    STRIPE = 4096
};

static void stripes_write(berm_addr_t addr, int which, int value) {
    for (uint64_t i = (uint64_t)which * STRIPE; i < BLOCK_BYTES; i += 2 * STRIPE)
        *at(addr + i) = (unsigned char)(value + (int)(i / STRIPE));
}

static void stripes_expect(berm_addr_t addr, int which, int value) {
    for (uint64_t i = (uint64_t)which * STRIPE; i < BLOCK_BYTES; i += 2 * STRIPE)
        HEAP_INSIST(*at(addr + i) == (unsigned char)(value + (int)(i / STRIPE)));
}

// Allocates, uses and frees a while, with moves.
static void heap_work(void) {
    void *stream = heap_stream_create();
    berm_addr_t blocks[8];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 8; i++) {
            blocks[i] = heap_alloc((uint64_t)(1 + (i + round) % 5) * 3 * MIB, stream);
            heap_use(stream, blocks[i], MIB, 1000);
        }
        for (int i = 0; i < 8; i += 2)
            heap_free(blocks[i], stream);
        blocks[0] = heap_alloc(30 * MIB, stream);
        heap_free(blocks[0], stream);
        for (int i = 1; i < 8; i += 2)
            heap_free(blocks[i], stream);
    }
    BERM_TEST_CHECK();
}

// --- roles -------------------------------------------------------------------------------------

static void exporter(int socket_fd, int stays) {
    begin();
    berm_addr_t block = exportable_alloc(BLOCK_BYTES, NULL, NULL);
    stripes_write(block, 0, 1);
    HEAP_INSIST(berm_share_send(socket_fd, block) == BERM_OK);
    other_process_hear(socket_fd);
    stripes_expect(block, 1, 2);
    stripes_write(block, 0, 3);
    other_process_tell(socket_fd);
    other_process_hear(socket_fd); // it is killed here, or goes on
    heap_free(block, NULL);
    HEAP_INSIST(stays == 0);
    heap_work();
    BERM_TEST_END();
}

static void importer(int socket_fd, int stays) {
    begin();
    berm_addr_t addr = 0;
    uint64_t size_bytes = 0;
    HEAP_INSIST(berm_share_receive(socket_fd, BERM_DEVICE_ANY, &addr, &size_bytes) == BERM_OK);
    HEAP_INSIST(size_bytes == BLOCK_BYTES && ledger_of(0).imports == 1);
    stripes_expect(addr, 0, 1);
    stripes_write(addr, 1, 2);
    other_process_tell(socket_fd);
    other_process_hear(socket_fd); // it is killed here, or goes on
    HEAP_INSIST(stays == 0);
    stripes_expect(addr, 0, 3);
    heap_work();
    HEAP_INSIST(berm_import_close(addr, NULL) == BERM_OK);
    BERM_TEST_END();
}

// Takes blocks and writes its number into them, for ever.
static void rover(int socket_fd, int number) {
    begin();
    for (;;) {
        berm_addr_t addr;
        HEAP_INSIST(berm_share_receive(socket_fd, 0, &addr, NULL) == BERM_OK);
        heap_use(NULL, addr, MIB, 1000);
        *at(addr + (uint64_t)number) = (unsigned char)(number + 1);
        HEAP_INSIST(berm_import_close(addr, NULL) == BERM_OK);
        other_process_tell(socket_fd);
    }
}

OTHER_PROCESS_ROLES({"exporter", exporter}, {"importer", importer}, {"rover", rover})

// --- tests -------------------------------------------------------------------------------------

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

Test(share, both_write_and_read) {
    for (int i = 0; i < 2; i++) {
        other_process_t other = other_process_start("importer", 0, types[i]);
        begin();
        int files = open_files();
        berm_addr_t block = exportable_alloc(BLOCK_BYTES, NULL, NULL);
        stripes_write(block, 0, 1);
        EXPECT(BERM_OK, berm_share_send(other.socket_fd, block));
        other_process_hear(other.socket_fd);
        stripes_expect(block, 1, 2);
        stripes_write(block, 0, 3);
        other_process_tell(other.socket_fd);
        heap_free(block, NULL); // the other has it still
        heap_work();
        cr_assert(open_files() == files);
        other_process_end(&other);
        BERM_TEST_END();
    }
}

// The importer goes on allocating, and the block is there as it was.
Test(share, the_exporter_is_killed) {
    other_process_t other = other_process_start("exporter", 1, SOCK_STREAM);
    begin();
    berm_addr_t addr = 0;
    uint64_t size_bytes = 0;
    EXPECT(BERM_OK, berm_share_receive(other.socket_fd, 0, &addr, &size_bytes));
    cr_assert(size_bytes == BLOCK_BYTES);
    stripes_expect(addr, 0, 1);
    stripes_write(addr, 1, 2);
    other_process_tell(other.socket_fd);
    other_process_hear(other.socket_fd);
    other_process_kill(&other);
    stripes_expect(addr, 0, 3);
    stripes_expect(addr, 1, 2);
    heap_work();
    heap_use(NULL, addr, BLOCK_BYTES, 1000000);
    stripes_write(addr, 0, 9);
    stripes_expect(addr, 0, 9);
    cr_assert(ledger_of(0).imports == 1 && stats_of(0).imported_bytes == 6 * MIB);
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_import_close(addr, NULL));
    cr_assert(ledger_of(0).imports == 0 && stats_of(0).imports == 0);
    heap_work();
    BERM_TEST_END();
}

// The exporter goes on with its block, frees it, and has all of its memory.
Test(share, the_importer_is_killed) {
    other_process_t other = other_process_start("importer", 1, SOCK_SEQPACKET);
    begin();
    berm_addr_t block = exportable_alloc(BLOCK_BYTES, NULL, NULL);
    stripes_write(block, 0, 1);
    EXPECT(BERM_OK, berm_share_send(other.socket_fd, block));
    other_process_hear(other.socket_fd);
    other_process_kill(&other);
    stripes_expect(block, 1, 2);
    heap_work();
    heap_use(NULL, block, BLOCK_BYTES, 1000000);
    stripes_write(block, 1, 4);
    stripes_expect(block, 0, 1);
    BERM_TEST_CHECK();
    heap_free(block, NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).exported_bytes == 0 && stats_of(0).reserved_bytes.current == 0);
    cr_assert(ledger_of(0).handles == 0 && ledger_of(0).used_bytes == 0);
    heap_work();
    BERM_TEST_END();
}

Test(share, neither_is_killed_and_the_exporter_frees_first) {
    other_process_t other = other_process_start("exporter", 0, SOCK_SEQPACKET);
    begin();
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_share_receive(other.socket_fd, 0, &addr, NULL));
    stripes_write(addr, 1, 2);
    other_process_tell(other.socket_fd);
    other_process_hear(other.socket_fd);
    other_process_tell(other.socket_fd);
    other_process_end(&other); // its test end says that nothing is left there
    stripes_expect(addr, 0, 3);
    stripes_write(addr, 0, 9);
    stripes_expect(addr, 0, 9);
    EXPECT(BERM_OK, berm_import_close(addr, BERM_STREAM_NONE));
    BERM_TEST_END();
}

enum {
    ROVERS = 4,
    ROVED = 6
};

// What a rover wrote is there; what it was killed over is as it was.
Test(share, importers_are_killed_at_random) {
    other_process_t others[ROVERS];
    int pending[ROVERS] = {0}, alive[ROVERS];
    berm_addr_t blocks[ROVED];
    unsigned state = 7;
    for (int i = 0; i < ROVERS; i++) {
        others[i] = other_process_start("rover", i, SOCK_SEQPACKET);
        alive[i] = 1;
    }
    begin();
    for (int i = 0; i < ROVED; i++)
        blocks[i] = exportable_alloc(2 * MIB, NULL, NULL);
    int files = open_files(), killed = 0, written = 0;
    for (int step = 0; step < 300; step++) {
        state = state * 1664525 + 1013904223;
        int i = (int)(state >> 28) % ROVERS, block = (int)(state >> 20) % ROVED;
        if (alive[i] == 0)
            continue;
        for (; pending[i] > 3; pending[i]--)
            other_process_hear(others[i].socket_fd);
        EXPECT(BERM_OK, berm_share_send(others[i].socket_fd, blocks[block]));
        pending[i]++;
        if (killed < ROVERS - 1 && (state >> 8) % 60 == 0) {
            other_process_kill(&others[i]);
            alive[i] = 0;
            killed++;
        }
    }
    for (int i = 0; i < ROVERS; i++) {
        for (; alive[i] && pending[i] > 0; pending[i]--)
            other_process_hear(others[i].socket_fd);
        if (alive[i])
            other_process_kill(&others[i]);
    }
    cr_assert(killed > 0 && open_files() == files - ROVERS);
    for (int block = 0; block < ROVED; block++) {
        for (int i = 0; i < ROVERS; i++) {
            int value = *at(blocks[block] + (uint64_t)i);
            cr_assert(value == 0 || value == i + 1);
            written += value != 0;
        }
        heap_free(blocks[block], NULL);
    }
    cr_assert(written > ROVED);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(ledger_of(0).handles == 0);
    BERM_TEST_END();
}

Test(share, the_other_end_is_gone_before_it_is_sent) {
    other_process_t other = other_process_start("rover", 0, SOCK_STREAM);
    begin();
    berm_addr_t block = exportable_alloc(2 * MIB, NULL, NULL);
    int files = open_files(), kept = dup(other.socket_fd);
    other_process_kill(&other);
    EXPECT(BERM_ERROR_DISCONNECTED, berm_share_send(kept, block));
    EXPECT_MESSAGE("berm_share_send");
    EXPECT(BERM_ERROR_SYSTEM, berm_share_send(-1, block));
    (void)close(kept);
    cr_assert(open_files() == files - 1);
    heap_free(block, NULL);
    BERM_TEST_END();
}
