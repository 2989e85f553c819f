// SPDX-License-Identifier: Apache-2.0
// From before the start to after the end: berm_init, berm_shutdown, restart, a child of fork(), and
// processes without a driver or without virtual memory management.
#include "tests/api/api_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_nothing(void *context, const char *text, size_t length) {
    (void)context, (void)text, (void)length;
}

// Every call that needs berm to run refuses with `want`; what is written is nulled.
static void every_call_refuses(berm_status_t want, berm_addr_t addr) {
    berm_addr_t out = 7;
    uint64_t bytes = 7;
    int number = 7;
    char text[8] = "x";
    berm_stats_t stats = BERM_STATS_INIT;
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    EXPECT(want, berm_alloc(1000, 0, NULL, &out));
    cr_assert(out == 0);
    out = 7;
    EXPECT(want, berm_alloc_aligned(1000, 4096, 0, BERM_STREAM_NONE, &out));
    cr_assert(out == 0);
    EXPECT(want, berm_free(addr, 0, NULL));
    EXPECT(want, berm_record_stream(addr, NULL));
    EXPECT(want, berm_stream_retire(0, NULL));
    EXPECT(want, berm_limit_set(0, 1));
    EXPECT(want, berm_limit_get(0, &bytes));
    EXPECT(want, berm_trim(0, 0, &bytes));
    cr_assert(bytes == 0);
    EXPECT(want, berm_stats_read(0, &stats));
    EXPECT(want, berm_stats_peaks_reset(0));
    bytes = 7;
    EXPECT(want, berm_largest_free_read(0, NULL, &bytes));
    cr_assert(bytes == 0);
    bytes = 7;
    EXPECT(want, berm_largest_obtainable_read(0, NULL, &bytes));
    cr_assert(bytes == 0);
    EXPECT(want, berm_whatis(addr, &whatis));
    EXPECT(want, berm_snapshot_write(write_nothing, NULL));
    EXPECT(want, berm_audit(&number));
    cr_assert(number == 0);
    number = 7;
    EXPECT(want, berm_device_count(&number));
    cr_assert(number == 0);
    EXPECT(want, berm_device_info_read(0, &info));
    EXPECT(want, berm_option_set("headroom", "5"));
    EXPECT(want, berm_option_get("headroom", text, sizeof text));
    cr_assert(text[0] == '\0');
}

Test(lifecycle, texts_need_no_start) {
    cr_assert(strcmp(berm_version(), "0.1.0") == 0);
    cr_assert(strcmp(berm_error_message(), "") == 0);
    cr_assert(strcmp(berm_status_name(BERM_OK), "BERM_OK") == 0);
    for (int status = 0; status < BERM_STATUS_COUNT; status++) {
        cr_assert(strncmp(berm_status_name((berm_status_t)status), "BERM_", 5) == 0);
        cr_assert(strlen(berm_status_text((berm_status_t)status)) > 10);
    }
    cr_assert(strcmp(berm_status_name(BERM_STATUS_COUNT), "BERM_STATUS_UNKNOWN") == 0);
    cr_assert(strcmp(berm_status_name((berm_status_t)-1), "BERM_STATUS_UNKNOWN") == 0);
    cr_assert(berm_status_text((berm_status_t)12345) != NULL);
}

Test(lifecycle, questions_do_not_start_it) {
    berm_stats_t stats = BERM_STATS_INIT;
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    uint64_t bytes = 7;
    int invariant = 7;
    cr_assert(setenv("BERM_CONF", "driver:/nonexistent/libcuda.so.1", 1) == 0);
    EXPECT(BERM_OK, berm_stats_read(0, &stats));
    cr_assert(stats.reserved_bytes.total_up == 0 && stats.driver_calls.other == 0);
    EXPECT(BERM_OK, berm_whatis(4096, &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_FOREIGN && whatis.device == -1);
    EXPECT(BERM_OK, berm_largest_free_read(0, NULL, &bytes));
    cr_assert(bytes == 0);
    EXPECT(BERM_OK, berm_audit(&invariant));
    cr_assert(invariant == 0);
    EXPECT(BERM_OK, berm_stats_peaks_reset(0));
}

Test(lifecycle, shutdown_before_any_start) {
    size_t live = 7;
    EXPECT(BERM_OK, berm_shutdown(&live));
    cr_assert(live == 0);
    heap_fixture_begin(NULL); // and it was no end
    (void)heap_alloc(1000, NULL);
    BERM_TEST_END();
}

Test(lifecycle, init_twice) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    EXPECT(BERM_ERROR_STATE, berm_init(heap_fixture_conf(NULL)));
    EXPECT_MESSAGE("berm runs already");
    EXPECT(BERM_ERROR_STATE, berm_init(NULL));
    EXPECT(BERM_ERROR_STATE, berm_init("nonsense"));
    heap_free(addr, NULL);
    BERM_TEST_END();
}

Test(lifecycle, the_first_allocation_starts_it) {
    heap_fixture_begin(&(heap_fixture_options_t){.stays_stopped = 1});
    cr_assert(setenv("BERM_CONF", heap_fixture_conf("headroom:7"), 1) == 0);
    char text[16];
    (void)heap_alloc(1000, NULL);
    EXPECT(BERM_OK, berm_option_get("headroom", text, sizeof text));
    cr_assert(strcmp(text, "7") == 0);
    BERM_TEST_END();
}

Test(lifecycle, use_after_shutdown) {
    size_t live = 7;
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    (void)heap_alloc(700, NULL);
    heap_use(NULL, addr, 3 * MIB, 5000000); // shutdown waits for it
    EXPECT(BERM_OK, berm_shutdown(&live));
    cr_assert(live == 2);
    every_call_refuses(BERM_ERROR_SHUTDOWN, addr);
    EXPECT_MESSAGE("berm_shutdown");
    EXPECT(BERM_ERROR_SHUTDOWN, berm_shutdown(&live));
    cr_assert(live == 0);
    EXPECT(BERM_ERROR_SHUTDOWN, berm_free(0, 0, NULL));
    BERM_TEST_END();
}

Test(lifecycle, restart_by_init) {
    heap_fixture_begin(NULL);
    berm_addr_t old = heap_alloc(3 * MIB, NULL);
    EXPECT(BERM_OK, berm_shutdown(NULL));
    for (int round = 0; round < 5; round++) {
        EXPECT(BERM_OK, berm_init(heap_fixture_conf("headroom:9")));
        cr_assert(stats_of(0).reserved_bytes.total_up == 0); // a fresh instance
        EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(old, 0, NULL));
        char text[16];
        EXPECT(BERM_OK, berm_option_get("headroom", text, sizeof text));
        cr_assert(strcmp(text, "9") == 0);
        berm_addr_t addr = heap_alloc(5 * MIB, NULL);
        heap_use(NULL, addr, 5 * MIB, 1000);
        heap_free(addr, NULL);
        BERM_TEST_CHECK();
        EXPECT(BERM_OK, berm_shutdown(NULL));
    }
    BERM_TEST_END();
}

// --- fork --------------------------------------------------------------------------------------

Test(lifecycle, child_of_fork) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        EXPECT(BERM_ERROR_FORKED, berm_init(heap_fixture_conf(NULL)));
        EXPECT_MESSAGE("fork");
        every_call_refuses(BERM_ERROR_FORKED, addr);
        EXPECT_MESSAGE("fork");
        EXPECT(BERM_ERROR_FORKED, berm_shutdown(NULL));
        cr_assert(strcmp(berm_version(), "0.1.0") == 0);
        _exit(berm_status_text(BERM_ERROR_FORKED) != NULL ? 42 : 1);
    }
    int status = 0;
    cr_assert(waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42, "the child ended with %d", status);
    heap_use(NULL, addr, 3 * MIB, 1000); // the parent goes on
    heap_free(addr, NULL);
    BERM_TEST_END();
}

static void *locks_all_day(void *stop) {
    while (!*(_Atomic(int) *)stop)
        heap_free(heap_alloc(100000, BERM_STREAM_NONE), BERM_STREAM_NONE);
    return NULL;
}

// Whatever lock another thread held at the fork, the child does not wait for it.
Test(lifecycle, child_of_fork_while_others_allocate, .timeout = 60) {
    static _Atomic(int) stop;
    pthread_t thread;
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    cr_assert(pthread_create(&thread, NULL, locks_all_day, &stop) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0) {
            (void)alarm(20);
            berm_addr_t out = 7;
            bool is_right = berm_alloc(1000, 0, NULL, &out) == BERM_ERROR_FORKED && out == 0 &&
                            berm_free(addr, 0, NULL) == BERM_ERROR_FORKED;
            _exit(is_right ? 42 : 1);
        }
        int status = 0;
        cr_assert(waitpid(child, &status, 0) == child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    }
    stop = 1;
    cr_assert(pthread_join(thread, NULL) == 0);
    BERM_TEST_END();
}

// --- no driver ---------------------------------------------------------------------------------

Test(lifecycle, no_driver) {
    EXPECT(BERM_ERROR_NO_DRIVER, berm_init("driver:/nonexistent/libcuda.so.1"));
    EXPECT_MESSAGE("/nonexistent/libcuda.so.1");
    cr_assert(setenv("BERM_CONF", "driver:/nonexistent/libcuda.so.1", 1) == 0);
    berm_addr_t out = 7;
    int count = 7;
    EXPECT(BERM_ERROR_NO_DRIVER, berm_alloc(1000, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT_MESSAGE("no CUDA driver");
    EXPECT(BERM_ERROR_NO_DRIVER, berm_device_count(&count));
    cr_assert(count == 0);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(4096, 0, NULL));
    heap_fixture_begin(NULL); // a driver that appears later is found
    (void)heap_alloc(1000, NULL);
    BERM_TEST_END();
}

Test(lifecycle, a_library_that_is_no_driver) {
    EXPECT(BERM_ERROR_NO_DRIVER, berm_init("driver:libm.so.6"));
    EXPECT_MESSAGE("cuGetProcAddress");
}

Test(lifecycle, a_driver_that_does_not_start) {
    heap_fixture_begin(&(heap_fixture_options_t){.stays_stopped = 1});
    cr_assert(simcuda_fault_nth("cuInit", 1, 1, 100) == 0); // CUDA_ERROR_NO_DEVICE
    EXPECT(BERM_ERROR_NO_DRIVER, berm_init(heap_fixture_conf(NULL)));
    cr_assert(simcuda_fault_nth("cuInit", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_init(heap_fixture_conf(NULL)));
    EXPECT_MESSAGE("cuInit returned 999");
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
    BERM_TEST_END();
}

static void no_vmm_check(void) {
    berm_addr_t out = 7;
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    uint64_t bytes = 7;
    EXPECT(BERM_OK, berm_init(heap_fixture_conf("backing:vmm")));
    EXPECT(BERM_ERROR_NO_VMM, berm_alloc(1000, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT_MESSAGE("virtual memory management");
    EXPECT(BERM_ERROR_NO_VMM, berm_limit_set(0, 5));
    EXPECT(BERM_ERROR_NO_VMM, berm_limit_get(0, &bytes));
    EXPECT(BERM_ERROR_NO_VMM, berm_trim(0, 0, NULL));
    EXPECT(BERM_OK, berm_device_info_read(0, &info));
    cr_assert(info.has_vmm == 0 && info.granule_bytes == 0 && info.memory_bytes > 0);
    cr_assert(stats_of(0).reserved_bytes.total_up == 0);
    EXPECT(BERM_OK, berm_shutdown(NULL));
    simcuda_ledger_t ledger;
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.contexts_retained == 0 && ledger.used_bytes == 0);
}

Test(lifecycle, driver_without_vmm) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.has_vmm = 0;
    cr_assert(simcuda_reset(&config) == 0);
    no_vmm_check();
}

Test(lifecycle, driver_without_vmm_by_environment) {
    cr_assert(setenv("SIMCUDA_VMM", "0", 1) == 0);
    no_vmm_check();
}

// --- what a thread sees ------------------------------------------------------------------------

static void *another_thread(void *arg) {
    int code = 7;
    (void)arg;
    cr_assert(berm_driver_error_last(&code) == NULL && code == 0);
    cr_assert(strcmp(berm_error_message(), "") == 0);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(4096, 0, NULL));
    return NULL;
}

Test(lifecycle, errors_are_kept_by_thread) {
    berm_addr_t out = 7;
    int code = 0;
    pthread_t thread;
    heap_fixture_begin(NULL);
    cr_assert(simcuda_fault_nth("cuMemSetAccess", 1, 1, 719) == 0);
    cr_assert(berm_alloc(3 * MIB, 0, NULL, &out) != BERM_OK && out == 0);
    char message[300];
    (void)strncpy(message, berm_error_message(), sizeof message - 1);
    cr_assert(pthread_create(&thread, NULL, another_thread, NULL) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(strcmp(berm_driver_error_last(&code), "cuMemSetAccess") == 0 && code == 719);
    cr_assert(strcmp(berm_error_message(), message) == 0);
    (void)heap_alloc(3 * MIB, NULL); // a success leaves both as they are
    cr_assert(strcmp(berm_driver_error_last(NULL), "cuMemSetAccess") == 0);
    BERM_TEST_END();
}
