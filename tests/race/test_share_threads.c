// SPDX-License-Identifier: Apache-2.0
// Threads that export, import, close, pass blocks by socket and change peers, beside threads that
// allocate and free, and one that looks at everything. Meaningful under TSan; without it, the audit
// and both ledgers still have to agree at the end.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "berm_introspect.h"
#include "berm_share.h"
#include "tests/support/exportable.h"
#include "tests/support/heap_fixture.h"
#include "tests/support/raw_share.h"

#define MIB ((uint64_t)1 << 20)

enum {
    SHARERS = 2,
    WORKERS = 2,
    OPERATIONS = 1500,
    STREAMS = 2
};

static void *streams[STREAMS];
static atomic_bool is_done;
static int raw;

static void block_pass(int sockets[2], berm_addr_t block, void *stream) {
    berm_addr_t addr = 0;
    uint64_t size_bytes = 0;
    HEAP_INSIST(berm_share_send(sockets[0], block) == BERM_OK);
    HEAP_INSIST(berm_share_receive(sockets[1], 0, &addr, &size_bytes) == BERM_OK);
    HEAP_INSIST(berm_free(addr, 0, stream) == BERM_ERROR_ADDRESS_IMPORTED);
    HEAP_INSIST(berm_import_close(addr, stream) == BERM_OK);
    HEAP_INSIST(berm_import_close(addr, stream) == BERM_ERROR_NOT_IMPORTED);
}

static void *sharer(void *argument) {
    berm_rng_t rng;
    int sockets[2];
    berm__rng_seed(&rng, (uint64_t)(uintptr_t)argument);
    HEAP_INSIST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    for (int i = 0; i < OPERATIONS; i++) {
        void *stream = streams[berm__rng_below(&rng, STREAMS)];
        uint64_t size_bytes = 0;
        berm_status_t status;
        int fd = -1;
        berm_addr_t addr = 0;
        berm_addr_t block = exportable_alloc((1 + berm__rng_below(&rng, 3)) * MIB, stream, &status);
        if (status != BERM_OK)
            continue;
        if (berm__rng_below(&rng, 2) == 0)
            HEAP_INSIST(berm_export(block, &fd, &size_bytes) == BERM_OK && close(fd) == 0);
        if (berm__rng_below(&rng, 2) == 0)
            block_pass(sockets, block, stream);
        if (berm_import(raw, 2 * MIB, 0, &addr) == BERM_OK)
            HEAP_INSIST(berm_import_close(addr, BERM_STREAM_NONE) == BERM_OK);
        stream = berm__rng_below(&rng, 4) == 0 ? BERM_STREAM_NONE : stream;
        HEAP_INSIST(berm_free(block, 0, stream) == BERM_OK);
    }
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    return NULL;
}

static void *worker(void *argument) {
    berm_rng_t rng;
    berm_addr_t blocks[16] = {0};
    berm__rng_seed(&rng, (uint64_t)(uintptr_t)argument);
    for (int i = 0; i < 4 * OPERATIONS; i++) {
        berm_addr_t *block = &blocks[berm__rng_below(&rng, 16)];
        void *stream = streams[berm__rng_below(&rng, STREAMS)];
        if (*block != 0)
            HEAP_INSIST(berm_free(*block, 0, stream) == BERM_OK);
        *block = 0;
        (void)!berm_alloc(1 + berm__rng_below(&rng, 3 * MIB), 0, stream, block);
    }
    for (int i = 0; i < 16; i++)
        HEAP_INSIST(berm_free(blocks[i], 0, streams[0]) == BERM_OK);
    return NULL;
}

static void text_drop(void *context, const char *text, size_t length) {
    (void)text;
    *(size_t *)context += length;
}

static void *watcher(void *argument) {
    (void)argument;
    while (!atomic_load(&is_done)) {
        berm_stats_t stats = {.size = sizeof stats};
        berm_whatis_t whatis = {.size = sizeof whatis};
        size_t written = 0;
        HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK);
        HEAP_INSIST(berm_whatis((berm_addr_t)1 << 40, &whatis) == BERM_OK);
        HEAP_INSIST(berm_audit(NULL) == BERM_OK);
        HEAP_INSIST(berm_snapshot_write(text_drop, &written) == BERM_OK && written > 0);
        HEAP_INSIST(berm_peer_enable(0, 1) == BERM_OK);
        HEAP_INSIST(berm_peer_disable(0, 1) == BERM_OK);
        HEAP_INSIST(berm_trim(0, 8 * MIB, NULL) == BERM_OK);
    }
    return NULL;
}

int main(void) {
    pthread_t watching, threads[SHARERS + WORKERS];
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1, .is_lenient = 1, .devices = 2});
    for (int i = 0; i < STREAMS; i++)
        streams[i] = heap_stream_create();
    raw = raw_export(2 * MIB, 0);
    HEAP_INSIST(pthread_create(&watching, NULL, watcher, NULL) == 0);
    for (int i = 0; i < SHARERS + WORKERS; i++)
        HEAP_INSIST(pthread_create(&threads[i], NULL, i < SHARERS ? sharer : worker,
                                   (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < SHARERS + WORKERS; i++)
        HEAP_INSIST(pthread_join(threads[i], NULL) == 0);
    atomic_store(&is_done, true);
    HEAP_INSIST(pthread_join(watching, NULL) == 0);
    HEAP_INSIST(close(raw) == 0);
    HEAP_INSIST(berm_trim(0, 0, NULL) == BERM_OK);
    berm_stats_t stats = {.size = sizeof stats};
    HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK);
    HEAP_INSIST(stats.exported_bytes == 0 && stats.imports == 0);
    BERM_TEST_END();
    printf("1 passed, 0 failed\n");
    return 0;
}
