// SPDX-License-Identifier: Apache-2.0
// The option shareable: every block that is not plain can be sent, handle by handle; what is behind
// the receiver's address is the block.
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/raw_share.h"
#include "tests/support/simcuda_forward.h"

static int sockets[2];

static void sockets_open(int type) {
    cr_assert(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets) == 0);
}

static void sockets_close(void) {
    cr_assert(close(sockets[0]) == 0 && close(sockets[1]) == 0);
}

static int fill(berm_addr_t addr, unsigned char value, uint64_t size_bytes) {
    void *function = simcuda_symbol("cuMemsetD8_v2");
    int (*memset_d8)(berm_addr_t, unsigned char, size_t);
    memcpy(&memset_d8, &function, sizeof memset_d8);
    return memset_d8(addr, value, size_bytes);
}

static int byte_at(berm_addr_t addr) {
    unsigned char byte = 0;
    void *function = simcuda_symbol("cuMemcpyDtoH_v2");
    int (*copy)(void *, berm_addr_t, size_t);
    memcpy(&copy, &function, sizeof copy);
    return copy(&byte, addr, 1) == 0 ? byte : -1;
}

static const uint64_t sizes[] = {1000, 3 * MIB, 48 * MIB, 700 * KIB, 2 * MIB, 20 * MIB + 512};

Test(shareable, blocks_of_the_default_pool_are_sent) {
    heap_fixture_begin(&(heap_fixture_options_t){.is_backed = 1, .berm = "shareable:on"});
    void *stream = heap_stream_create();
    berm_addr_t blocks[6], received[6];
    for (size_t i = 0; i < 6; i++) {
        blocks[i] = heap_alloc(sizes[i], stream);
        cr_assert(fill(blocks[i], (unsigned char)(i + 1), sizes[i]) == 0);
    }
    for (size_t i = 0; i < 6; i++) {
        uint64_t size_bytes = 0;
        sockets_open(i % 2 == 0 ? SOCK_STREAM : SOCK_SEQPACKET);
        EXPECT(BERM_OK, berm_share_check(blocks[i]));
        EXPECT(BERM_OK, berm_share_send(sockets[0], blocks[i]));
        EXPECT(BERM_OK, berm_share_receive(sockets[1], 0, &received[i], &size_bytes));
        cr_assert(size_bytes >= sizes[i] && size_bytes < sizes[i] + 512);
        cr_assert(byte_at(received[i]) == (int)i + 1);
        cr_assert(byte_at(received[i] + sizes[i] - 1) == (int)i + 1);
        sockets_close();
        BERM_TEST_CHECK();
    }
    // It is one memory: what is written here is read there.
    cr_assert(fill(blocks[2] + 17 * MIB, 99, 1) == 0);
    cr_assert(byte_at(received[2] + 17 * MIB) == 99);
    cr_assert(stats_of(0).imports == 6 && stats_of(0).exported_bytes == 0);
    for (size_t i = 0; i < 6; i++) {
        EXPECT(BERM_OK, berm_import_close(received[i], BERM_STREAM_NONE));
        EXPECT(BERM_OK, berm_free(blocks[i], 0, stream));
    }
    BERM_TEST_END();
}

// What was sent moves and goes like any other memory once it is free.
Test(shareable, nothing_is_kept_back_for_it) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "shareable:on"});
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(40 * MIB, stream), received;
    sockets_open(SOCK_STREAM);
    EXPECT(BERM_OK, berm_share_send(sockets[0], block));
    EXPECT(BERM_OK, berm_share_receive(sockets[1], 0, &received, NULL));
    EXPECT(BERM_OK, berm_import_close(received, BERM_STREAM_NONE));
    EXPECT(BERM_OK, berm_free(block, 0, stream));
    block = heap_alloc(60 * MIB, stream);
    EXPECT(BERM_OK, berm_free(block, 0, stream));
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    sockets_close();
    BERM_TEST_END();
}

// A descriptor alone is of a block that owns its handle, as without the option.
Test(shareable, berm_export_stays_strict) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "shareable:on"});
    int fd = 7;
    uint64_t size_bytes;
    berm_addr_t block = heap_alloc(4 * MIB, NULL);
    EXPECT(BERM_ERROR_NOT_EXPORTABLE, berm_export(block, &fd, &size_bytes));
    cr_assert(fd == -1);
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = BERM_POOL_EXPORTABLE;
    EXPECT(BERM_OK, berm_pool_create(0, (berm_pool_id_t){1, 1}, &options));
    berm_addr_t owned;
    EXPECT(BERM_OK, berm_alloc_from((berm_pool_id_t){1, 1}, 3 * MIB, 512, 0, NULL, &owned));
    EXPECT(BERM_OK, berm_export(owned, &fd, &size_bytes));
    cr_assert(size_bytes == 4 * MIB && close(fd) == 0);
    EXPECT(BERM_OK, berm_free(owned, 0, NULL));
    EXPECT(BERM_OK, berm_pool_release(0, (berm_pool_id_t){1, 1}));
    BERM_TEST_END();
}

Test(shareable, off_or_impossible) {
    static const heap_fixture_options_t ways[] = {
        {.berm = "shareable:off"},
        {.berm = "shareable:on,backing:plain"},
        {.berm = "shareable:on", .lacks_vmm = 1},
    };
    for (size_t i = 0; i < 3; i++) {
        heap_fixture_begin(&ways[i]);
        berm_addr_t block = heap_alloc(4 * MIB, NULL);
        sockets_open(SOCK_STREAM);
        EXPECT(BERM_ERROR_NOT_EXPORTABLE, berm_share_check(block));
        EXPECT(BERM_ERROR_NOT_EXPORTABLE, berm_share_send(sockets[0], block));
        EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_share_check(1));
        EXPECT(BERM_ERROR_ADDRESS_INTERIOR, berm_share_check(block + 512));
        sockets_close();
        BERM_TEST_END();
    }
}

// A sender that goes on wrongly after its first handle: nothing is left mapped, no descriptor open.
Test(shareable, a_further_part_is_not_believed) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0), other = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct {
        berm_status_t want;
        raw_part_t part;
        int fd;
    } wrong[] = {
        {BERM_ERROR_PROTOCOL, {"bermprt", 2, 4 * MIB}, fd},
        {BERM_ERROR_PROTOCOL, {"bermmem", 1, 4 * MIB}, fd},
        {BERM_ERROR_PROTOCOL, {"bermprt", 1, 4 * MIB + 1}, fd},
        {BERM_ERROR_PROTOCOL, {"bermprt", 1, 0}, fd},
        {BERM_ERROR_PROTOCOL, {"bermprt", 1, 4 * MIB}, -1},
        {BERM_ERROR_IMPORT_SIZE, {"bermprt", 1, 6 * MIB}, fd},
        {BERM_ERROR_IMPORT_SIZE, {"bermprt", 1, 2 * MIB}, fd},
        {BERM_ERROR_IMPORT_FD, {"bermprt", 1, 4 * MIB}, other},
        {BERM_OK, {"bermprt", 1, 4 * MIB}, fd},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        berm_addr_t addr = 7;
        raw_header_t header = raw_header(8 * MIB, 0);
        header.part_count = 2;
        header.part_bytes = 4 * MIB;
        sockets_open(SOCK_SEQPACKET);
        raw_send(sockets[0], &header, sizeof header, fd, 1);
        raw_send(sockets[0], &wrong[i].part, sizeof wrong[i].part, wrong[i].fd, 1);
        EXPECT(wrong[i].want, berm_share_receive(sockets[1], 0, &addr, NULL));
        cr_assert((addr != 0) == (wrong[i].want == BERM_OK));
        if (addr != 0)
            EXPECT(BERM_OK, berm_import_close(addr, BERM_STREAM_NONE));
        cr_assert(stats_of(0).imports == 0);
        sockets_close();
        BERM_TEST_CHECK();
    }
    (void)close(fd);
    (void)close(other);
    BERM_TEST_END();
}
