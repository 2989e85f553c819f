// SPDX-License-Identifier: Apache-2.0
// States of a private pool against a list of what lived: random requests and frees, states taken
// now and then, and restored in any order; every live block is compared and the audit runs. And
// every host allocation of a restore fails once: then nothing has changed.
#include <criterion/criterion.h>
#include <string.h>

#include "base/rng.h"
#include "berm_introspect.h"
#include "host/mem.h"
#include "tests/support/heap_inside.h"

enum {
    BLOCKS_MAX = 160,
    STATES = 5,
    STREAMS = 2
};

static const berm_pool_id_t id = {7, 0};

typedef struct live {
    berm_addr_t addr;
    uint64_t size_bytes;
    int stream;
} live_t;

typedef struct list {
    live_t blocks[BLOCKS_MAX];
    size_t count;
} list_t;

typedef struct model {
    berm_rng_t rng;
    void *streams[STREAMS];
    list_t now, was[STATES];
    berm_pool_state_t *states[STATES];
} model_t;

static uint64_t below(model_t *model, uint64_t limit) {
    return berm__rng_next(&model->rng) % limit;
}

static uint64_t size_random(model_t *model) {
    static const uint64_t most[] = {600, 8000, 65536, 400000, 3 << 20};
    return 1 + below(model, most[below(model, 5)]);
}

static void step(model_t *model) {
    list_t *now = &model->now;
    if (now->count == BLOCKS_MAX || (now->count > 0 && below(model, 9) < 4)) {
        size_t at = below(model, now->count);
        heap_free(now->blocks[at].addr, model->streams[now->blocks[at].stream]);
        now->blocks[at] = now->blocks[--now->count];
        return;
    }
    live_t *block = &now->blocks[now->count++];
    block->stream = (int)below(model, STREAMS);
    block->size_bytes = size_random(model);
    cr_assert(berm_alloc_from(id, block->size_bytes, 1, 0, model->streams[block->stream],
                              &block->addr) == BERM_OK,
              "%s", berm_error_message());
    heap_use(model->streams[block->stream], block->addr, block->size_bytes, 1000);
}

typedef struct seen {
    const list_t *want;
    uint64_t count;
} seen_t;

static void see(void *context, const berm_walk_segment_t *segment, const berm_walk_block_t *block) {
    seen_t *seen = context;
    if (block == NULL || block->kind != BERM_ADDRESS_LIVE || segment->pool.high != id.high)
        return;
    for (size_t i = 0; i < seen->want->count; i++)
        seen->count += seen->want->blocks[i].addr == block->addr &&
                       seen->want->blocks[i].size_bytes == block->requested_bytes;
    seen->count -= 1;
}

// Exactly these live.
static void expect_live(model_t *model) {
    seen_t seen = {&model->now, 0};
    cr_assert(berm_walk(0, see, &seen) == BERM_OK && seen.count == 0);
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    cr_assert(berm_pool_stats_read(0, id, &stats) == BERM_OK);
    cr_assert(stats.blocks == model->now.count);
    BERM_TEST_CHECK();
}

static void change_count(void *context, berm_addr_t addr, uint64_t requested_bytes) {
    *(size_t *)context += addr != 0 && requested_bytes != 0;
}

static void restore(model_t *model, unsigned which) {
    size_t changes = 0, want = model->now.count + model->was[which].count;
    cr_assert(berm_pool_state_restore(model->states[which], change_count, change_count, &changes) ==
                  BERM_OK,
              "%s", berm_error_message());
    cr_assert(changes == want);
    model->now = model->was[which];
    expect_live(model);
    for (size_t i = 0; i < model->now.count; i++)
        heap_use(model->streams[model->now.blocks[i].stream], model->now.blocks[i].addr,
                 model->now.blocks[i].size_bytes, 1000);
}

static void take(model_t *model, unsigned which) {
    berm_pool_state_destroy(model->states[which]);
    cr_assert(berm_pool_state_take(0, id, &model->states[which]) == BERM_OK);
    model->was[which] = model->now;
}

static void model_begin(model_t *model, uint64_t seed, uint32_t traits) {
    const berm_pool_options_t options = {.size = sizeof options, .traits = traits};
    memset(model, 0, sizeof *model);
    berm__rng_seed(&model->rng, seed);
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = UINT64_C(1) << 30});
    for (unsigned i = 0; i < STREAMS; i++)
        model->streams[i] = heap_stream_create();
    cr_assert(berm_pool_create(0, id, &options) == BERM_OK);
}

static void model_end(model_t *model) {
    for (unsigned i = 0; i < STATES; i++)
        berm_pool_state_destroy(model->states[i]);
    BERM_TEST_END_INSIDE();
}

static model_t model; // too large for the stack of a test

static void run(uint64_t seed, uint32_t traits) {
    model_begin(&model, seed, traits);
    for (unsigned round = 0; round < 60; round++) {
        unsigned which = (unsigned)below(&model, STATES);
        for (uint64_t steps = below(&model, 60); steps > 0; steps--)
            step(&model);
        if (model.states[which] == NULL || below(&model, 3) == 0)
            take(&model, which);
        else
            restore(&model, which);
    }
    model_end(&model);
}

Test(pool_state_model, mapped_memory) {
    for (uint64_t seed = 1; seed <= 12; seed++)
        run(seed, BERM_POOL_PRIVATE);
}

Test(pool_state_model, plain_memory) {
    for (uint64_t seed = 1; seed <= 6; seed++)
        run(seed, BERM_POOL_PRIVATE | BERM_POOL_PLAIN);
}

// For each n: the n-th host allocation of a take or a restore fails, and nothing has changed.
Test(pool_state_model, each_host_allocation_fails) {
    unsigned failures = 0;
    for (uint64_t nth = 1;; nth++) {
        model_begin(&model, 5, BERM_POOL_PRIVATE);
        cr_assert(berm_option_set("event_ring", "off") == BERM_OK); // it does without
        for (unsigned i = 0; i < 120; i++)
            step(&model);
        take(&model, 0);
        for (unsigned i = 0; i < 150; i++)
            step(&model);
        berm__mem_fault_nth(nth, 1);
        berm_pool_state_t *second = NULL;
        berm_status_t taken = berm_pool_state_take(0, id, &second);
        berm_status_t status = berm_pool_state_restore(model.states[0], NULL, NULL, NULL);
        bool is_past = berm__mem_calls() < nth;
        berm__mem_fault_nth(0, 0);
        cr_assert((taken == BERM_OK) == (second != NULL));
        cr_assert(taken == BERM_OK || taken == BERM_ERROR_OUT_OF_HOST_MEMORY);
        cr_assert(status == BERM_OK || status == BERM_ERROR_OUT_OF_HOST_MEMORY);
        failures += taken != BERM_OK || status != BERM_OK;
        if (status == BERM_OK)
            model.now = model.was[0];
        expect_live(&model);
        restore(&model, 0);
        berm_pool_state_destroy(second);
        model_end(&model);
        if (is_past)
            break;
        cr_assert(taken != BERM_OK || status != BERM_OK);
    }
    cr_assert(failures > 3);
}
