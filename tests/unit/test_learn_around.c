// SPDX-License-Identifier: Apache-2.0
// Learned placement beside other streams, threads, contexts, captures, peers, and for so long that
// counts begin anew; and that no byte of a block is wrong, however its pages are shared.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "berm_share.h"
#include "stress/contents/kernels.h"
#include "tests/support/capture.h"
#include "tests/support/peer_device.h"
#include "tests/support/simcuda_forward.h"
#include "tests/unit/learn_helpers.h"

// --- around it ---------------------------------------------------------------------------------

BOTH(each_stream_has_its_plan) {
    static periodic_t works[3];
    heap_begin_with(&(heap_fixture_options_t){.memory_bytes = BERM_GIB(1)});
    for (int i = 0; i < 3; i++) {
        void *on = heap_stream_create();
        periodic_init(&works[i], on, 60 + 20 * (uint32_t)i, 512, 200, 8000, 12, (uint64_t)i + 20);
    }
    for (uint32_t step = 0; step < 1200; step++)
        for (int i = 0; i < 3; i++)
            cr_assert(periodic_step(&works[i]) == BERM_OK);
    BERM_TEST_CHECK();
    unsigned plans = 0;
    for (int i = 0; i < 3; i++) {
        const berm_learn_t *learn = heap_pool(works[i].stream)->learn;
        plans += learn != NULL && learn->planned.segment != NULL;
    }
    cr_assert(plans >= 2, "%u streams have a plan", plans);
    end();
}

// A thread of another context, or of none, has its requests served from the plan too, also where
// memory has to be mapped.
BOTH(threads_without_a_context) {
    static berm_cu_ctx_set_current_fn set_current;
    static berm_cu_ctx_get_current_fn get_current;
    void *function = simcuda_symbol("cuCtxSetCurrent"), *other = simcuda_symbol("cuCtxGetCurrent");
    memcpy(&set_current, &function, sizeof set_current);
    memcpy(&get_current, &other, sizeof get_current);
    begin(NULL);
    periodic_free_all(&work);
    uint64_t released_bytes;
    cr_assert(berm_trim(0, 0, &released_bytes) == BERM_OK);
    berm_cu_context_t context = NULL;
    cr_assert(get_current(&context) == BERM_CU_SUCCESS);
    work.on_alloc = NULL;
    for (uint32_t i = 0; i < 2 * work.count; i++) {
        uint32_t at = (uint32_t)(work.step % work.count);
        for (uint32_t j = 0; j < work.count; j++)
            if (work.addr[j] != 0 && work.end[j] <= work.step) {
                heap_free(work.addr[j], stream);
                work.addr[j] = 0;
            }
        cr_assert(set_current(NULL) == BERM_CU_SUCCESS);
        cr_assert(berm_alloc(work.size_bytes[at], 0, stream, &work.addr[at]) == BERM_OK);
        cr_assert(set_current(context) == BERM_CU_SUCCESS);
        heap_use(stream, work.addr[at], work.size_bytes[at], 1000);
        work.end[at] = ++work.step - 1 + work.lifetime[at];
    }
    cr_assert(stats_read().plans == 1 && stats_read().poisoned_bytes == 0);
    period_is_planned();
    end();
}

// Requests of a captured stream that come to the pool of all; what the plan does then breaks no
// capture.
static void captured_run(int mode, bool is_other) {
    void *captured = is_other ? heap_stream_create() : stream;
    some_steps(11);
    heap_capture_begin(captured, mode);
    for (uint32_t i = 0; i < 2 * work.count; i++)
        cr_assert(periodic_step(&work) == BERM_OK);
    berm_addr_t large = heap_alloc(BERM_MIB(20), stream);
    heap_free(large, stream);
    cr_assert(heap_capture_is_whole(captured));
    heap_graph_destroy(heap_capture_end(captured));
    BERM_TEST_CHECK();
    periodic_run(&work, 2);
}

static void captures_run(const char *berm, bool is_other) {
    for (int mode = 0; mode < HEAP_CAPTURE_MODES; mode++) {
        begin(berm);
        captured_run(mode, is_other);
        period_is_planned();
        end();
    }
}

BOTH(captures_of_the_stream) {
    captures_run(NULL, false);
}

BOTH(captures_of_another_stream) {
    captures_run(NULL, true);
}

// A plan becomes ready, the arena is emptied, memory must be mapped: all while mappings must not
// change.
static void steps_in_capture(uint32_t before, uint32_t during) {
    heap_begin_with(&(heap_fixture_options_t){.berm = "sync_edits:on"});
    void *captured = heap_stream_create();
    heap_free(heap_alloc(1000, captured), captured); // a stream that berm knows
    some_steps(before);
    heap_capture_begin(captured, HEAP_CAPTURE_GLOBAL);
    for (uint32_t i = 0; i < during; i++) {
        berm_status_t status = periodic_step(&work);
        cr_assert(status == BERM_OK || status == BERM_ERROR_CAPTURE);
    }
    cr_assert(heap_capture_is_whole(captured));
    heap_graph_destroy(heap_capture_end(captured));
    BERM_TEST_CHECK();
    // A plan made of requests some of which failed may have a few less.
    uint64_t requests = stats_read().planned_requests;
    periodic_run(&work, 20);
    cr_assert(stats_read().planned_requests - requests > 10 * work.count);
    end();
}

BOTH(captures_where_edits_synchronize) {
    uint32_t count = kind == PACKED ? 100 : 60;
    for (uint32_t before = count; before < 5 * count; before += count / 3)
        steps_in_capture(before, 2 * count);
}

BOTH(peers_may_use_the_arena) {
    heap_begin_with(&(heap_fixture_options_t){.devices = 2});
    plan_make();
    some_steps(30);
    cr_assert(berm_peer_enable(0, 1) == BERM_OK);
    for (uint32_t i = 0; i < work.count; i++)
        cr_assert(work.addr[i] == 0 || peer_access_of(work.addr[i], 1) == 3);
    BERM_TEST_CHECK();
    periodic_free_all(&work);
    uint64_t released_bytes;
    cr_assert(berm_trim(0, 0, &released_bytes) == BERM_OK);
    for (uint32_t i = 0; i < 2 * work.count; i++) {
        cr_assert(periodic_step(&work) == BERM_OK);
        cr_assert(peer_access_of(work.addr[(work.step - 1) % work.count], 1) == 3);
    }
    cr_assert(berm_peer_disable(0, 1) == BERM_OK);
    for (uint32_t i = 0; i < work.count; i++)
        cr_assert(work.addr[i] == 0 || peer_access_of(work.addr[i], 1) == 0);
    period_is_planned();
    peer_devices_end();
    end();
}

typedef struct intruder {
    pthread_t thread;
    atomic_bool is_over;
} intruder_t;

// Requests of the same stream from another thread, of sizes that are in the plan and not.
static void *intrude(void *arg) {
    intruder_t *intruder = arg;
    for (uint64_t i = 0; !atomic_load(&intruder->is_over); i++) {
        berm_addr_t addr = 0;
        uint64_t bytes =
            i % 2 == 0 ? work.size_bytes[i % work.count] : BERM_KIB(100) + 512 * i % 99;
        if (berm_alloc(bytes, 0, stream, &addr) == BERM_OK)
            heap_free(addr, stream);
    }
    return NULL;
}

BOTH(two_threads_of_one_stream) {
    intruder_t intruder = {.is_over = false};
    heap_begin_with(&(heap_fixture_options_t){.is_lenient = 0});
    cr_assert(pthread_create(&intruder.thread, NULL, intrude, &intruder) == 0);
    periodic_run(&work, 20);
    atomic_store(&intruder.is_over, true);
    cr_assert(pthread_join(intruder.thread, NULL) == 0);
    end();
}

// Notes are counted with 32 bits.
BOTH(notes_are_counted_for_ever) {
    begin(NULL);
    berm_learn_t *learn = heap_pool(stream)->learn;
    learn->note_count = UINT32_MAX - 50;
    periodic_run(&work, 3);
    BERM_TEST_CHECK();
    period_is_planned();
    other_work_run(5 * work.count);
    periodic_free_all(&work);
    heap_context_synchronize();
    plan_await(160); // where nothing moves any more, it has to be seen often
    BERM_TEST_CHECK();
    cr_assert(stats_read().plans == 2, "what comes later is planned too");
    end();
}

// --- contents ----------------------------------------------------------------------------------

// What a kernel does when it ends: verify or write a block's contents.
typedef struct content {
    berm_addr_t addr;
    uint64_t size_bytes, seed;
    bool verifies;
} content_t;

static uint64_t versions[PERIODIC_MAX];
static uint64_t verified_bytes, wrong_bytes;

static void content_run(void *arg) {
    content_t *content = arg;
    void *memory = (void *)(uintptr_t)content->addr;
    uint64_t first;
    if (content->verifies) {
        wrong_bytes += contents_wrong_bytes(memory, content->size_bytes, content->seed, &first);
        verified_bytes += content->size_bytes;
    } else {
        contents_write(memory, content->size_bytes, content->seed);
    }
    free(content);
}

static void content_queue(const periodic_t *some, uint32_t i, bool verifies) {
    const simcuda_access_t access = {some->addr[i], some->size_bytes[i], !verifies};
    content_t *content = malloc(sizeof *content);
    cr_assert(content != NULL);
    *content =
        (content_t){some->addr[i], some->size_bytes[i], contents_seed(i, versions[i]), verifies};
    cr_assert(simcuda_launch_fn(some->stream, 3000, &access, 1, content_run, content) == 0);
}

static void contents_fill(periodic_t *some, uint32_t i) {
    versions[i]++;
    content_queue(some, i, false);
}

static void contents_look(periodic_t *some, uint32_t i) {
    content_queue(some, i, true);
}

// Every block has at its end what was written at its beginning, however its pages are shared.
BOTH(no_byte_is_wrong) {
    heap_begin_with(&(heap_fixture_options_t){.is_backed = 1});
    work.on_alloc = contents_fill;
    work.on_free = contents_look;
    plan_make();
    for (int i = 0; i < 4; i++)
        period_is_planned();
    uint64_t reserved = stats_read().reserved_bytes.current;
    cr_assert(berm_limit_set(0, reserved) == BERM_OK);
    for (uint32_t i = 0; i < 3 * work.count; i++) {
        berm_status_t status = periodic_step(&work); // blocks beside the plan cost room
        cr_assert(status == BERM_OK || status == BERM_ERROR_LIMIT);
        berm_addr_t addr;
        if (i % 7 == 0 && berm_alloc(BERM_MIB(3), 0, stream, &addr) == BERM_OK) {
            heap_use(stream, addr, BERM_MIB(3), 1000);
            heap_free(addr, stream);
        }
    }
    periodic_free_all(&work);
    heap_context_synchronize();
    cr_assert(verified_bytes > BERM_MIB(500));
    cr_assert(wrong_bytes == 0, "%llu bytes are wrong", (unsigned long long)wrong_bytes);
    end();
}

// Blocks that are a little larger or smaller than planned may have the planned place; of an aliased
// plan, as far as its pages there are its own.
BOTH(no_byte_is_wrong_where_sizes_change) {
    uint64_t planned_bytes[PERIODIC_MAX];
    heap_begin_with(&(heap_fixture_options_t){.is_backed = 1});
    work.on_alloc = contents_fill;
    work.on_free = contents_look;
    plan_make();
    memcpy(planned_bytes, work.size_bytes, sizeof planned_bytes);
    for (uint32_t i = 0; i < 12 * work.count + 1; i++) {
        uint32_t at = (uint32_t)(work.step % work.count);
        uint64_t eighth = planned_bytes[at] / 8 / 512 * 512;
        work.size_bytes[at] = planned_bytes[at];
        if (i % 7 == 0) // of each block in its turn
            work.size_bytes[at] += i % 3 > 0 ? 2 * eighth : -eighth;
        cr_assert(periodic_step(&work) == BERM_OK);
        BERM_TEST_CHECK();
    }
    periodic_free_all(&work);
    heap_context_synchronize();
    cr_assert(wrong_bytes == 0, "%llu bytes are wrong", (unsigned long long)wrong_bytes);
    end();
}

// Behind a place of an aliased plan any page may come again, also one of the place itself: what
// needs a granule more than planned is not served there.
Test(learn_alias, a_block_never_has_a_page_twice) {
    kind = ALIASED;
    begin(NULL);
    periodic_free_all(&work);
    const berm_course_t *course = &planned()->course;
    unsigned tried = 0;
    for (uint32_t i = 0; i < course->length; i++) {
        berm__follow_seek(planned()->follow, i);
        if (course->item_of[i] == BERM_ITEM_NONE)
            continue;
        berm_addr_t more = heap_alloc(course->bytes[i] + 512, stream);
        uint64_t place = planned()->plan->offset_bytes[course->item_of[i]];
        cr_assert(more != planned()->segment->base + place, "request %u has a granule more", i);
        heap_free(more, stream);
        berm__follow_seek(planned()->follow, i);
        berm_addr_t less = heap_alloc(course->bytes[i] - 512, stream);
        tried += is_in_arena(less);
        heap_free(less, stream);
        BERM_TEST_CHECK();
    }
    cr_assert(tried > 5, "a little smaller is served in place");
    end();
}
