// SPDX-License-Identifier: Apache-2.0
// Options from their three sources, and berm_option_set, berm_option_get, berm_option_info.
#include "tests/api/api_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char file_path[] = "/tmp/berm_conf_XXXXXX";

// A file of options, named by BERM_CONF_FILE.
static void file_make(const char *text) {
    int descriptor = mkstemp(file_path);
    cr_assert(descriptor >= 0);
    cr_assert(write(descriptor, text, strlen(text)) == (ssize_t)strlen(text));
    cr_assert(close(descriptor) == 0);
    cr_assert(setenv("BERM_CONF_FILE", file_path, 1) == 0);
}

static void expect_option(const char *name, const char *want) {
    char text[64] = "x";
    EXPECT(BERM_OK, berm_option_get(name, text, sizeof text));
    cr_assert(strcmp(text, want) == 0, "%s is '%s', not '%s'", name, text, want);
}

static void start_refused(berm_status_t want, const char *api, const char *part) {
    heap_fixture_begin(&(heap_fixture_options_t){.stays_stopped = 1});
    EXPECT(want, berm_init(heap_fixture_conf(api)));
    EXPECT_MESSAGE(part);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.reservations == 0 && ledger.handles == 0); // nothing was started
    (void)unsetenv("BERM_CONF");
    (void)unsetenv("BERM_CONF_FILE");
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
    (void)heap_alloc(1000, NULL);
    BERM_TEST_END();
    (void)unlink(file_path);
}

Test(option, unknown_in_the_api) {
    start_refused(BERM_ERROR_OPTION_UNKNOWN, "heedroom:5", "berm_init: unknown option 'heedroom'");
}

Test(option, bad_value_in_the_api) {
    start_refused(BERM_ERROR_OPTION_VALUE, "headroom:-1", "berm_init: headroom: '-1'");
}

Test(option, no_value_in_the_api) {
    start_refused(BERM_ERROR_OPTION_VALUE, "headroom", "lacks a value");
}

Test(option, bad_value_in_the_environment) {
    cr_assert(setenv("BERM_CONF", "remap:sometimes", 1) == 0);
    start_refused(BERM_ERROR_OPTION_VALUE, NULL, "BERM_CONF: remap: 'sometimes'");
}

Test(option, bad_value_in_the_file) {
    file_make("# comment\nlimit:lots\n");
    start_refused(BERM_ERROR_OPTION_VALUE, NULL, "limit: 'lots'");
}

Test(option, file_that_is_not_there) {
    cr_assert(setenv("BERM_CONF", "conf_file:/nonexistent/berm.conf", 1) == 0);
    start_refused(BERM_ERROR_OPTION_VALUE, NULL, "/nonexistent/berm.conf");
}

Test(option, unknown_in_the_environment_with_abort_conf) {
    cr_assert(setenv("BERM_CONF", "heedroom:5,abort_conf:on", 1) == 0);
    start_refused(BERM_ERROR_OPTION_UNKNOWN, NULL, "BERM_CONF: unknown option 'heedroom'");
}

Test(option, unknown_in_the_file_with_abort_conf) {
    file_make("heedroom:5\n");
    cr_assert(setenv("BERM_CONF", "abort_conf:on", 1) == 0);
    start_refused(BERM_ERROR_OPTION_UNKNOWN, NULL, "unknown option 'heedroom'");
}

Test(option, unknown_in_the_environment_is_a_warning) {
    cr_assert(setenv("BERM_CONF", "heedroom:5,headroom:6", 1) == 0);
    heap_fixture_begin(NULL);
    expect_option("headroom", "6");
    BERM_TEST_END();
}

Test(option, api_over_environment_over_file) {
    file_make("headroom:3\ngrowth_handle:4M\nlimit:100M\n");
    cr_assert(setenv("BERM_CONF", "headroom:4,growth_handle:8M", 1) == 0);
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "headroom:5"});
    expect_option("headroom", "5");
    expect_option("growth_handle", "8M");
    expect_option("limit", "100M");
    (void)heap_alloc(1000, NULL);
    cr_assert(stats_of(0).limit_bytes == 100 * MIB);
    BERM_TEST_END();
    (void)unlink(file_path);
}

Test(option, a_bad_environment_fails_every_call_with_the_same_line) {
    berm_addr_t out = 7;
    cr_assert(setenv("BERM_CONF", "headroom:much", 1) == 0);
    for (int i = 0; i < 3; i++) {
        EXPECT(BERM_ERROR_OPTION_VALUE, berm_alloc(1000, 0, NULL, &out));
        cr_assert(out == 0);
        EXPECT_MESSAGE("'much'");
    }
}

Test(option, set_after_start) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    EXPECT(BERM_OK, berm_option_set("headroom", "25"));
    expect_option("headroom", "25");
    EXPECT(BERM_OK, berm_option_set("limit", "64M"));
    cr_assert(stats_of(0).limit_bytes == 64 * MIB);
    EXPECT(BERM_OK, berm_option_set("limit", "none"));
    cr_assert(stats_of(0).limit_bytes == UINT64_MAX);
    EXPECT(BERM_OK, berm_option_set("per_process_memory_fraction", "0.5"));
    cr_assert(stats_of(0).limit_bytes == 128 * MIB);
    EXPECT(BERM_OK, berm_option_set("remap", "off"));
    expect_option("remap", "off");
    BERM_TEST_END();
}

Test(option, set_refuses) {
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_OPTION_UNKNOWN, berm_option_set("heedroom", "5"));
    EXPECT(BERM_ERROR_OPTION_UNKNOWN, berm_option_set("", ""));
    EXPECT(BERM_ERROR_OPTION_VALUE, berm_option_set("headroom", "five"));
    EXPECT(BERM_ERROR_OPTION_VALUE, berm_option_set("headroom", ""));
    EXPECT(BERM_ERROR_OPTION_VALUE, berm_option_set("remap", "maybe"));
    EXPECT(BERM_ERROR_STATE, berm_option_set("growth_handle", "4M"));
    EXPECT_MESSAGE("growth_handle");
    EXPECT(BERM_ERROR_STATE, berm_option_set("driver", "x"));
    EXPECT(BERM_ERROR_ARGUMENT, berm_option_set(NULL, "5"));
    EXPECT(BERM_ERROR_ARGUMENT, berm_option_set("headroom", NULL));
    expect_option("headroom", "2");
    expect_option("growth_handle", "8M");
    BERM_TEST_END();
}

// An option that is not touched by a set must not change the limit that a call has set.
Test(option, set_of_another_option_keeps_the_limit) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    EXPECT(BERM_OK, berm_limit_set(0, 64 * MIB));
    EXPECT(BERM_OK, berm_option_set("headroom", "5"));
    cr_assert(stats_of(0).limit_bytes == 64 * MIB, "the limit is gone");
    EXPECT(BERM_OK, berm_option_set("limit", "none")); // the option that a limit belongs to, though
    cr_assert(stats_of(0).limit_bytes == UINT64_MAX, "limit:none was ignored");
    BERM_TEST_END();
}

Test(option, get_cuts_and_refuses) {
    char text[4] = "xyz";
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "limit:123M"});
    EXPECT(BERM_OK, berm_option_get("limit", text, sizeof text));
    cr_assert(strcmp(text, "123") == 0);
    EXPECT(BERM_OK, berm_option_get("limit", text, 1));
    cr_assert(text[0] == '\0');
    EXPECT(BERM_ERROR_OPTION_UNKNOWN, berm_option_get("heedroom", text, sizeof text));
    cr_assert(text[0] == '\0');
    EXPECT(BERM_ERROR_ARGUMENT, berm_option_get(NULL, text, sizeof text));
    EXPECT(BERM_ERROR_ARGUMENT, berm_option_get("limit", NULL, 4));
    EXPECT(BERM_ERROR_ARGUMENT, berm_option_get("limit", text, 0));
    BERM_TEST_END();
}

Test(option, info_lists_every_option_that_get_knows) {
    size_t count = 0;
    heap_fixture_begin(NULL);
    for (const berm_option_info_t *info; (info = berm_option_info(count)) != NULL; count++) {
        char text[128];
        cr_assert(info->name[0] != '\0' && info->kind[0] != '\0' && strlen(info->text) > 10);
        EXPECT(BERM_OK, berm_option_get(info->name, text, sizeof text));
        bool is_set = strcmp(info->name, "driver") == 0 || strcmp(info->name, "thread_cache") == 0;
        if (!is_set)
            cr_assert(strcmp(text, info->default_value) == 0, "%s: %s", info->name, text);
        berm_status_t status = berm_option_set(info->name, info->default_value);
        cr_assert(status == (info->is_runtime ? BERM_OK : BERM_ERROR_STATE), "%s", info->name);
    }
    cr_assert(count >= 11);
    cr_assert(berm_option_info(count) == NULL && berm_option_info(SIZE_MAX) == NULL);
    BERM_TEST_END();
}
