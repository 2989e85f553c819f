// SPDX-License-Identifier: Apache-2.0
// The whole heap against a slow reference: random operations, and after each one the audit, both
// ledgers, and what the reference knows. The reference is a list of live blocks with their
// requested sizes, and for each block the stream that used it last; work is modelled on the streams
// by the rules that berm.h gives to callers, on a strict device: memory that is reused too early,
// unmapped under work or used unmapped aborts the test.
//
// What is checked: no two live blocks overlap; alignment; requested bytes and blocks are exact; a
// block that is freed twice, or named by an address inside it, is refused; a request fails only
// where what cannot be reclaimed and what was asked for do not fit together. Requests go to the
// default pool and to pools of each kind, which are released and made anew.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "tests/support/heap_inside.h"

enum {
    BLOCKS_MAX = 96,
    STREAMS = 4, // the last is the legacy default stream
    POOLS = 8,   // beside the default one
    OPERATIONS = 2500
};

typedef struct model_block {
    berm_addr_t addr; // 0: none
    uint64_t size_bytes;
    int owner; // index of the stream it was allocated on; -1: none, or that one is gone
    int last;  // the stream whose work used it last; -1: that work is done
    bool is_pinned;
    bool is_lone; // last is not the owner, and was not recorded: the free must name it
} model_block_t;

typedef struct model {
    berm_rng_t rng;
    void *streams[STREAMS];
    model_block_t blocks[BLOCKS_MAX];
    uint64_t live_count, requested_bytes;
    uint64_t limit_bytes, memory_bytes;
    uint64_t failures;
    bool has_pins;
    uint64_t pool_allocs, releases, grown_blocks;
} model_t;

// What the caller's pools are like, by the lower half of their ids.
static const uint32_t pool_traits[POOLS] = {0,
                                            BERM_POOL_PRIVATE,
                                            BERM_POOL_EXPORTABLE,
                                            BERM_POOL_PINNED | BERM_POOL_RDMA,
                                            BERM_POOL_PLAIN,
                                            BERM_POOL_NO_SPLIT,
                                            BERM_POOL_NO_SPLIT | BERM_POOL_PLAIN,
                                            BERM_POOL_RESIZABLE};

static void pool_make(unsigned pool) {
    berm_pool_options_t options = {.size = sizeof options, .traits = pool_traits[pool]};
    berm_status_t status = berm_pool_create(0, (berm_pool_id_t){1, pool}, &options);
    if (status == BERM_ERROR_UNSUPPORTED) { // no handles, so none can be exported
        options.traits = BERM_POOL_PLAIN | BERM_POOL_PRIVATE;
        status = berm_pool_create(0, (berm_pool_id_t){1, pool}, &options);
    }
    cr_assert(status == BERM_OK);
}

// Pins of live and freed blocks: until one is told or ended, nothing else has its addresses, and
// its memory is what it was.
typedef struct model_pin {
    berm_addr_t addr; // 0: none
    uint64_t size_bytes;
    const void *handle; // behind its first byte
    bool is_freed;
} model_pin_t;

enum {
    PINS_MAX = 12
};

static model_pin_t pins[PINS_MAX];
static uint64_t model_now_ns;

static uint64_t model_clock(void *context) {
    (void)context;
    return model_now_ns;
}

static uint64_t below(model_t *model, uint64_t bound) {
    return berm__rng_below(&model->rng, bound);
}

static uint64_t size_draw(model_t *model) {
    switch (below(model, 10)) {
    case 0:
    case 1:
    case 2:
    case 3:
        return 1 + below(model, BERM_KIB(64));
    case 4:
    case 5:
    case 6:
        return BERM_KIB(64) + below(model, BERM_MIB(4));
    case 7:
    case 8:
        return below(model, BERM_MIB(24)) + 1;
    default:
        return (1 + below(model, 20)) << 21;
    }
}

// --- what the reference knows ------------------------------------------------------------------

static void overlap_check(const model_t *model, const model_block_t *block) {
    for (const model_block_t *other = model->blocks; other < model->blocks + BLOCKS_MAX; other++) {
        if (other == block || other->addr == 0)
            continue;
        cr_assert(block->addr + block->size_bytes <= other->addr ||
                      other->addr + other->size_bytes <= block->addr,
                  "two live blocks overlap");
    }
}

static void figures_check(const model_t *model) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    cr_assert(stats.requested_bytes.current == model->requested_bytes);
    cr_assert(stats.blocks.current == model->live_count);
    cr_assert(stats.allocated_bytes.current >= stats.requested_bytes.current);
    cr_assert(stats.active_bytes.current >= stats.allocated_bytes.current);
    cr_assert(stats.reserved_bytes.current == stats.active_bytes.current + stats.cached_bytes);
    cr_assert(stats.reserved_bytes.peak >= stats.reserved_bytes.current);
    cr_assert(stats.poisoned_bytes == 0);
}

static berm_segment_t *segment_of(berm_addr_t addr) {
    return berm__addr_dir_find(&berm__heap.dir, addr);
}

static const void *handle_at(berm_addr_t addr) {
    const berm_segment_t *segment = segment_of(addr);
    return segment->handle_of[berm__segment_granule_of(segment, addr - segment->base)];
}

static void pins_check(const model_t *model) {
    for (const model_pin_t *pin = pins; pin < pins + PINS_MAX; pin++) {
        if (pin->addr == 0)
            continue;
        cr_assert(handle_at(pin->addr) == pin->handle, "a pinned page has moved");
        for (const model_block_t *block = model->blocks; block < model->blocks + BLOCKS_MAX;
             block++)
            cr_assert(!pin->is_freed || block->addr == 0 ||
                          block->addr + block->size_bytes <= pin->addr ||
                          pin->addr + pin->size_bytes <= block->addr,
                      "a block has addresses that are pinned");
    }
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    model_pin_t *pin = arg;
    cr_assert(pin->addr == addr && size_bytes >= pin->size_bytes);
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(pin->is_freed && berm_stats_read(0, &stats) == BERM_OK, "no lock is held");
    cr_assert(berm_unpin(addr, pin_told, arg) == BERM_ERROR_ADDRESS_UNKNOWN, "it has ended");
    pin->addr = 0;
}

// What pools have whose blocks own their memory: it is given back whole, and no page of it moves,
// so that above the limit none of it makes room.
static uint64_t unsplit_bytes(void) {
    const berm_device_t *device = heap_device();
    uint64_t bytes = 0;
    for (unsigned i = 0; i < device->phys.store_count; i++)
        bytes += device->phys.stores[i].idle_odd_granules * device->gpu.granule_bytes;
    BERM_LIST_EACH (const berm_pool_t, pool, &device->pools, link)
        if (pool->group->traits & BERM_GROUP_NO_SPLIT)
            BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
                bytes += segment->mapped_bytes;
    return bytes;
}

// A request may fail only when it does not fit beside what no waiting and no moving can free. A
// place that begins and ends inside granules takes two more than its bytes; a plain segment has
// room for the alignment too.
static void failure_check(model_t *model, berm_status_t status, uint64_t size_bytes,
                          uint64_t alignment_bytes) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT, "%s: %s",
              berm_status_name(status), berm_error_message());
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    uint64_t reserved = stats.reserved_bytes.current;
    uint64_t ceiling = berm__min_u64(
        model->memory_bytes,
        berm__max_u64(model->limit_bytes, reserved - berm__min_u64(reserved, unsplit_bytes())));
    uint64_t pinned_bytes = heap_pinned_bytes();
    cr_assert(pinned_bytes + size_bytes + BERM_MIB(4) + alignment_bytes > ceiling,
              "%llu bytes (alignment %llu) failed with %llu pinned of %llu: %s",
              (unsigned long long)size_bytes, (unsigned long long)alignment_bytes,
              (unsigned long long)pinned_bytes, (unsigned long long)ceiling, berm_error_message());
    model->failures++;
}

// --- operations --------------------------------------------------------------------------------

// Work of one stream on a block, after all that used it before.
static void block_use(model_t *model, model_block_t *block, int stream) {
    if (block->last >= 0 && block->last != stream)
        heap_stream_follow(model->streams[stream], model->streams[block->last]);
    heap_use(model->streams[stream], block->addr, block->size_bytes, 1 + below(model, 200000));
    block->last = stream;
    block->is_lone = stream != block->owner;
}

static void step_alloc(model_t *model, model_block_t *block) {
    uint64_t size_bytes = size_draw(model);
    uint64_t alignment_bytes = UINT64_C(512)
                               << (below(model, 6) == 0 ? below(model, 14) : below(model, 2));
    int owner = (int)below(model, STREAMS + 1) - 1;
    void *stream = owner < 0 ? BERM_STREAM_NONE : model->streams[owner];
    berm_addr_t addr = 7;
    berm_pool_id_t pool = {0, 0};
    if (below(model, 4) == 0)
        pool = (berm_pool_id_t){1, below(model, POOLS)};
    if (pool.high != 0 && (pool_traits[pool.low] & BERM_POOL_NO_SPLIT) != 0)
        alignment_bytes = berm__min_u64(alignment_bytes, 64 << 10);
    berm_status_t status =
        pool.high == 0 ? berm_alloc_aligned(size_bytes, alignment_bytes, 0, stream, &addr)
                       : berm_alloc_from(pool, size_bytes, alignment_bytes, 0, stream, &addr);
    if (status != BERM_OK) {
        cr_assert(addr == 0);
        failure_check(model, status, size_bytes, alignment_bytes);
        return;
    }
    *block = (model_block_t){.addr = addr, .size_bytes = size_bytes, .owner = owner, .last = -1};
    model->live_count++;
    model->requested_bytes += size_bytes;
    model->pool_allocs += pool.high;
    cr_assert(berm__is_aligned(addr, alignment_bytes));
    overlap_check(model, block);
    block_use(model, block, owner < 0 ? (int)below(model, STREAMS) : owner);
}

static void step_use_elsewhere(model_t *model, model_block_t *block) {
    int stream = (int)below(model, STREAMS);
    block_use(model, block, stream);
    if (below(model, 3) == 0)
        return;
    cr_assert(berm_record_stream(block->addr, model->streams[stream]) == BERM_OK);
    block->is_lone = false;
}

static void step_free(model_t *model, model_block_t *block) {
    berm_addr_t addr = block->addr;
    void *stream = BERM_STREAM_NONE;
    if (below(model, 8) != 0) {
        // The own stream, where its order and what was recorded cover every use; else the last.
        int named =
            block->is_lone || block->owner < 0 || below(model, 3) == 0 ? block->last : block->owner;
        if (named >= 0)
            stream = model->streams[named];
    }
    heap_free(addr, stream);
    for (model_pin_t *pin = pins; pin < pins + PINS_MAX; pin++)
        pin->is_freed |= pin->addr == addr;
    block->addr = 0;
    model->live_count--;
    model->requested_bytes -= block->size_bytes;
    berm_status_t status = berm_free(addr, 0, stream);
    cr_assert(status == BERM_ERROR_DOUBLE_FREE || status == BERM_ERROR_ADDRESS_UNKNOWN, "%s",
              berm_status_name(status));
}

// Pins a live block, or ends a pin.
static void step_pin(model_t *model, model_block_t *block) {
    model_pin_t *pin = &pins[below(model, PINS_MAX)];
    if (pin->addr != 0) {
        cr_assert(berm_unpin(pin->addr, pin_told, pin) == BERM_OK, "%s", berm_error_message());
        pin->addr = 0;
        return;
    }
    if (block->addr == 0)
        return;
    cr_assert(berm_pin(block->addr, pin_told, pin) == BERM_OK, "%s", berm_error_message());
    cr_assert(berm_pin(block->addr, pin_told, pin) == BERM_ERROR_STATE);
    *pin = (model_pin_t){block->addr, block->size_bytes, handle_at(block->addr), false};
}

static bool block_is_pinned(const model_block_t *block) {
    for (const model_pin_t *pin = pins; pin < pins + PINS_MAX; pin++)
        if (pin->addr == block->addr && !pin->is_freed)
            return true;
    return false;
}

static bool block_may_grow(const model_block_t *block) {
    if (block->addr == 0)
        return false;
    const berm_segment_t *segment = segment_of(block->addr);
    return berm__pool_is_resizable(segment->pool);
}

// Grows a block where it is: one that can, if there is any, or one that is no such.
static void step_grow(model_t *model, model_block_t *block) {
    uint64_t more_bytes = 1 + below(model, below(model, 3) == 0 ? BERM_KIB(64) : BERM_MIB(12));
    bool wants_one = below(model, 4) != 0;
    for (int i = 0; i < BLOCKS_MAX && wants_one && !block_may_grow(block); i++)
        block = block + 1 < model->blocks + BLOCKS_MAX ? block + 1 : model->blocks;
    if (block->addr == 0)
        return;
    bool may_grow = block_may_grow(block);
    berm_status_t status = berm_block_grow(block->addr, block->size_bytes + more_bytes);
    if (status == BERM_OK) {
        cr_assert(may_grow && !block_is_pinned(block));
        block->size_bytes += more_bytes;
        model->requested_bytes += more_bytes;
        model->grown_blocks++;
        overlap_check(model, block);
        block_use(model, block, block->owner < 0 ? (int)below(model, STREAMS) : block->owner);
    } else if (!may_grow) {
        cr_assert(status == BERM_ERROR_NOT_RESIZABLE, "%s", berm_status_name(status));
    } else if (status != BERM_ERROR_POOL_UNKNOWN) { // released, and the block still live
        if (block_is_pinned(block))
            cr_assert(status == BERM_ERROR_STATE, "%s", berm_status_name(status));
        else
            failure_check(model, status, more_bytes, 512);
    }
}

static void step_bad_free(model_t *model, const model_block_t *block) {
    if (block->size_bytes < 2)
        return;
    berm_addr_t inside = block->addr + 1 + below(model, block->size_bytes - 1);
    berm_status_t status = berm_free(inside, BERM_DEVICE_ANY, BERM_STREAM_NONE);
    cr_assert(status == BERM_ERROR_ADDRESS_INTERIOR, "%s", berm_status_name(status));
    berm_whatis_t whatis = {.size = sizeof whatis};
    cr_assert(berm_whatis(inside, &whatis) == BERM_OK);
    cr_assert(whatis.kind == BERM_ADDRESS_LIVE && whatis.block == block->addr);
    cr_assert(whatis.requested_bytes == block->size_bytes);
}

// Retires a stream, destroys it and makes another in its place.
static void step_retire(model_t *model) {
    int stream = (int)below(model, STREAMS - 1);
    // A use that berm was not told of is the caller's to wait for.
    for (model_block_t *block = model->blocks; block < model->blocks + BLOCKS_MAX; block++)
        if (block->addr != 0 && block->is_lone && block->last == stream)
            heap_stream_synchronize(model->streams[stream]);
    cr_assert(berm_stream_retire(0, model->streams[stream]) == BERM_OK);
    heap_stream_destroy(model->streams[stream]);
    model->streams[stream] = heap_stream_create();
    for (model_block_t *block = model->blocks; block < model->blocks + BLOCKS_MAX; block++) {
        if (block->owner == stream)
            block->owner = -1;
        if (block->last == stream)
            block->last = -1;
    }
}

static void step_limit(model_t *model) {
    model->limit_bytes =
        below(model, 2) == 0 ? UINT64_MAX : BERM_MIB(32) + below(model, model->memory_bytes);
    cr_assert(berm_limit_set(0, model->limit_bytes) == BERM_OK);
}

// A pool is released, with blocks of it live, and another takes its id.
static void step_pool(model_t *model) {
    unsigned pool = (unsigned)below(model, POOLS);
    cr_assert(berm_pool_release(0, (berm_pool_id_t){1, pool}) == BERM_OK);
    pool_make(pool);
    model->releases++;
}

static void step_trim(model_t *model) {
    uint64_t released_bytes = 1;
    uint64_t keep_bytes = below(model, 3) == 0 ? 0 : below(model, BERM_MIB(64));
    cr_assert(berm_trim(0, keep_bytes, &released_bytes) == BERM_OK);
    cr_assert(berm__is_aligned(released_bytes, BERM_MIB(2)));
}

// Time passes, and idle memory goes back: off by default, so that this does nothing.
static void step_decay(model_t *model) {
    model_now_ns += below(model, 300000000);
    cr_assert(berm_decay_tick(0) == BERM_OK, "%s", berm_error_message());
}

static uint64_t calls_for_memory(void) {
    return simcuda_calls("cuMemMap") + simcuda_calls("cuMemAlloc");
}

// An allocation of the figure makes no memory call; 512 bytes more makes one, or fails.
static void step_largest(model_t *model) {
    uint64_t size_bytes, before;
    int stream = (int)below(model, STREAMS);
    berm_addr_t addr;
    cr_assert(berm_largest_free_read(0, model->streams[stream], &size_bytes) == BERM_OK);
    if (size_bytes == 0)
        return;
    berm_pool_t *pool = heap_pool(model->streams[stream]);
    bool is_waiting =
        !berm__list_is_empty(&pool->deferred) || atomic_load(&pool->pins.held_count) > 0;
    before = calls_for_memory();
    cr_assert(berm_alloc(size_bytes, 0, model->streams[stream], &addr) == BERM_OK);
    cr_assert(calls_for_memory() == before);
    heap_free(addr, model->streams[stream]);
    // Frees that finish meanwhile may join into something larger.
    if (is_waiting)
        return;
    berm_status_t status = berm_alloc(size_bytes + 512, 0, model->streams[stream], &addr);
    if (status != BERM_OK)
        return;
    cr_assert(calls_for_memory() > before, "%llu bytes more than the largest free block",
              (unsigned long long)size_bytes);
    heap_free(addr, model->streams[stream]);
}

static void model_step(model_t *model) {
    model_block_t *block = &model->blocks[below(model, BLOCKS_MAX)];
    uint64_t kind = below(model, 200);
    simcuda_advance_ns(below(model, 100000));
    if (kind == 0)
        step_retire(model);
    else if (kind == 1)
        step_limit(model);
    else if (kind < 4)
        step_trim(model);
    else if (kind < 8)
        step_largest(model);
    else if (kind < 12)
        step_decay(model);
    else if (kind < 16 && model->has_pins)
        step_pin(model, block);
    else if (kind < 18)
        step_pool(model);
    else if (block->addr == 0)
        step_alloc(model, block);
    else if (kind < 30)
        step_grow(model, block);
    else if (kind < 75)
        step_use_elsewhere(model, block);
    else if (kind < 85)
        step_bad_free(model, block);
    else
        step_free(model, block);
}

static void run_with(uint64_t seed, const heap_fixture_options_t *options, bool has_pins) {
    model_t model = {
        .limit_bytes = UINT64_MAX, .memory_bytes = options->memory_bytes, .has_pins = has_pins};
    memset(pins, 0, sizeof pins);
    berm__rng_seed(&model.rng, seed);
    cr_assert(berm_clock_set(model_clock, NULL) == BERM_OK);
    heap_fixture_begin(options);
    for (int i = 0; i < STREAMS - 1; i++)
        model.streams[i] = heap_stream_create();
    for (unsigned i = 0; i < POOLS; i++)
        pool_make(i);
    for (int i = 0; i < OPERATIONS; i++) {
        model_step(&model);
        BERM_TEST_CHECK();
        figures_check(&model);
        pins_check(&model);
    }
    // The mix must be hard enough to climb the ladder to its end, and not so hard that it is all.
    cr_assert(model.pool_allocs > 100 && model.releases > 10);
    bool has_mappings = !heap_device()->gpu.is_plain;
    cr_assert(model.grown_blocks > 10 || !has_mappings, "%llu blocks grew",
              (unsigned long long)model.grown_blocks);
    cr_assert(model.failures > 0 && model.failures < OPERATIONS / 4, "%llu requests failed",
              (unsigned long long)model.failures);
    heap_context_synchronize();
    for (model_pin_t *pin = pins; pin < pins + PINS_MAX; pin++)
        pin->is_freed = true; // the end of the heap tells the rest
    BERM_TEST_END_INSIDE();
    for (const model_pin_t *pin = pins; pin < pins + PINS_MAX; pin++)
        cr_assert(pin->addr == 0, "a pin was not told at the end");
}

static void model_run(uint64_t seed, const heap_fixture_options_t *options) {
    run_with(seed, options, false);
}

Test(heap_model, roomy) {
    for (uint64_t seed = 1; seed <= 2; seed++)
        model_run(seed, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(512)});
}

Test(heap_model, tight) {
    for (uint64_t seed = 11; seed <= 12; seed++)
        model_run(seed, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(192)});
}

Test(heap_model, small_handles_no_headroom) {
    model_run(21, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256),
                                            .berm = "growth_handle:2M,headroom:0"});
}

Test(heap_model, pages_do_not_move) {
    model_run(31, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .berm = "remap:off"});
}

Test(heap_model, pages_move_within_a_stream_at_once) {
    for (uint64_t seed = 51; seed <= 52; seed++)
        model_run(seed, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(192),
                                                  .berm = "growth_handle:4M,remap:alias"});
}

Test(heap_model, old_driver) {
    model_run(41, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .lacks_ctx_event = 1});
}

Test(heap_model, decays) {
    model_run(51,
              &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .berm = "decay_ms:1000"});
    model_run(52, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .berm = "decay_ms:0"});
}

Test(heap_model, pins) {
    run_with(61, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(192)}, true);
    run_with(62, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .berm = "headroom:0"},
             true);
}

Test(heap_model, plain) {
    run_with(71, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .berm = "backing:plain"},
             true);
    run_with(72, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(192), .lacks_vmm = 1}, true);
    run_with(73,
             &(heap_fixture_options_t){.memory_bytes = BERM_MIB(256),
                                       .berm = "backing:plain,decay_ms:500"},
             false);
}
