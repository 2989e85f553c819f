// SPDX-License-Identifier: Apache-2.0
// berm_share_receive against ends that send what they should not: nothing is mapped, no descriptor
// stays open, and the status says what it was.
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/other_process.h"
#include "tests/support/raw_share.h"

typedef struct ends {
    int ours, theirs;
} ends_t;

static ends_t ends_make(int type) {
    int sockets[2];
    cr_assert(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets) == 0);
    return (ends_t){sockets[0], sockets[1]};
}

static void ends_close(ends_t ends) {
    (void)close(ends.ours);
    (void)close(ends.theirs);
}

static void expect_nothing(int files) {
    berm_stats_t stats = stats_of(0);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(-1, &ledger);
    cr_assert(stats.imports == 0 && ledger.imports == 0 && ledger.handles == 0);
    cr_assert(open_files() == files, "%d descriptors are left", open_files() - files);
    BERM_TEST_CHECK();
}

// One message with one descriptor, sent as it is.
static void expect_refused(berm_status_t want, int type, const void *bytes, size_t size_bytes,
                           int fd, unsigned copies) {
    int files = open_files();
    ends_t ends = ends_make(type);
    berm_addr_t addr = 7;
    uint64_t got_bytes = 7;
    raw_send(ends.theirs, bytes, size_bytes, fd, copies);
    (void)shutdown(ends.theirs, SHUT_WR);
    EXPECT(want, berm_share_receive(ends.ours, 0, &addr, &got_bytes));
    cr_assert(addr == 0 && got_bytes == 7);
    ends_close(ends);
    expect_nothing(files);
}

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

Test(receive, a_block_comes_with_its_size_and_offset) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    int files = open_files();
    for (size_t i = 0; i < 2; i++) {
        ends_t ends = ends_make(types[i]);
        int fd = raw_export(4 * MIB, 1);
        raw_header_t header = raw_header(4 * MIB, 1);
        header.offset_bytes = 3 * MIB;
        header.requested_bytes = 1000;
        header.device = 77; // the sender's own number for it
        raw_send(ends.theirs, &header, sizeof header, fd, 1);
        (void)close(fd);
        berm_addr_t addr = 0;
        uint64_t size_bytes = 0;
        berm_whatis_t whatis = BERM_WHATIS_INIT;
        EXPECT(BERM_OK, berm_share_receive(ends.ours, BERM_DEVICE_ANY, &addr, &size_bytes));
        cr_assert(size_bytes == 1000);
        EXPECT(BERM_OK, berm_whatis(addr + 10, &whatis));
        cr_assert(whatis.kind == BERM_ADDRESS_IMPORTED && whatis.device == 1);
        cr_assert(whatis.block == addr && whatis.offset_bytes == 10);
        cr_assert(whatis.requested_bytes == 1000 && whatis.block_bytes == 1 * MIB);
        EXPECT(BERM_ERROR_NOT_IMPORTED, berm_import_close(addr - 3 * MIB, BERM_STREAM_NONE));
        EXPECT(BERM_OK, berm_import_close(addr, BERM_STREAM_NONE));
        ends_close(ends);
    }
    expect_nothing(files);
    BERM_TEST_END();
}

// A sender whose driver has no UUIDs: its ordinal has to do.
Test(receive, a_device_by_its_ordinal) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    int files = open_files(), fd = raw_export(2 * MIB, 1);
    for (int device = 1; device < 3; device++) {
        ends_t ends = ends_make(SOCK_STREAM);
        raw_header_t header = raw_header(2 * MIB, 0);
        header.has_uuid = 0;
        header.device = device;
        raw_send(ends.theirs, &header, sizeof header, fd, 1);
        berm_addr_t addr = 7;
        berm_whatis_t whatis = BERM_WHATIS_INIT;
        berm_status_t want = device < 2 ? BERM_OK : BERM_ERROR_DEVICE;
        EXPECT(want, berm_share_receive(ends.ours, BERM_DEVICE_ANY, &addr, NULL));
        cr_assert((addr != 0) == (want == BERM_OK));
        EXPECT(BERM_OK, berm_whatis(addr, &whatis));
        cr_assert(whatis.device == (want == BERM_OK ? 1 : -1));
        if (want == BERM_OK)
            EXPECT(BERM_OK, berm_import_close(addr, BERM_STREAM_NONE));
        ends_close(ends);
    }
    (void)close(fd);
    expect_nothing(files);
    BERM_TEST_END();
}

Test(receive, every_broken_header_is_refused) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0);
    raw_header_t good = raw_header(4 * MIB, 0);
    const struct {
        berm_status_t want;
        size_t at, size_bytes;
        uint64_t value;
    } broken[] = {
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, magic), 8, 0},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, magic), 1, 'B'},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, version), 4, 0},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, version), 4, 1},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, part_count), 8, 0},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, part_count), 8, UINT64_MAX},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, part_bytes), 8, 0},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, part_bytes), 8, 6 * MIB},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, part_bytes), 8, 2 * MIB + 1},
        {BERM_ERROR_DISCONNECTED, offsetof(raw_header_t, part_count), 8, 2},
        {BERM_ERROR_IMPORT_SIZE, offsetof(raw_header_t, part_bytes), 8, 2 * MIB},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, header_bytes), 4, 95},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, size_bytes), 8, 0},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, size_bytes), 8, UINT64_MAX},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, size_bytes), 8, 4 * MIB + 1},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, offset_bytes), 8, 4 * MIB},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, offset_bytes), 8, 1},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, offset_bytes), 8, UINT64_MAX},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, requested_bytes), 8, 0},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, requested_bytes), 8, 4 * MIB + 1},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, requested_bytes), 8, UINT64_MAX},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, device), 4, UINT32_MAX},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, has_uuid), 4, 2},
        {BERM_ERROR_PROTOCOL, offsetof(raw_header_t, unused[1]), 8, 1},
        {BERM_ERROR_DEVICE, offsetof(raw_header_t, uuid), 8, 99},
        {BERM_ERROR_IMPORT_SIZE, offsetof(raw_header_t, size_bytes), 8, 6 * MIB},
        {BERM_ERROR_OUT_OF_ADDRESSES, offsetof(raw_header_t, size_bytes), 8, (uint64_t)1 << 60},
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        raw_header_t header = good;
        memcpy((char *)&header + broken[i].at, &broken[i].value, broken[i].size_bytes);
        for (size_t j = 0; j < 2; j++)
            expect_refused(broken[i].want, types[j], &header, sizeof header, fd, 1);
    }
    (void)close(fd);
    BERM_TEST_END();
}

Test(receive, wrong_lengths_and_descriptors) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0), other = open("/dev/null", O_RDWR | O_CLOEXEC);
    char bytes[2 * sizeof(raw_header_t)] = "";
    raw_header_t good = raw_header(4 * MIB, 0);
    memcpy(bytes, &good, sizeof good);
    expect_refused(BERM_ERROR_PROTOCOL, SOCK_SEQPACKET, bytes, sizeof good - 1, fd, 1);
    expect_refused(BERM_ERROR_PROTOCOL, SOCK_SEQPACKET, bytes, sizeof good + 1, fd, 1);
    expect_refused(BERM_ERROR_DISCONNECTED, SOCK_STREAM, bytes, sizeof good - 1, fd, 1);
    for (size_t i = 0; i < 2; i++) {
        expect_refused(BERM_ERROR_PROTOCOL, types[i], bytes, sizeof good, -1, 0);
        expect_refused(BERM_ERROR_PROTOCOL, types[i], bytes, sizeof good, fd, 2);
        expect_refused(BERM_ERROR_PROTOCOL, types[i], bytes, sizeof good, fd, 8);
        expect_refused(BERM_ERROR_IMPORT_FD, types[i], bytes, sizeof good, other, 1);
    }
    (void)close(fd);
    (void)close(other);
    BERM_TEST_END();
}

Test(receive, random_bytes) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0);
    uint64_t state = 1;
    for (int i = 0; i < 500; i++) {
        raw_header_t header = raw_header(4 * MIB, 0);
        unsigned char *bytes = (unsigned char *)&header;
        int files = open_files();
        ends_t ends = ends_make(types[i % 2]);
        for (int flips = 0; flips < 1 + i % 5; flips++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[(state >> 40) % sizeof header] = (unsigned char)(state >> 33);
        }
        raw_send(ends.theirs, &header, sizeof header, fd, 1);
        (void)shutdown(ends.theirs, SHUT_WR); // it may announce more handles
        berm_addr_t addr = 7;
        berm_status_t status = berm_share_receive(ends.ours, BERM_DEVICE_ANY, &addr, NULL);
        cr_assert((status == BERM_OK) == (addr != 0));
        if (status == BERM_OK) // a byte that does not matter, or that was as it should be
            EXPECT(BERM_OK, berm_import_close(addr, BERM_STREAM_NONE));
        ends_close(ends);
        expect_nothing(files);
    }
    (void)close(fd);
    BERM_TEST_END();
}

Test(receive, wrong_arguments_take_nothing_from_the_socket) {
    heap_fixture_begin(NULL);
    int fd = raw_export(4 * MIB, 0), other = open("/dev/null", O_RDWR | O_CLOEXEC);
    raw_header_t good = raw_header(4 * MIB, 0);
    ends_t ends = ends_make(SOCK_STREAM);
    raw_send(ends.theirs, &good, sizeof good, fd, 1);
    (void)close(fd);
    berm_addr_t addr = 7;
    EXPECT(BERM_ERROR_ARGUMENT, berm_share_receive(ends.ours, 0, NULL, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_share_receive(ends.ours, 1, &addr, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_share_receive(ends.ours, -2, &addr, NULL));
    EXPECT(BERM_ERROR_SYSTEM, berm_share_receive(other, 0, &addr, NULL));
    EXPECT_MESSAGE("errno 88");
    EXPECT(BERM_ERROR_SYSTEM, berm_share_receive(-1, 0, &addr, NULL));
    EXPECT(BERM_OK, berm_share_receive(ends.ours, 0, &addr, NULL));
    EXPECT(BERM_OK, berm_import_close(addr, NULL));
    ends_close(ends);
    (void)close(other);
    BERM_TEST_END();
}

Test(receive, the_other_end_goes_away) {
    heap_fixture_begin(NULL);
    int files = open_files();
    for (size_t i = 0; i < 2; i++) {
        ends_t ends = ends_make(types[i]);
        berm_addr_t addr = 7;
        (void)close(ends.theirs);
        EXPECT(BERM_ERROR_DISCONNECTED, berm_share_receive(ends.ours, 0, &addr, NULL));
        cr_assert(addr == 0);
        (void)close(ends.ours);
    }
    expect_nothing(files);
    BERM_TEST_END();
}
