// SPDX-License-Identifier: Apache-2.0
// berm_snapshot_write: real snapshots against docs/snapshot.schema.json and against what a schema
// cannot say (tests/support/validate_snapshot.py), the states of a process, and the argument.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berm_introspect.h"
#include "tests/support/heap_fixture.h"

static char text[1 << 20];
static size_t text_length;

static void text_append(void *context, const char *piece, size_t length) {
    cr_assert(context == text);
    cr_assert(text_length + length < sizeof text);
    memcpy(text + text_length, piece, length);
    text_length += length;
    text[text_length] = '\0';
}

static const char *snapshot_take(void) {
    text_length = 0;
    cr_assert(berm_snapshot_write(text_append, text) == BERM_OK);
    cr_assert(text_length > 2 && text[0] == '{' && strcmp(text + text_length - 2, "}\n") == 0);
    cr_assert(strlen(text) == text_length);
    return text;
}

static void snapshot_validate(void) {
    const char *source = getenv("BERM_SOURCE");
    cr_assert(source != NULL, "BERM_SOURCE names the repository; run the test with ctest");
    char path[] = "/tmp/berm_snapshot_XXXXXX", command[1024];
    int descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    cr_assert(file != NULL);
    (void)fputs(snapshot_take(), file);
    cr_assert(fclose(file) == 0);
    (void)snprintf(command, sizeof command,
                   "python3 -B '%s/tests/support/validate_snapshot.py' "
                   "'%s/docs/snapshot.schema.json' %s",
                   source, source, path);
    int status = system(command);
    (void)remove(path);
    cr_assert(status == 0, "%s", text);
}

Test(snapshot, no_argument) {
    cr_assert(berm_snapshot_write(NULL, NULL) == BERM_ERROR_ARGUMENT);
    cr_assert(strstr(berm_error_message(), "berm_snapshot_write") != NULL);
}

Test(snapshot, before_the_first_use) {
    cr_assert(strstr(snapshot_take(), "\"is_running\":false") != NULL);
    cr_assert(strstr(text, "\"devices\"") == NULL);
    snapshot_validate();
}

Test(snapshot, before_a_device_is_used) {
    heap_fixture_begin(NULL);
    cr_assert(strstr(snapshot_take(), "\"devices\":[]") != NULL);
    snapshot_validate();
    BERM_TEST_END();
    cr_assert(berm_snapshot_write(text_append, text) == BERM_ERROR_SHUTDOWN);
}

// One of everything: blocks of all kinds on three streams, awaited and retired ones, moved pages.
Test(snapshot, a_busy_heap) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2, .berm = "growth_handle:8M"});
    void *a = heap_stream_create(), *b = heap_stream_create(), *gone = heap_stream_create();
    berm_addr_t small[150], other;
    for (int i = 0; i < 150; i++)
        small[i] = heap_alloc(1 + 700u * (unsigned)i, a);
    berm_addr_t large = heap_alloc(11 << 20, a), awaited = heap_alloc(3 << 20, a);
    berm_addr_t kept = heap_alloc(5 << 20, gone);
    (void)heap_alloc(7 << 20, BERM_STREAM_NONE);
    cr_assert(berm_alloc(100, 1, NULL, &other) == BERM_OK);
    snapshot_validate();
    for (int i = 0; i < 150; i += 3)
        heap_free(small[i], a);
    cr_assert(berm_record_stream(awaited, b) == BERM_OK);
    heap_free(awaited, a);
    heap_free(small[1], b);
    heap_free(large, BERM_STREAM_NONE);
    cr_assert(berm_stream_retire(0, gone) == BERM_OK);
    cr_assert(berm_limit_set(0, 60 << 20) == BERM_OK);
    snapshot_validate();
    cr_assert(strstr(text, "\"state\":\"awaited\"") != NULL);
    cr_assert(strstr(text, "\"is_retired\":true") != NULL);
    cr_assert(strstr(text, "\"limit_bytes\":62914560") != NULL);
    uint64_t released;
    heap_free(kept, b);
    cr_assert(berm_trim(0, 1 << 20, &released) == BERM_OK && released > 0);
    snapshot_validate();
    BERM_TEST_END();
}

// What a driver error left behind is listed, and its physical memory with it.
Test(snapshot, poisoned_ranges) {
    berm_addr_t addr;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 16 << 20});
    void *a = heap_stream_create();
    berm_addr_t first = heap_alloc(6 << 20, a);
    (void)heap_alloc(2 << 20, a);
    heap_free(first, a);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, 999) == 0);
    cr_assert(berm_alloc(14 << 20, 0, a, &addr) == BERM_ERROR_DRIVER);
    snapshot_validate();
    cr_assert(strstr(text, "\"state\":\"poisoned\"") != NULL);
    BERM_TEST_END();
}
