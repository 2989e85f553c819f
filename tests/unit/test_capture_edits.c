// SPDX-License-Identifier: Apache-2.0
// Captures where each edit of mappings waits for the device (sync_edits), which would break them:
// what would edit waits for the end or is refused, whoever asks. The device is strict.
#include <criterion/criterion.h>
#include <unistd.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "berm_share.h"
#include "host/mem.h"
#include "tests/support/capture.h"
#include "tests/support/exportable.h"
#include "tests/support/heap_inside.h"
#include "tests/support/peer_device.h"
#include "tests/support/raw_share.h"

static void *captured, *other;

static void begin(const char *conf, int devices) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = devices, .berm = conf});
    captured = heap_stream_create();
    other = heap_stream_create();
    heap_free(heap_alloc(BERM_MIB(2), captured), captured); // berm has seen it
    heap_context_synchronize();
}

static void capture_begin(void) {
    heap_capture_begin(captured, HEAP_CAPTURE_GLOBAL);
}

static void capture_end(void) {
    cr_assert(heap_capture_is_whole(captured));
    BERM_TEST_CHECK();
    heap_capture_drop(captured);
    cr_assert(heap_device()->poisoned_bytes == 0);
}

static berm_address_kind_t kind_of(berm_addr_t addr) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    cr_assert(berm_whatis(addr, &whatis) == BERM_OK);
    return whatis.kind;
}

static void expect(berm_status_t want, berm_status_t got) {
    cr_assert(got == want, "%s, not %s (%s)", berm_status_name(got), berm_status_name(want),
              berm_error_message());
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)addr;
    (void)size_bytes;
    ++*(unsigned *)arg;
}

// A block that other processes may have, on `other`.
static berm_addr_t exported_make(void) {
    uint64_t size_bytes;
    int fd;
    berm_addr_t addr = exportable_alloc(BERM_MIB(2), other, NULL);
    expect(BERM_OK, berm_export(addr, &fd, &size_bytes));
    cr_assert(close(fd) == 0);
    return addr;
}

// Its unpin ends the pin, and the block stays until it can be unmapped.
Test(capture_edits, unpin_of_an_exported_block) {
    unsigned told = 0;
    begin("sync_edits:on", 1);
    berm_addr_t addr = exported_make();
    expect(BERM_OK, berm_pin(addr, pin_told, &told));
    heap_free(addr, other);
    heap_context_synchronize();
    expect(BERM_OK, berm_trim(0, 0, NULL)); // the free is done with
    cr_assert(kind_of(addr) == BERM_ADDRESS_HELD);
    capture_begin();
    uint64_t unmaps = simcuda_calls("cuMemUnmap");
    expect(BERM_OK, berm_unpin(addr, pin_told, &told));
    expect(BERM_ERROR_ADDRESS_UNKNOWN, berm_unpin(addr, pin_told, &told));
    cr_assert(kind_of(addr) == BERM_ADDRESS_HELD && simcuda_calls("cuMemUnmap") == unmaps);
    capture_end();
    expect(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(kind_of(addr) == BERM_ADDRESS_UNMAPPED && told == 0);
    BERM_TEST_END_INSIDE();
}

// The same without sync_edits: at once.
Test(capture_edits, unpin_without_waits) {
    unsigned told = 0;
    begin("sync_edits:off", 1);
    berm_addr_t addr = exported_make();
    expect(BERM_OK, berm_pin(addr, pin_told, &told));
    heap_free(addr, other);
    heap_context_synchronize();
    expect(BERM_OK, berm_trim(0, 0, NULL));
    capture_begin();
    expect(BERM_OK, berm_unpin(addr, pin_told, &told));
    cr_assert(kind_of(addr) == BERM_ADDRESS_UNMAPPED);
    capture_end();
    BERM_TEST_END_INSIDE();
}

Test(capture_edits, imports) {
    berm_addr_t kept, addr = 7;
    begin("sync_edits:on", 1);
    int fd = raw_export(BERM_MIB(4), 0), second = raw_export(BERM_MIB(2), 0);
    expect(BERM_OK, berm_import(fd, BERM_MIB(4), 0, &kept));
    capture_begin();
    uint64_t maps = simcuda_calls("cuMemMap"), unmaps = simcuda_calls("cuMemUnmap");
    expect(BERM_ERROR_CAPTURE, berm_import(second, BERM_MIB(2), 0, &addr));
    cr_assert(addr == 0 && simcuda_calls("cuMemMap") == maps);
    expect(BERM_ERROR_CAPTURE, berm_import_close(kept, other));
    cr_assert(simcuda_calls("cuMemUnmap") == unmaps && kind_of(kept) == BERM_ADDRESS_IMPORTED);
    capture_end();
    expect(BERM_OK, berm_import_close(kept, other));
    expect(BERM_OK, berm_import(second, BERM_MIB(2), 0, &addr));
    expect(BERM_OK, berm_import_close(addr, other));
    cr_assert(close(fd) == 0 && close(second) == 0);
    BERM_TEST_END_INSIDE();
}

Test(capture_edits, peers) {
    begin("sync_edits:on,backing:vmm", 2);
    berm_addr_t addr = heap_alloc(BERM_MIB(2), other);
    capture_begin();
    uint64_t sets = simcuda_calls("cuMemSetAccess");
    expect(BERM_ERROR_CAPTURE, berm_peer_enable(0, 1));
    cr_assert(peer_access_of(addr, 1) == 0 && simcuda_calls("cuMemSetAccess") == sets);
    capture_end();
    expect(BERM_OK, berm_peer_enable(0, 1));
    cr_assert(peer_access_of(addr, 1) == 3);
    capture_begin();
    expect(BERM_ERROR_CAPTURE, berm_peer_disable(0, 1));
    cr_assert(peer_access_of(addr, 1) == 3, "as it was");
    capture_end();
    expect(BERM_OK, berm_peer_disable(0, 1));
    cr_assert(peer_access_of(addr, 1) == 0);
    BERM_TEST_END_INSIDE();
}

// Stale addresses stay as they are, and pages that could move a second time do not.
Test(capture_edits, aliases) {
    berm_addr_t blocks[3];
    begin("sync_edits:on,remap:alias,growth_handle:2M,headroom:0,decay_ms:0", 1);
    for (int i = 0; i < 3; i++)
        blocks[i] = heap_alloc(BERM_MIB(8), other);
    heap_use(other, blocks[0], BERM_MIB(8), 1000000);
    heap_free(blocks[0], other);
    heap_use(other, blocks[2], BERM_MIB(8), 1000000);
    heap_free(blocks[2], other);
    // What is queued stays so: with sync_edits an alias is made after a wait, so it is made here
    // without.
    heap_device()->gpu.syncs_edits = false;
    berm_addr_t large = heap_alloc(BERM_MIB(12), other);
    heap_device()->gpu.syncs_edits = true;
    uint64_t stale = heap_device()->phys.stale_mappings;
    cr_assert(stale > 0);
    heap_context_synchronize();
    capture_begin();
    berm_addr_t out = 0;
    uint64_t unmaps = simcuda_calls("cuMemUnmap");
    expect(BERM_ERROR_CAPTURE, berm_alloc(BERM_MIB(40), 0, other, &out));
    expect(BERM_OK, berm_decay_tick(0));
    cr_assert(berm_trim(0, 0, NULL) == BERM_ERROR_CAPTURE);
    expect(BERM_OK, berm_stream_retire(0, other)); // of which a capture is not in the way
    cr_assert(heap_device()->phys.stale_mappings == stale && simcuda_calls("cuMemUnmap") == unmaps);
    capture_end();
    heap_free(heap_alloc(BERM_MIB(40), other), other);
    expect(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(heap_device()->phys.stale_mappings == 0);
    heap_free(large, other);
    heap_free(blocks[1], other);
    BERM_TEST_END_INSIDE();
}

// A free that finds no host memory waits instead; where a capture forbids that it fails, and the
// block is as it was.
Test(capture_edits, a_free_without_host_memory) {
    begin("sync_edits:on", 1);
    berm_addr_t block = heap_alloc(BERM_MIB(2), captured);
    capture_begin();
    berm__mem_fault_nth(1, 0);
    berm_status_t status = berm_free(block, 0, BERM_STREAM_NONE);
    berm__mem_fault_nth(0, 0);
    expect(BERM_ERROR_OUT_OF_HOST_MEMORY, status);
    cr_assert(kind_of(block) == BERM_ADDRESS_LIVE);
    capture_end();
    berm__mem_fault_nth(1, 0);
    status = berm_free(block, 0, BERM_STREAM_NONE);
    berm__mem_fault_nth(0, 0);
    expect(BERM_OK, status);
    cr_assert(kind_of(block) != BERM_ADDRESS_LIVE);
    BERM_TEST_END_INSIDE();
}
