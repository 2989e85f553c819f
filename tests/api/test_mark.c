// SPDX-License-Identifier: Apache-2.0
// berm_mark and berm_diff: what came after a mark and lives, exactly, whatever thread asked for it;
// the check for leaks at the end of a process.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berm_diagnose.h"
#include "tests/api/api_test.h"

typedef struct sum {
    uint64_t blocks, bytes, groups, last_bytes;
    const char *tag; // only this one; NULL: any
} sum_t;

static bool add(void *context, const berm_diff_t *diff) {
    sum_t *sum = context;
    uint64_t bytes = diff->blocks * diff->each_bytes;
    cr_assert(diff->size == sizeof *diff && diff->device == 0);
    cr_assert(sum->groups == 0 || bytes <= sum->last_bytes, "most bytes first");
    sum->last_bytes = bytes;
    sum->groups++;
    if (sum->tag != NULL && strcmp(sum->tag, diff->tag) != 0)
        return true;
    sum->blocks += diff->blocks;
    sum->bytes += bytes;
    return true;
}

static sum_t diff_of(uint64_t mark, const char *tag) {
    sum_t sum = {.tag = tag};
    EXPECT(BERM_OK, berm_diff(0, mark, add, &sum));
    return sum;
}

static uint64_t mark_set(void) {
    uint64_t mark;
    EXPECT(BERM_OK, berm_mark(&mark));
    return mark;
}

// Slots and large blocks, of threads' caches too: none of before, all of after.
Test(mark, tells_what_came_after) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    berm_addr_t before[20];
    for (int i = 0; i < 20; i++)
        before[i] = heap_alloc(i % 2 == 0 ? 1000 : 3 * MIB, NULL);
    uint64_t mark = mark_set();
    cr_assert(diff_of(mark, NULL).groups == 0 && diff_of(0, NULL).blocks == 20);
    for (int i = 0; i < 10; i++) // their addresses are taken again
        heap_free(before[i], NULL);
    EXPECT(BERM_OK, berm_tag_push("kept"));
    for (int i = 0; i < 7; i++)
        (void)heap_alloc(1000, NULL);
    EXPECT(BERM_OK, berm_tag_pop());
    heap_free(heap_alloc(5 * MIB, NULL), NULL);
    (void)heap_alloc(3 * MIB, NULL);
    sum_t all = diff_of(mark, NULL), kept = diff_of(mark, "kept");
    cr_assert(all.blocks == 8 && all.bytes == 7000 + 3 * MIB && all.groups == 2);
    cr_assert(kept.blocks == 7 && kept.bytes == 7000);
    cr_assert(diff_of(mark_set(), NULL).blocks == 0);
    BERM_TEST_END();
}

static bool stop(void *context, const berm_diff_t *diff) {
    (void)diff;
    return ++*(int *)context < 2;
}

Test(mark, a_callback_may_end_it) {
    int calls = 0;
    heap_fixture_begin(NULL);
    for (uint64_t i = 1; i < 6; i++)
        (void)heap_alloc(1000 * i, NULL);
    EXPECT(BERM_OK, berm_diff(0, 0, stop, &calls));
    cr_assert(calls == 2);
    BERM_TEST_END();
}

static pthread_barrier_t barrier;

// Has numbers in hand when the mark is set.
static void *other_thread(void *out) {
    heap_free(heap_alloc(700, NULL), NULL);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    *(berm_addr_t *)out = heap_alloc(700, NULL);
    return NULL;
}

Test(mark, of_another_threads_numbers) {
    pthread_t thread;
    berm_addr_t addr;
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    cr_assert(pthread_barrier_init(&barrier, NULL, 2) == 0);
    cr_assert(pthread_create(&thread, NULL, other_thread, &addr) == 0);
    (void)pthread_barrier_wait(&barrier);
    uint64_t mark = mark_set();
    (void)pthread_barrier_wait(&barrier);
    cr_assert(pthread_join(thread, NULL) == 0);
    sum_t sum = diff_of(mark, NULL);
    cr_assert(sum.blocks == 1 && sum.bytes == 700);
    BERM_TEST_END();
}

Test(mark, bad_arguments_and_old_marks) {
    uint64_t mark;
    sum_t sum = {0};
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_mark(NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_diff(0, 0, NULL, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_diff(0, 1, add, &sum));
    EXPECT(BERM_ERROR_DEVICE, berm_diff(5, 0, add, &sum));
    mark = mark_set();
    for (int i = 0; i < 63; i++)
        (void)mark_set();
    EXPECT(BERM_OK, berm_diff(0, mark, add, &sum));
    (void)mark_set();
    EXPECT(BERM_ERROR_ARGUMENT, berm_diff(0, mark, add, &sum));
    BERM_TEST_END();
}

// Runs a program's end in a child, which calls no driver before; its exit status.
static int child_status(void (*program)(void)) {
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr);
        program();
        exit(0);
    }
    int status = 0;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void program_begin(void) {
    if (berm_init(heap_fixture_conf("leak_check:on")) != BERM_OK)
        exit(9);
}

static void program_that_leaks(void) {
    berm_addr_t addr;
    program_begin();
    if (berm_alloc(1000, 0, NULL, &addr) != BERM_OK)
        exit(9);
}

static void program_that_marks(void) {
    uint64_t mark;
    program_that_leaks();
    if (berm_mark(&mark) != BERM_OK)
        exit(9);
}

static void program_that_frees(void) {
    berm_addr_t addr;
    program_begin();
    if (berm_alloc(1000, 0, NULL, &addr) != BERM_OK || berm_free(addr, 0, NULL) != BERM_OK)
        exit(9);
}

Test(mark, leak_check_at_exit) {
    cr_assert(child_status(program_that_leaks) == 1);
    cr_assert(child_status(program_that_marks) == 0);
    cr_assert(child_status(program_that_frees) == 0);
}
