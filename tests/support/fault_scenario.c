// SPDX-License-Identifier: Apache-2.0
// See fault_scenario.h. Streams are made before anything can fail; the modelled work obeys the
// rules of berm.h, on a strict device, so that a page that moves too early because of a failure
// aborts.
#include "tests/support/fault_scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "berm_share.h"
#include "tests/support/capture.h"
#include "tests/support/exportable.h"
#include "tests/support/peer_device.h"
#include "tests/support/periodic.h"
#include "tests/support/raw_share.h"

enum {
    STREAMS = 3,
    REPLAY_EVENTS = 2000,
    REPLAY_BLOCKS = 48
};

static struct {
    const fault_scenario_t *scenario;
    bool (*allows)(berm_status_t status);
    fault_outcome_t *outcome;
    void *streams[STREAMS];
} run;

// Notes a result of berm; true if it was BERM_OK.
static bool call_note(berm_status_t status, const char *call) {
    if (status == BERM_OK)
        return true;
    run.outcome->failed_calls++;
    run.outcome->seen[status]++;
    if (!run.allows(status)) {
        (void)fprintf(stderr, "%s: %s gives %s: %s\n", run.scenario->name, call,
                      berm_status_name(status), berm_error_message());
        abort();
    }
    return false;
}

// One failure is all there is: a second try should do.
#define TRY(call)                                                                                  \
    (call_note((call), #call) || call_note((call), #call) || (run.outcome->failed_again++, false))

typedef struct fault_block {
    berm_addr_t addr; // 0: none
    uint64_t size_bytes;
    void *owner;
} fault_block_t;

static fault_block_t block_alloc(uint64_t size_bytes, void *stream) {
    fault_block_t block = {.size_bytes = size_bytes, .owner = stream};
    if (TRY(berm_alloc(size_bytes, 0, stream, &block.addr)))
        heap_use(stream != BERM_STREAM_NONE ? stream : run.streams[0], block.addr, size_bytes,
                 50000);
    else
        HEAP_INSIST(block.addr == 0);
    return block;
}

static void block_free(fault_block_t *block, void *stream) {
    if (block->addr != 0)
        (void)TRY(berm_free(block->addr, BERM_DEVICE_ANY, stream));
    block->addr = 0;
}

static void block_use_on(const fault_block_t *block, void *stream) {
    if (block->addr == 0)
        return;
    heap_stream_follow(stream, block->owner);
    heap_use(stream, block->addr, block->size_bytes, 50000);
}

static void scenario_first_use(void) {
    fault_block_t block = block_alloc(1000, run.streams[0]);
    block_free(&block, run.streams[0]);
}

static void scenario_growth(void) {
    static const uint64_t sizes[] = {1000,        70000,        BERM_MIB(1),
                                     BERM_MIB(5), BERM_MIB(40), BERM_MIB(90)};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(sizes); i++)
        (void)block_alloc(sizes[i], run.streams[i % 2]);
}

// Blocks of 6 MiB fill the device; every other one is freed, and 20 MiB need the pages of four.
static void scenario_remap(void) {
    fault_block_t blocks[10];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        blocks[i] = block_alloc(BERM_MIB(6), run.streams[0]);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i += 2)
        block_free(&blocks[i], run.streams[0]);
    fault_block_t large = block_alloc(BERM_MIB(20), run.streams[0]);
    block_free(&blocks[1], run.streams[0]);
    block_free(&blocks[3], run.streams[0]);
    fault_block_t other = block_alloc(BERM_MIB(10), run.streams[1]);
    block_free(&large, run.streams[0]);
    block_free(&other, run.streams[1]);
    (void)block_alloc(BERM_MIB(30), BERM_STREAM_NONE);
}

static void scenario_streams(void) {
    fault_block_t blocks[6];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        blocks[i] = block_alloc(i % 2 == 0 ? BERM_MIB(3) : 2000, run.streams[0]);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        block_use_on(&blocks[i], run.streams[1]);
    for (size_t i = 0; i < 2; i++) {
        bool is_recorded =
            blocks[i].addr != 0 && TRY(berm_record_stream(blocks[i].addr, run.streams[1]));
        block_free(&blocks[i], is_recorded ? run.streams[0] : run.streams[1]);
    }
    for (size_t i = 2; i < 4; i++)
        block_free(&blocks[i], run.streams[1]);
    for (size_t i = 4; i < BERM_ARRAY_LENGTH(blocks); i++)
        block_free(&blocks[i], BERM_STREAM_NONE);
    fault_block_t again[4];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(again); i++)
        again[i] = block_alloc(i % 2 == 0 ? BERM_MIB(3) : 2000, run.streams[0]);
    simcuda_advance_ns(1000000);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(again); i++)
        block_free(&again[i], run.streams[2]);
    uint64_t size_bytes;
    (void)TRY(berm_largest_free_read(0, run.streams[0], &size_bytes));
    (void)TRY(berm_largest_obtainable_read(0, run.streams[0], &size_bytes));
}

static void scenario_giving_back(void) {
    fault_block_t blocks[4];
    uint64_t released_bytes;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        blocks[i] = block_alloc(BERM_MIB(9), run.streams[i % 2]);
    fault_block_t large = block_alloc(BERM_MIB(64), run.streams[2]);
    block_free(&blocks[0], run.streams[0]);
    block_free(&blocks[1], BERM_STREAM_NONE);
    (void)TRY(berm_trim(0, BERM_MIB(4), &released_bytes));
    block_free(&large, run.streams[2]);
    (void)TRY(berm_stream_retire(0, run.streams[2]));
    fault_block_t heir = block_alloc(BERM_MIB(50), run.streams[0]);
    block_free(&heir, run.streams[0]);
    (void)TRY(berm_trim(0, 0, &released_bytes));
    (void)TRY(berm_limit_set(0, BERM_MIB(40)));
    (void)block_alloc(BERM_MIB(2), run.streams[1]);
}

static berm_status_t block_export(uint64_t size_bytes, fault_block_t *block) {
    berm_status_t status;
    *block = (fault_block_t){.size_bytes = size_bytes, .owner = run.streams[0]};
    block->addr = exportable_alloc(size_bytes, run.streams[0], &status);
    if (status == BERM_OK)
        heap_use(run.streams[0], block->addr, size_bytes, 50000);
    return status;
}

static void import_use(berm_addr_t addr, void *stream) {
    heap_use(stream, addr, BERM_MIB(2), 50000);
    (void)TRY(berm_import_close(addr, stream));
}

// A message that was received is gone, also where the import failed.
static void block_pass(int sockets[2], const fault_block_t *block) {
    berm_addr_t addr = 0;
    for (int attempt = 0; attempt < 2 && addr == 0; attempt++) {
        if (!TRY(berm_share_send(sockets[0], block->addr)))
            return;
        (void)call_note(berm_share_receive(sockets[1], 0, &addr, NULL), "berm_share_receive");
    }
    run.outcome->failed_again += addr == 0;
    if (addr == 0)
        return;
    heap_stream_follow(run.streams[1], run.streams[0]);
    import_use(addr, run.streams[1]);
}

static void scenario_share(void) {
    fault_block_t blocks[3];
    int sockets[2], fd = -1, raw = raw_export(BERM_MIB(4), 0);
    uint64_t size_bytes;
    berm_addr_t addr;
    HEAP_INSIST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        (void)TRY(block_export(BERM_MIB(2) << i, &blocks[i]));
    if (TRY(berm_import(raw, BERM_MIB(4), 0, &addr)))
        import_use(addr, run.streams[1]);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++) {
        if (blocks[i].addr != 0 && TRY(berm_export(blocks[i].addr, &fd, &size_bytes)))
            HEAP_INSIST(close(fd) == 0);
        if (blocks[i].addr != 0)
            block_pass(sockets, &blocks[i]);
    }
    block_free(&blocks[0], run.streams[0]);
    block_free(&blocks[1], run.streams[1]);
    block_free(&blocks[2], BERM_STREAM_NONE);
    (void)TRY(block_export(BERM_MIB(4), &blocks[1]));
    (void)TRY(berm_trim(0, 0, &size_bytes));
    for (int i = 0; i < 2; i++)
        HEAP_INSIST(close(sockets[i]) == 0);
    HEAP_INSIST(close(raw) == 0);
}

// Blocks of the default pool, each in several handles.
static void scenario_shareable(void) {
    fault_block_t blocks[3];
    int sockets[2];
    HEAP_INSIST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++) {
        blocks[i] = block_alloc(BERM_MIB(3) * (i + 1), run.streams[0]);
        // A driver that fails to say that it exports by descriptor does not.
        if (blocks[i].addr == 0 || berm_share_check(blocks[i].addr) == BERM_ERROR_NOT_EXPORTABLE)
            continue;
        berm_addr_t addr = 0;
        // A part that could not be sent or mapped leaves the socket out of step: a new one is made.
        for (int attempt = 0; attempt < 2 && addr == 0; attempt++) {
            (void)call_note(berm_share_send(sockets[0], blocks[i].addr), "berm_share_send");
            HEAP_INSIST(shutdown(sockets[0], SHUT_WR) == 0);
            berm_status_t status = berm_share_receive(sockets[1], 0, &addr, NULL);
            if (status != BERM_ERROR_DISCONNECTED)
                (void)call_note(status, "berm_share_receive");
            HEAP_INSIST(close(sockets[0]) == 0 && close(sockets[1]) == 0);
            HEAP_INSIST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
        }
        run.outcome->failed_again += addr == 0;
        heap_stream_follow(run.streams[1], run.streams[0]);
        if (addr != 0)
            import_use(addr, run.streams[1]);
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        block_free(&blocks[i], run.streams[1]);
    for (int i = 0; i < 2; i++)
        HEAP_INSIST(close(sockets[i]) == 0);
}

// Pages of blocks that a peer uses move, before and after it is let in and shut out.
static void scenario_peers(void) {
    fault_block_t blocks[6];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        blocks[i] = block_alloc(BERM_MIB(6), run.streams[0]);
    block_free(&blocks[1], run.streams[0]);
    block_free(&blocks[3], run.streams[0]);
    bool is_open = TRY(berm_peer_enable(0, 1));
    fault_block_t large = block_alloc(BERM_MIB(20), run.streams[0]);
    for (size_t i = 0; is_open && i < BERM_ARRAY_LENGTH(blocks); i++) {
        if (blocks[i].addr == 0)
            continue;
        peer_follow(1, run.streams[0]);
        peer_use(1, blocks[i].addr, blocks[i].size_bytes, 50000);
        bool is_recorded = TRY(berm_record_stream(blocks[i].addr, peer_stream(1)));
        block_free(&blocks[i], is_recorded ? run.streams[0] : peer_stream(1));
    }
    block_free(&large, run.streams[0]);
    fault_block_t again = block_alloc(BERM_MIB(40), run.streams[1]);
    if (is_open)
        (void)TRY(berm_peer_disable(0, 1));
    block_free(&again, run.streams[1]);
    (void)block_alloc(BERM_MIB(10), run.streams[1]);
    peer_devices_end();
}

static void scenario_decay(void) {
    fault_block_t blocks[4];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        blocks[i] = block_alloc(i == 3 ? BERM_MIB(20) : BERM_MIB(5), run.streams[i % 2]);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++)
        block_free(&blocks[i], run.streams[0]);
    for (int i = 0; i < 3; i++) {
        simcuda_advance_ns(1000000);
        (void)TRY(berm_decay_tick(0));
    }
    (void)block_alloc(BERM_MIB(12), run.streams[1]); // a miss, which ticks
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)addr;
    (void)size_bytes;
    ++*(unsigned *)arg;
}

// Freed pinned blocks are in the way of a request, which has them told.
static void scenario_pins(void) {
    static unsigned told;
    fault_block_t blocks[4];
    bool is_pinned = false; // the last
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(blocks); i++) {
        blocks[i] = block_alloc(i == 0 ? 3000 : BERM_MIB(14), run.streams[i / 3]);
        is_pinned = blocks[i].addr != 0 && TRY(berm_pin(blocks[i].addr, pin_told, &told));
    }
    for (size_t i = 0; i < 3; i++)
        block_free(&blocks[i], run.streams[0]);
    (void)block_alloc(BERM_MIB(40), run.streams[2]);
    if (is_pinned)
        (void)TRY(berm_unpin(blocks[3].addr, pin_told, &told));
}

static fault_block_t block_alloc_from(berm_pool_id_t id, uint64_t size_bytes, void *stream) {
    fault_block_t block = {.size_bytes = size_bytes, .owner = stream};
    if (TRY(berm_alloc_from(id, size_bytes, 512, 0, stream, &block.addr)))
        heap_use(stream, block.addr, size_bytes, 50000);
    return block;
}

static bool pool_make(berm_pool_id_t id, uint32_t traits) {
    berm_pool_options_t options = {.size = sizeof options, .traits = traits};
    return TRY(berm_pool_create(0, id, &options));
}

// Pools of each kind, filled, emptied in part, and released before their last block.
static void scenario_pools(void) {
    static const uint32_t traits[] = {0,
                                      BERM_POOL_PRIVATE,
                                      BERM_POOL_EXPORTABLE,
                                      BERM_POOL_PINNED | BERM_POOL_RDMA,
                                      BERM_POOL_PLAIN,
                                      BERM_POOL_NO_SPLIT};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(traits); i++) {
        berm_pool_id_t id = {0, i + 1};
        if (!pool_make(id, traits[i]))
            continue;
        fault_block_t a = block_alloc_from(id, BERM_MIB(9), run.streams[0]);
        fault_block_t b = block_alloc_from(id, 3000, run.streams[1]);
        block_free(&a, run.streams[0]);
        a = block_alloc_from(id, BERM_MIB(12), run.streams[0]);
        (void)block_alloc(BERM_MIB(20), run.streams[2]);
        block_free(&a, run.streams[1]);
        bool is_released = TRY(berm_pool_release(0, id));
        fault_block_t large = block_alloc(BERM_MIB(10), run.streams[2]);
        block_free(&large, run.streams[2]);
        block_free(&b, run.streams[1]);
        uint64_t released_bytes;
        if (is_released && i == 1)
            (void)TRY(berm_trim(0, 0, &released_bytes));
    }
}

// A block grown with new pages, with its own free ones, and with another pool's.
static void scenario_grow(void) {
    const berm_pool_id_t id = {0, 9};
    if (!pool_make(id, BERM_POOL_RESIZABLE))
        return;
    fault_block_t a = block_alloc_from(id, BERM_MIB(1), run.streams[0]);
    fault_block_t b = block_alloc_from(id, BERM_MIB(5), run.streams[1]);
    for (uint64_t size_bytes = BERM_MIB(3); size_bytes <= BERM_MIB(24); size_bytes += BERM_MIB(7)) {
        if (a.addr != 0 && TRY(berm_block_grow(a.addr, size_bytes)))
            a.size_bytes = size_bytes;
        if (a.addr != 0)
            heap_use(run.streams[0], a.addr, a.size_bytes, 50000);
    }
    block_free(&a, run.streams[0]);
    a = block_alloc_from(id, BERM_MIB(2), run.streams[0]);
    fault_block_t usual = block_alloc(BERM_MIB(30), run.streams[2]);
    block_free(&usual, run.streams[2]);
    if (a.addr != 0 && TRY(berm_block_grow(a.addr, BERM_MIB(40))))
        a.size_bytes = BERM_MIB(40);
    block_free(&b, run.streams[1]);
    block_free(&a, run.streams[0]);
    (void)TRY(berm_pool_release(0, id));
}

static berm_addr_t source_alloc(void *context, uint64_t size_bytes, int device, void *stream) {
    (void)device, (void)stream;
    berm_addr_t addr = heap_driver_alloc(size_bytes);
    *(uint64_t *)context += addr != 0 ? size_bytes : 0;
    return addr;
}

static void source_free(void *context, berm_addr_t addr, uint64_t size_bytes, int device,
                        void *stream) {
    (void)device, (void)stream;
    *(uint64_t *)context -= size_bytes;
    heap_driver_free(addr);
}

// A pool with a source: grown, short, trimmed, and released before its last block.
static void scenario_source(void) {
    static uint64_t held_bytes;
    const berm_pool_id_t id = {0, 8};
    const berm_pool_options_t options = {
        .size = sizeof options,
        .source = {.alloc = source_alloc, .free = source_free, .context = &held_bytes}};
    held_bytes = 0;
    if (!TRY(berm_pool_create(0, id, &options)))
        return;
    fault_block_t a = block_alloc_from(id, 3000, run.streams[0]);
    fault_block_t b = block_alloc_from(id, BERM_MIB(30), run.streams[1]);
    block_free(&b, run.streams[0]);
    b = block_alloc_from(id, BERM_MIB(40), run.streams[1]); // the thirty go back
    uint64_t released_bytes;
    block_free(&b, run.streams[1]);
    (void)TRY(berm_trim(0, 0, &released_bytes));
    b = block_alloc_from(id, BERM_MIB(5), run.streams[1]);
    (void)TRY(berm_pool_release(0, id));
    block_free(&b, run.streams[1]);
    block_free(&a, run.streams[0]);
    HEAP_INSIST(held_bytes <= BERM_MIB(64));
}

// The state of a private pool is taken, other blocks come, and it is restored twice.
static void scenario_state(void) {
    const berm_pool_id_t id = {0, 9};
    berm_pool_state_t *state = NULL;
    if (!pool_make(id, BERM_POOL_PRIVATE))
        return;
    fault_block_t a = block_alloc_from(id, BERM_MIB(9), run.streams[0]);
    fault_block_t b = block_alloc_from(id, 3000, run.streams[0]);
    bool is_taken = TRY(berm_pool_state_take(0, id, &state));
    for (int i = 0; i < 2 && is_taken; i++) {
        fault_block_t old[2] = {a, b};
        block_free(&old[0], run.streams[1]); // awaited
        block_free(&old[1], run.streams[0]);
        fault_block_t over = block_alloc_from(id, BERM_MIB(2), run.streams[0]);
        block_use_on(&over, run.streams[1]);
        if (over.addr != 0)
            (void)TRY(berm_record_stream(over.addr, run.streams[1]));
        (void)block_alloc_from(id, 20000, run.streams[0]);
        if (!TRY(berm_pool_state_restore(state, NULL, NULL, NULL)))
            break;
        block_use_on(&a, run.streams[0]);
        block_use_on(&b, run.streams[0]);
    }
    berm_pool_state_destroy(state);
    (void)TRY(berm_pool_release(0, id));
}

static bool block_give(void *arg, int device, uint64_t needed_bytes) {
    fault_block_t *kept = arg;
    (void)needed_bytes;
    if (kept->addr == 0 || berm_free(kept->addr, device, kept->owner) != BERM_OK)
        return false;
    kept->addr = 0;
    return true;
}

// The application gives a block back, and then a pool of its own serves.
static void scenario_pressure(void) {
    const berm_pool_id_t id = {0, 7};
    bool has_pool = pool_make(id, BERM_POOL_PINNED | BERM_POOL_USE_ON_OOM);
    fault_block_t lent = {0};
    if (has_pool)
        lent = block_alloc_from(id, BERM_MIB(14), run.streams[0]);
    fault_block_t kept = block_alloc(BERM_MIB(20), run.streams[0]);
    fault_block_t live = block_alloc(BERM_MIB(24), run.streams[1]);
    bool is_registered = TRY(berm_pressure_register(BERM_DEVICE_ANY, block_give, &kept));
    block_free(&lent, run.streams[0]);
    if (is_registered && live.addr != 0)
        (void)block_alloc(BERM_MIB(20), run.streams[0]);
    if (is_registered)
        (void)TRY(berm_pressure_unregister(BERM_DEVICE_ANY, block_give, &kept));
    if (has_pool)
        (void)block_alloc(BERM_MIB(12), run.streams[0]);
}

// Whatever fails, the capture is whole: the fixture aborts where its end fails.
static void scenario_capture(void) {
    const berm_pool_id_t id = {1, 0};
    fault_block_t before = block_alloc(BERM_MIB(6), run.streams[0]);
    bool has_route = TRY(berm_pool_route_begin(0, id, heap_filter_stream, run.streams[0]));
    heap_capture_begin(run.streams[0], HEAP_CAPTURE_GLOBAL);
    fault_block_t a = block_alloc(BERM_MIB(8), run.streams[0]);
    fault_block_t b = block_alloc(5000, run.streams[0]);
    fault_block_t aside = block_alloc(BERM_MIB(20), run.streams[1]);
    block_free(&a, run.streams[0]);
    block_free(&aside, BERM_STREAM_NONE);
    block_free(&before, run.streams[1]);
    a = block_alloc(BERM_MIB(8), run.streams[0]);
    fault_block_t second = block_alloc(BERM_MIB(30), run.streams[2]);
    block_free(&second, run.streams[2]);
    HEAP_INSIST(heap_capture_is_whole(run.streams[0]));
    void *graph = heap_capture_end(run.streams[0]);
    if (has_route) {
        (void)TRY(berm_pool_route_end(0, id));
        heap_graph_launch(graph, run.streams[2]);
    }
    heap_graph_destroy(graph);
    block_free(&a, run.streams[2]);
    if (has_route)
        (void)TRY(berm_pool_release(0, id));
    fault_block_t large = block_alloc(BERM_MIB(44), run.streams[1]);
    block_free(&large, run.streams[1]);
    block_free(&b, run.streams[2]);
}

static berm_status_t plan_alloc(uint64_t size_bytes, void *stream, berm_addr_t *out) {
    return TRY(berm_alloc(size_bytes, 0, stream, out)) ? BERM_OK : BERM_ERROR_STATE;
}

static void plan_free(berm_addr_t addr, void *stream) {
    (void)TRY(berm_free(addr, BERM_DEVICE_ANY, stream));
}

static void plan_follow(periodic_t *work, uint32_t periods) {
    work->alloc = plan_alloc;
    work->free = plan_free;
    for (uint64_t i = 0; i < (uint64_t)periods * work->count; i++)
        (void)periodic_step(work);
}

// Watched, planned, installed, filled and served; its pages are taken for another stream, and given
// back by a trim, and come again; then nobody follows it, and it goes.
static void plan_live(periodic_t *work) {
    static periodic_t other;
    uint64_t released_bytes;
    plan_follow(work, 7);
    periodic_free_all(work);
    fault_block_t large = block_alloc(BERM_MIB(56), run.streams[1]);
    block_free(&large, run.streams[1]);
    plan_follow(work, 1);
    (void)TRY(berm_trim(0, 0, &released_bytes));
    plan_follow(work, 1);
    periodic_init(&other, run.streams[0], 70, BERM_KIB(300), 1, 5, 2, 1);
    plan_follow(&other, 1);
    periodic_free_all(&other);
    periodic_free_all(work);
    heap_stream_synchronize(run.streams[0]);
    plan_follow(&other, 1);
    (void)TRY(berm_stream_retire(0, run.streams[0]));
}

static void scenario_plan(void) {
    static periodic_t work;
    periodic_init(&work, run.streams[0], 16, 512, 2000, 12000, 8, 10);
    plan_live(&work);
}

static void scenario_plan_alias(void) {
    static periodic_t work;
    periodic_init(&work, run.streams[0], 16, BERM_MIB(2), 1, 4, 8, 9);
    periodic_close(&work);
    plan_live(&work);
}

// A request that fails here may fail for good: the device is small.
static void replay_alloc(fault_block_t *block, uint64_t size_bytes, void *stream) {
    *block = (fault_block_t){.size_bytes = size_bytes, .owner = stream};
    berm_status_t status = berm_alloc(size_bytes, 0, stream, &block->addr);
    if (status == BERM_ERROR_OUT_OF_DEVICE_MEMORY)
        return;
    if (call_note(status, "berm_alloc"))
        heap_use(stream, block->addr, size_bytes, 20000);
}

static void scenario_replay(void) {
    fault_block_t blocks[REPLAY_BLOCKS] = {0};
    berm_rng_t rng;
    berm__rng_seed(&rng, 5);
    for (int i = 0; i < REPLAY_EVENTS; i++) {
        fault_block_t *block = &blocks[berm__rng_below(&rng, REPLAY_BLOCKS)];
        uint64_t stream = berm__rng_below(&rng, 2), kind = berm__rng_below(&rng, 100);
        uint64_t size_bytes = berm__rng_below(&rng, kind < 40 ? 20000 : BERM_MIB(6)) + 1;
        uint64_t released_bytes;
        if (kind == 0)
            (void)call_note(berm_trim(0, BERM_MIB(8), &released_bytes), "berm_trim");
        else if (block->addr == 0)
            replay_alloc(block, size_bytes, run.streams[stream]);
        else if (kind < 15)
            block_free(block, BERM_STREAM_NONE);
        else
            block_free(block, block->owner);
    }
}

// clang-format off
const fault_scenario_t fault_scenarios[] = {
    {"first use", {.memory_bytes = BERM_MIB(64)}, scenario_first_use},
    {"growth", {.memory_bytes = BERM_MIB(256)}, scenario_growth},
    {"remap", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:4M"}, scenario_remap},
    {"remap, alias", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:4M,remap:alias"}, scenario_remap},
    {"giving back, alias", {.memory_bytes = BERM_MIB(192), .berm = "growth_handle:2M,remap:alias"}, scenario_giving_back},
    {"streams", {.memory_bytes = BERM_MIB(64)}, scenario_streams},
    {"streams, old driver", {.memory_bytes = BERM_MIB(64), .lacks_ctx_event = 1}, scenario_streams},
    {"giving back", {.memory_bytes = BERM_MIB(192)}, scenario_giving_back},
    {"share", {.memory_bytes = BERM_MIB(64), .berm = "backing:vmm"}, scenario_share},
    {"shareable", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:4M,shareable:on,backing:vmm"}, scenario_shareable},
    {"peers", {.memory_bytes = BERM_MIB(64), .devices = 2, .berm = "headroom:0,backing:vmm"}, scenario_peers},
    {"decay", {.memory_bytes = BERM_MIB(128), .berm = "decay_ms:0"}, scenario_decay},
    {"pins", {.memory_bytes = BERM_MIB(64)}, scenario_pins},
    {"plain, first use", {.memory_bytes = BERM_MIB(64), .lacks_vmm = 1}, scenario_first_use},
    {"plain", {.memory_bytes = BERM_MIB(96), .berm = "backing:plain"}, scenario_remap},
    {"plain, streams", {.memory_bytes = BERM_MIB(64), .berm = "backing:plain"}, scenario_streams},
    {"plain, giving back", {.memory_bytes = BERM_MIB(192), .berm = "backing:plain"}, scenario_giving_back},
    {"plain, decay", {.memory_bytes = BERM_MIB(128), .berm = "backing:plain,decay_ms:0"}, scenario_decay},
    {"plain, pins", {.memory_bytes = BERM_MIB(64), .berm = "backing:plain"}, scenario_pins},
    {"pools", {.memory_bytes = BERM_MIB(192)}, scenario_pools},
    {"pools, old driver", {.memory_bytes = BERM_MIB(192), .lacks_ctx_event = 1}, scenario_pools},
    {"grow", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:4M"}, scenario_grow},
    {"source", {.memory_bytes = BERM_MIB(64)}, scenario_source},
    {"state", {.memory_bytes = BERM_MIB(64)}, scenario_state},
    {"pressure", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:2M"}, scenario_pressure},
    {"capture", {.memory_bytes = BERM_MIB(160)}, scenario_capture},
    {"capture, old driver", {.memory_bytes = BERM_MIB(160), .lacks_ctx_event = 1}, scenario_capture},
    {"plan", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:2M,headroom:12"}, scenario_plan},
    {"plan, alias", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:2M,headroom:1,remap:alias"}, scenario_plan_alias},
    {"plan, alias, edits synchronize", {.memory_bytes = BERM_MIB(64), .berm = "growth_handle:2M,headroom:1,remap:alias,sync_edits:on"}, scenario_plan_alias},
    {"replay", {.memory_bytes = BERM_MIB(96), .berm = "growth_handle:8M"}, scenario_replay},
};
// clang-format on
const unsigned fault_scenario_count = BERM_ARRAY_LENGTH(fault_scenarios);

void fault_scenario_run(const fault_scenario_t *scenario, void (*arm)(void *context), void *context,
                        bool (*allows)(berm_status_t status), fault_outcome_t *outcome) {
    heap_fixture_options_t options = scenario->options;
    options.stays_stopped = 1;
    memset(outcome, 0, sizeof *outcome);
    run.scenario = scenario;
    run.allows = allows;
    run.outcome = outcome;
    heap_fixture_begin(&options);
    for (unsigned i = 0; i < STREAMS; i++)
        run.streams[i] = heap_stream_create();
    arm(context);
    if (TRY(berm_init(heap_fixture_conf(options.berm))))
        scenario->run();
    berm_stats_t stats = {.size = sizeof stats};
    if (berm_stats_read(0, &stats) == BERM_OK) {
        outcome->poisoned_bytes = stats.poisoned_bytes;
        outcome->planned_requests = stats.planned_requests;
    }
    BERM_TEST_END();
}
