// SPDX-License-Identifier: Apache-2.0
// Blocks of plain memory in two processes, by the driver's legacy handles. Contents are real (the
// device's backed mode).
#include <sys/socket.h>
#include <unistd.h>

#include "berm_share.h"
#include "tests/api/api_test.h"
#include "tests/support/capture.h"
#include "tests/support/other_process.h"

enum {
    BLOCKS = 2,
    BLOCK_BYTES = 300000
};

typedef struct message {
    unsigned char handle[BERM_IPC_HANDLE_BYTES];
    uint64_t offset_bytes;
} message_t;

static void begin(int lacks_vmm) {
    heap_fixture_begin(&(heap_fixture_options_t){
        .is_backed = 1, .lacks_vmm = lacks_vmm, .berm = lacks_vmm ? NULL : "backing:plain"});
}

static unsigned char *at(berm_addr_t addr) {
    return (unsigned char *)(uintptr_t)addr;
}

// Two blocks of one segment, filled with their number; the other process writes 7 into each.
static void exporter(int socket_fd, int lacks_vmm) {
    begin(lacks_vmm);
    berm_addr_t blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        message_t message;
        blocks[i] = heap_alloc(BLOCK_BYTES, NULL);
        memset(at(blocks[i]), i + 1, BLOCK_BYTES);
        HEAP_INSIST(berm_ipc_export(blocks[i], message.handle, &message.offset_bytes) == BERM_OK);
        HEAP_INSIST(send(socket_fd, &message, sizeof message, 0) == sizeof message);
    }
    other_process_hear(socket_fd);
    for (int i = 0; i < BLOCKS; i++) {
        HEAP_INSIST(at(blocks[i])[5] == 7);
        heap_free(blocks[i], NULL);
    }
    // What was exported stays, and serves again.
    berm_stats_t stats = BERM_STATS_INIT;
    HEAP_INSIST(berm_trim(0, 0, NULL) == BERM_OK);
    HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK && stats.reserved_bytes.current > 0);
    HEAP_INSIST(heap_alloc(BLOCK_BYTES, NULL) == blocks[0]);
    other_process_tell(socket_fd);
    other_process_hear(socket_fd); // all is closed
    BERM_TEST_END();
}

OTHER_PROCESS_ROLES({"exporter", exporter})

static void messages_receive(const other_process_t *other, message_t *messages) {
    for (int i = 0; i < BLOCKS; i++)
        cr_assert(recv(other->socket_fd, &messages[i], sizeof messages[i], MSG_WAITALL) ==
                  sizeof messages[i]);
}

static void other_finish(other_process_t *other) {
    other_process_tell(other->socket_fd);
    other_process_end(other);
}

static void both_see_the_bytes(int lacks_vmm) {
    other_process_t other = other_process_start("exporter", lacks_vmm, SOCK_STREAM);
    message_t messages[BLOCKS];
    berm_addr_t addrs[BLOCKS], again;
    messages_receive(&other, messages);
    cr_assert(memcmp(messages[0].handle, messages[1].handle, BERM_IPC_HANDLE_BYTES) == 0,
              "one handle for both");
    cr_assert(messages[0].offset_bytes != messages[1].offset_bytes);
    begin(0);
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(BERM_OK, berm_ipc_open(messages[i].handle, 0, messages[i].offset_bytes, &addrs[i]));
        cr_assert(at(addrs[i])[0] == i + 1 && at(addrs[i])[BLOCK_BYTES - 1] == i + 1);
        at(addrs[i])[5] = 7;
    }
    EXPECT(BERM_OK, berm_ipc_open(messages[0].handle, 0, messages[0].offset_bytes, &again));
    cr_assert(again == addrs[0]);
    cr_assert(simcuda_calls("cuIpcOpenMemHandle") == 1, "the driver opens a handle once");
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(addrs[0], 0, NULL));
    other_process_tell(other.socket_fd);
    other_process_hear(other.socket_fd);
    EXPECT(BERM_OK, berm_ipc_close(addrs[0]));
    EXPECT(BERM_OK, berm_ipc_close(addrs[0]));
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_ipc_close(addrs[0]));
    cr_assert(at(addrs[1])[5] == 7 && simcuda_calls("cuIpcCloseMemHandle") == 0);
    EXPECT(BERM_OK, berm_ipc_close(addrs[1]));
    cr_assert(simcuda_calls("cuIpcCloseMemHandle") == 1);
    BERM_TEST_END();
    other_finish(&other);
}

Test(ipc, both_see_the_bytes, .timeout = 60) {
    both_see_the_bytes(0);
}

Test(ipc, exporter_without_vmm, .timeout = 60) {
    both_see_the_bytes(1);
}

Test(ipc, the_driver_refuses, .timeout = 60) {
    other_process_t other = other_process_start("exporter", 0, SOCK_STREAM);
    message_t messages[BLOCKS];
    berm_addr_t addr = 7;
    messages_receive(&other, messages);
    begin(0);
    cr_assert(simcuda_fault_nth("cuIpcOpenMemHandle", 1, 1, 2) == 0);
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_ipc_open(messages[0].handle, 0, 0, &addr));
    cr_assert(addr == 0);
    EXPECT(BERM_OK, berm_ipc_open(messages[0].handle, 0, messages[0].offset_bytes, &addr));
    cr_assert(simcuda_fault_nth("cuCtxSynchronize", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_ipc_close(addr));
    cr_assert(simcuda_fault_nth("cuIpcCloseMemHandle", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_ipc_close(addr));
    cr_assert(at(addr)[0] == 1, "it is open still");
    at(addr)[5] = 7;
    EXPECT(BERM_OK, berm_ipc_open(messages[1].handle, 0, messages[1].offset_bytes, &addr));
    at(addr)[5] = 7;
    cr_assert(simcuda_fault_nth("cuIpcCloseMemHandle", 1, 1, 999) == 0);
    other_process_tell(other.socket_fd);
    other_process_hear(other.socket_fd);
    EXPECT(BERM_OK, berm_shutdown(NULL)); // which closes what is open
    BERM_TEST_END();
    other_finish(&other);
}

Test(ipc, a_close_breaks_no_capture, .timeout = 60) {
    other_process_t other = other_process_start("exporter", 0, SOCK_STREAM);
    message_t messages[BLOCKS];
    berm_addr_t addrs[BLOCKS];
    messages_receive(&other, messages);
    begin(0);
    void *stream = heap_stream_create();
    heap_free(heap_alloc(BLOCK_BYTES, stream), stream); // berm has seen it
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(BERM_OK, berm_ipc_open(messages[i].handle, 0, messages[i].offset_bytes, &addrs[i]));
        at(addrs[i])[5] = 7;
    }
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    EXPECT(BERM_OK, berm_ipc_close(addrs[0])); // the other address keeps the handle open
    EXPECT(BERM_ERROR_CAPTURE, berm_ipc_close(addrs[1]));
    cr_assert(heap_capture_is_whole(stream) && simcuda_calls("cuIpcCloseMemHandle") == 0);
    heap_capture_drop(stream);
    EXPECT(BERM_OK, berm_ipc_close(addrs[1]));
    cr_assert(simcuda_calls("cuIpcCloseMemHandle") == 1);
    other_process_tell(other.socket_fd);
    other_process_hear(other.socket_fd);
    BERM_TEST_END();
    other_finish(&other);
}

// What a stop cannot close, since a capture goes on, is closed by the next run: the driver would
// not open it twice.
Test(ipc, a_stop_in_a_capture_forgets_nothing, .timeout = 60) {
    other_process_t other = other_process_start("exporter", 0, SOCK_STREAM);
    message_t messages[BLOCKS];
    berm_addr_t addr, again;
    messages_receive(&other, messages);
    begin(0);
    void *stream = heap_stream_create();
    heap_free(heap_alloc(BLOCK_BYTES, stream), stream); // berm has seen it
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    EXPECT(BERM_OK, berm_ipc_open(messages[0].handle, 0, messages[0].offset_bytes, &addr));
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    EXPECT(BERM_OK, berm_shutdown(NULL));
    cr_assert(heap_capture_is_whole(stream) && simcuda_calls("cuIpcCloseMemHandle") == 0);
    EXPECT(BERM_OK, berm_init(heap_fixture_conf("backing:plain")));
    EXPECT(BERM_OK, berm_ipc_open(messages[0].handle, 0, messages[0].offset_bytes, &again));
    cr_assert(again == addr, "it is open still");
    EXPECT(BERM_OK, berm_shutdown(NULL)); // once more
    heap_capture_drop(stream);
    EXPECT(BERM_OK, berm_init(heap_fixture_conf("backing:plain")));
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(BERM_OK, berm_ipc_open(messages[i].handle, 0, messages[i].offset_bytes, &addr));
        at(addr)[5] = 7;
    }
    EXPECT(BERM_OK, berm_shutdown(NULL));
    cr_assert(simcuda_calls("cuIpcOpenMemHandle") == 1);
    cr_assert(simcuda_calls("cuIpcCloseMemHandle") == 1);
    other_process_tell(other.socket_fd);
    other_process_hear(other.socket_fd);
    BERM_TEST_END();
    other_finish(&other);
}

Test(ipc, bad_arguments) {
    message_t message = {.offset_bytes = 7};
    berm_addr_t addr = 7;
    begin(0);
    berm_addr_t block = heap_alloc(BLOCK_BYTES, NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_ipc_export(block, NULL, &message.offset_bytes));
    EXPECT(BERM_ERROR_ARGUMENT, berm_ipc_export(block, message.handle, NULL));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_ipc_export(512, message.handle, &message.offset_bytes));
    cr_assert(message.offset_bytes == 0);
    EXPECT(BERM_ERROR_ADDRESS_INTERIOR,
           berm_ipc_export(block + 512, message.handle, &message.offset_bytes));
    EXPECT(BERM_ERROR_ARGUMENT, berm_ipc_open(NULL, 0, 0, &addr));
    EXPECT(BERM_ERROR_ARGUMENT, berm_ipc_open(message.handle, 0, 0, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_ipc_open(message.handle, 1, 0, &addr));
    EXPECT(BERM_ERROR_IPC_HANDLE, berm_ipc_open(message.handle, 0, 0, &addr));
    cr_assert(addr == 0);
    EXPECT(BERM_ERROR_NOT_IMPORTED, berm_ipc_close(block));
    cr_assert(simcuda_fault_nth("cuIpcGetMemHandle", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_ipc_export(block, message.handle, &message.offset_bytes));
    EXPECT(BERM_OK, berm_ipc_export(block, message.handle, &message.offset_bytes));
    EXPECT(BERM_ERROR_IPC_OWN, berm_ipc_open(message.handle, 0, 0, &addr));
    heap_free(block, NULL);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_ipc_export(block, message.handle, &message.offset_bytes));
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_ipc_export(block, message.handle, &message.offset_bytes));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_ipc_open(message.handle, 0, 0, &addr));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_ipc_close(block));
}

Test(ipc, mapped_memory_has_no_such_handle) {
    message_t message;
    heap_fixture_begin(NULL);
    berm_addr_t block = heap_alloc(BLOCK_BYTES, NULL);
    EXPECT(BERM_ERROR_NOT_EXPORTABLE,
           berm_ipc_export(block, message.handle, &message.offset_bytes));
    EXPECT_MESSAGE("plain");
    BERM_TEST_END();
}
