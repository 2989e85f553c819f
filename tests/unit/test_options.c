// SPDX-License-Identifier: Apache-2.0
// front/options.h: defaults, every option's values, the text form, sources and their precedence,
// bad input. The public berm_option_info comes from the same table.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "berm_introspect.h"
#include "front/options.h"

static berm_options_t options;
static char error[BERM_OPTION_TEXT_BYTES];
static unsigned line_count;
static char last_line[BERM_LOG_LINE_BYTES];

static void sink_take(void *context, berm_log_level_t level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(last_line, sizeof last_line, "%s", line);
    line_count++;
}

static void setup(void) {
    (void)unsetenv("BERM_CONF");
    (void)unsetenv("BERM_CONF_FILE");
    berm__log_sink_set(sink_take, NULL);
    berm__options_default(&options);
}

TestSuite(options, .init = setup);

static berm_status_t parse(const char *text) {
    error[0] = '\0';
    return berm__options_parse(&options, text, "test", error, sizeof error);
}

static const char *value_of(const char *name) {
    static char value[BERM_OPTION_TEXT_BYTES];
    cr_assert(berm__option_get(&options, name, value, sizeof value) == BERM_OK, "%s", name);
    return value;
}

Test(options, defaults) {
    cr_assert(options.headroom_pct == 2);
    cr_assert(options.remap == BERM_REMAP_PASSED);
    cr_assert(options.limit_bytes == UINT64_MAX);
    cr_assert(options.memory_fraction == 0);
    cr_assert(options.handle_bytes == BERM_MIB(8));
    cr_assert_str_eq(options.driver, "libcuda.so.1");
    cr_assert(!options.audit && !options.abort_conf);
    cr_assert(options.log == BERM_LOG_WARN);
    cr_assert(options.host_memory == BERM_MEM_AUTO);
    cr_assert_str_eq(options.conf_file, "");
    cr_assert_str_eq(options.error, "");
}

Test(options, info_is_complete_and_get_gives_the_default) {
    size_t count = 0;
    for (const berm_option_info_t *info; (info = berm_option_info(count)) != NULL; count++) {
        cr_assert(info->name[0] != '\0' && info->kind[0] != '\0' && info->range[0] != '\0');
        cr_assert(strlen(info->text) > 10, "%s", info->name);
        cr_assert_str_eq(value_of(info->name), info->default_value);
        for (size_t i = 0; i < count; i++)
            cr_assert(strcmp(info->name, berm_option_info(i)->name) != 0);
    }
    cr_assert(count == 26);
    cr_assert(berm_option_info(count) == NULL && berm_option_info(SIZE_MAX) == NULL);
    cr_assert_str_eq(berm_option_info(0)->name, "headroom");
    cr_assert_str_eq(berm_option_info(0)->kind, "percent");
}

Test(options, text_form) {
    cr_assert(parse(" headroom : 10 ,\n\tlimit:4G,, # a comment, with : and ,\nremap:off\r\n") ==
              BERM_OK);
    cr_assert(options.headroom_pct == 10 && options.limit_bytes == BERM_GIB(4));
    cr_assert(options.remap == BERM_REMAP_OFF);
    cr_assert(parse("") == BERM_OK && parse(" ,\n, ") == BERM_OK && parse("#") == BERM_OK);
    cr_assert(parse("headroom:3,headroom:4") == BERM_OK && options.headroom_pct == 4);
    cr_assert(parse("driver:/opt/a:b/lib#1.so") == BERM_OK);
    cr_assert_str_eq(options.driver, "/opt/a:b/lib#1.so");
    cr_assert(line_count == 0);
}

static const char good_values[][3][32] = {
    {"headroom", "0", "0"},
    {"headroom", "2.5", "2.5"},
    {"headroom", "2.5%", "2.5"},
    {"headroom", "100000", "100000"},
    {"headroom", "0.000000001", "0.000000001"},
    {"headroom", "99999.999999999", "99999.999999999"},
    {"headroom", "007.50", "7.5"},
    {"per_process_memory_fraction", "0.499", "0.499"},
    {"per_process_memory_fraction", "1", "1"},
    {"per_process_memory_fraction", "1.0", "1"},
    {"limit", "1", "1"},
    {"limit", "1k", "1K"},
    {"limit", "1536M", "1536M"},
    {"limit", "2048M", "2G"},
    {"limit", "4194304T", "4194304T"},
    {"limit", "4611686018427387903", "4611686018427387903"},
    {"limit", "none", "none"},
    {"growth_handle", "64K", "64K"},
    {"growth_handle", "2097152", "2M"},
    {"growth_handle", "64G", "64G"},
    {"remap", "off", "off"},
    {"remap", "passed", "passed"},
    {"audit", "True", "on"},
    {"audit", "false", "off"},
    {"audit", "1", "on"},
    {"log", "error", "error"},
    {"log", "info", "info"},
    {"host_memory", "mmap", "mmap"},
    {"host_memory", "jemalloc", "jemalloc"},
    {"driver", "libcuda.so", "libcuda.so"},
};

// What option_get writes, option_set takes back to the same value.
Test(options, values_and_back) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(good_values); i++) {
        berm_status_t status = berm__option_set(&options, good_values[i][0], good_values[i][1],
                                                false, error, sizeof error);
        cr_assert(status == BERM_OK, "%s", error);
        cr_assert_str_eq(value_of(good_values[i][0]), good_values[i][2]);
        status = berm__option_set(&options, good_values[i][0], good_values[i][2], false, error,
                                  sizeof error);
        cr_assert(status == BERM_OK, "%s", error);
        cr_assert_str_eq(value_of(good_values[i][0]), good_values[i][2]);
    }
}

static const char bad_values[][2][32] = {
    {"headroom", ""},
    {"headroom", "-1"},
    {"headroom", "+1"},
    {"headroom", "1e3"},
    {"headroom", "nan"},
    {"headroom", "inf"},
    {"headroom", "100001"},
    {"headroom", "100000.1"},
    {"headroom", "2.5x"},
    {"headroom", "2,5"},
    {"headroom", "2."},
    {"headroom", ".5"},
    {"headroom", "0x10"},
    {"headroom", "2.0000000001"},
    {"headroom", "%"},
    {"headroom", "2%%"},
    {"headroom", " 2"},
    {"headroom", "99999999999999999999"},
    {"limit", "0"},
    {"limit", "-1"},
    {"limit", "G"},
    {"limit", "0.1G"},
    {"limit", "1.5"},
    {"limit", "1.G"},
    {"limit", ".5G"},
    {"limit", "1.0000000000G"},
    {"limit", "1GG"},
    {"limit", "1Gi"},
    {"limit", "1Gib"},
    {"limit", "1GBx"},
    {"limit", "1iB"},
    {"limit", "1P"},
    {"limit", "4611686018427387905"},
    {"limit", "8388608T"},
    {"limit", "16777216T"},
    {"limit", "1 G"},
    {"limit", "18446744073709551616"},
    {"limit", "None"},
    {"limit", "18446744073709551615"},
    {"growth_handle", "3M"},
    {"growth_handle", "0"},
    {"growth_handle", "32K"},
    {"growth_handle", "128G"},
    {"growth_handle", "none"},
    {"per_process_memory_fraction", "1.1"},
    {"remap", "Off"},
    {"remap", "passed|off"},
    {"remap", ""},
    {"remap", "pass"},
    {"audit", "yes"},
    {"audit", "2"},
    {"log", "debug"},
    {"host_memory", "tcmalloc"},
    {"driver", ""},
    {"per_process_memory_fraction", "0.5%"},
};

Test(options, bad_values_are_refused_and_change_nothing) {
    berm_options_t before = options;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad_values); i++) {
        error[0] = '\0';
        berm_status_t status = berm__option_set(&options, bad_values[i][0], bad_values[i][1], false,
                                                error, sizeof error);
        cr_assert(status == BERM_ERROR_OPTION_VALUE, "%s:%s", bad_values[i][0], bad_values[i][1]);
        cr_assert(strstr(error, bad_values[i][0]) != NULL && strchr(error, '\n') == NULL, "%s",
                  error);
        cr_assert(memcmp(&before, &options, sizeof options) == 0);
    }
}

Test(options, long_texts) {
    char text[BERM_OPTION_TEXT_BYTES + 1];
    memset(text, 'x', sizeof text);
    text[BERM_OPTION_TEXT_BYTES] = '\0';
    cr_assert(berm__option_set(&options, "driver", text, false, error, sizeof error) ==
              BERM_ERROR_OPTION_VALUE);
    text[BERM_OPTION_TEXT_BYTES - 1] = '\0';
    cr_assert(berm__option_set(&options, "driver", text, false, error, sizeof error) == BERM_OK);
    cr_assert_str_eq(options.driver, text);
    char few[5];
    cr_assert(berm__option_get(&options, "driver", few, sizeof few) == BERM_OK);
    cr_assert_str_eq(few, "xxxx");
    cr_assert(berm__option_get(&options, "driver", few, 0) == BERM_ERROR_ARGUMENT);
    cr_assert(berm__option_get(&options, "drivers", few, 5) == BERM_ERROR_OPTION_UNKNOWN);
}

Test(options, a_bad_text_changes_nothing) {
    berm_options_t before = options;
    cr_assert(parse("headroom:5,limit:1G,remap:maybe") == BERM_ERROR_OPTION_VALUE);
    cr_assert_str_eq(error, "test: remap: 'maybe' is not one of its values (passed|off|alias)");
    cr_assert(memcmp(&before, &options, sizeof options) == 0);
    cr_assert(parse("headroom:5,limit") == BERM_ERROR_OPTION_VALUE);
    cr_assert_str_eq(error, "test: 'limit' lacks a value; write key:value");
    cr_assert(memcmp(&before, &options, sizeof options) == 0);
    cr_assert(berm__options_parse(&options, "limit:x", "test", NULL, 0) == BERM_ERROR_OPTION_VALUE);
}

Test(options, unknown_keys_warn) {
    cr_assert(parse("headrom:5,headroom:6") == BERM_OK);
    cr_assert(options.headroom_pct == 6 && line_count == 1);
    cr_assert_str_eq(last_line, "test: unknown option 'headrom' ignored; `berm conf` lists all");
    line_count = 0;
    cr_assert(parse("a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1,:1") == BERM_OK);
    cr_assert(line_count == 8);
}

Test(options, abort_conf_makes_them_errors_wherever_it_stands) {
    cr_assert(parse("headrom:5,abort_conf:true") == BERM_ERROR_OPTION_UNKNOWN);
    cr_assert_str_eq(error, "test: unknown option 'headrom'; `berm conf` lists all");
    cr_assert(parse("abort_conf:true,headrom:5") == BERM_ERROR_OPTION_UNKNOWN);
    cr_assert(!options.abort_conf && line_count == 0);
    cr_assert(parse("abort_conf:true") == BERM_OK);
    cr_assert(parse("headrom:5") == BERM_ERROR_OPTION_UNKNOWN);
    cr_assert(parse("abort_conf:false,headrom:5") == BERM_OK && line_count == 1);
}

Test(options, set_after_start) {
    size_t index = 0;
    for (const berm_option_info_t *info; (info = berm_option_info(index)) != NULL; index++) {
        if (strcmp(info->name, "conf_file") == 0)
            continue;
        berm_status_t status =
            berm__option_set(&options, info->name, info->default_value, true, error, sizeof error);
        cr_assert(status == (info->is_runtime ? BERM_OK : BERM_ERROR_STATE), "%s", info->name);
    }
    cr_assert(berm__option_set(&options, "conf_file", "x", false, error, sizeof error) ==
              BERM_ERROR_OPTION_VALUE);
    cr_assert(berm__option_set(&options, "headrom", "1", false, error, sizeof error) ==
              BERM_ERROR_OPTION_UNKNOWN);
    cr_assert(berm__option_set(&options, "", "1", false, error, sizeof error) ==
              BERM_ERROR_OPTION_UNKNOWN);
}

// --- sources -------------------------------------------------------------------------------------

static char file_path[64];

static void file_write(const char *text, size_t length) {
    (void)snprintf(file_path, sizeof file_path, "/tmp/berm-test-options-XXXXXX");
    int file = mkstemp(file_path);
    cr_assert(file >= 0);
    cr_assert(write(file, text, length) == (ssize_t)length);
    (void)close(file);
}

static void file_write_text(const char *text) {
    file_write(text, strlen(text));
}

static void env_set(const char *format, const char *argument) {
    char text[256];
    (void)snprintf(text, sizeof text, format, argument);
    cr_assert(setenv("BERM_CONF", text, 1) == 0);
}

Test(options, precedence_of_sources) {
    file_write_text("headroom:1\nlimit:1G\nremap:off # not a comment\n");
    env_set("conf_file:%s", file_path);
    cr_assert(berm__options_load(&options, NULL) == BERM_ERROR_OPTION_VALUE); // the tail
    (void)unlink(file_path);
    file_write_text("# ours\nheadroom:1\nlimit:1G\nremap:off\n");
    env_set("headroom:2.5,limit:2G,conf_file:%s", file_path);
    cr_assert(berm__options_load(&options, "headroom:3") == BERM_OK, "%s", options.error);
    cr_assert(options.headroom_pct == 3);
    cr_assert(options.limit_bytes == BERM_GIB(2));
    cr_assert(options.remap == BERM_REMAP_OFF);
    cr_assert_str_eq(options.conf_file, file_path);
    cr_assert_str_eq(options.error, "");
    (void)unlink(file_path);
}

Test(options, file_named_by_a_variable) {
    file_write_text("headroom:7");
    cr_assert(setenv("BERM_CONF_FILE", file_path, 1) == 0);
    cr_assert(berm__options_load(&options, NULL) == BERM_OK, "%s", options.error);
    cr_assert(options.headroom_pct == 7);
    char first[64];
    (void)snprintf(first, sizeof first, "%s", file_path);
    file_write_text("headroom:8");
    env_set("conf_file:%s", file_path); // the key wins
    cr_assert(berm__options_load(&options, NULL) == BERM_OK, "%s", options.error);
    cr_assert(options.headroom_pct == 8);
    (void)unlink(first);
    (void)unlink(file_path);
}

Test(options, no_source_is_the_defaults) {
    berm_options_t defaults = options;
    memset(&options, 0xff, sizeof options);
    cr_assert(berm__options_load(&options, NULL) == BERM_OK);
    cr_assert(memcmp(&defaults, &options, sizeof options) == 0);
    cr_assert(setenv("BERM_CONF", "", 1) == 0 && setenv("BERM_CONF_FILE", "", 1) == 0);
    cr_assert(berm__options_load(&options, "") == BERM_OK);
    cr_assert(memcmp(&defaults, &options, sizeof options) == 0);
}

Test(options, unknown_keys_by_source) {
    env_set("%s:1", "nonsense");
    cr_assert(berm__options_load(&options, NULL) == BERM_OK && line_count == 1);
    cr_assert(berm__options_load(&options, "nonsense:1") == BERM_ERROR_OPTION_UNKNOWN);
    cr_assert(strstr(options.error, "berm_init") != NULL && strstr(last_line, "nonsense") != NULL);
    cr_assert(berm__options_load(&options, "abort_conf:true") == BERM_ERROR_OPTION_UNKNOWN);
    cr_assert(strstr(options.error, "BERM_CONF") != NULL);
    env_set("%s:1,abort_conf:true", "nonsense");
    cr_assert(berm__options_load(&options, "abort_conf:false") == BERM_OK);
    file_write_text("nonsense:2");
    env_set("conf_file:%s,abort_conf:on", file_path);
    cr_assert(berm__options_load(&options, NULL) == BERM_ERROR_OPTION_UNKNOWN);
    cr_assert(strstr(options.error, file_path) != NULL);
    (void)unlink(file_path);
}

Test(options, a_failed_load_leaves_the_defaults) {
    berm_options_t defaults = options;
    env_set("headroom:9,limit:%s", "10GG");
    cr_assert(berm__options_load(&options, NULL) == BERM_ERROR_OPTION_VALUE);
    cr_assert_str_eq(options.error, "BERM_CONF: limit: '10GG' is no size such as 512M, 1.5G or "
                                    "20GiB (1..2^62 with K, M, G or T, or none)");
    cr_assert_str_eq(last_line, options.error);
    options.error[0] = '\0';
    memset(options.error, 0, sizeof options.error);
    cr_assert(memcmp(&defaults, &options, sizeof options) == 0);
}

// What the command line takes.
Test(options, sizes) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"limit:1.5G", UINT64_C(3) << 29},
                 {"limit:20GB", UINT64_C(20) << 30},
                 {"limit:20GiB", UINT64_C(20) << 30},
                 {"limit:20gB", UINT64_C(20) << 30},
                 {"limit:4096B", 4096},
                 {"limit:1.0", 1},
                 {"limit:0.5k", 512},
                 {"limit:0.001953125K", 2},
                 {"limit:2.25MiB", UINT64_C(9) << 18},
                 {"limit:4194304T", UINT64_C(1) << 62}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(sizes); i++) {
        cr_assert(parse(sizes[i].text) == BERM_OK, "%s: %s", sizes[i].text, error);
        cr_assert(options.limit_bytes == sizes[i].bytes, "%s", sizes[i].text);
    }
}

// The form is wrong, or the number.
Test(options, what_is_wrong_with_a_value) {
    static const char *const texts[][2] = {{"limit:20Gb", "is no size such as"},
                                           {"limit:20 G", "is no size such as"},
                                           {"limit:0.1G", "is no whole number of"},
                                           {"limit:0", "is not in its range"},
                                           {"limit:16777216T", "is not in its range"},
                                           {"growth_handle:3M", "is not in its range"},
                                           {"headroom:x", "is no number such as"},
                                           {"headroom:100001%", "is not in its range"},
                                           {"headroom:2%%", "is no number such as"},
                                           {"per_process_memory_fraction:x", "is no number"},
                                           {"log:debug", "is not one of its values"},
                                           {"audit:2", "is not one of its values"},
                                           {"decay_ms:-2", "is not in its range"}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(texts); i++) {
        cr_assert(parse(texts[i][0]) == BERM_ERROR_OPTION_VALUE, "%s", texts[i][0]);
        cr_assert(strstr(error, texts[i][1]) != NULL, "%s", error);
    }
}

Test(options, errors_in_a_file_name_the_line) {
    static const struct {
        const char *text, *place;
    } files[] = {{"headroom:x", ":1: headroom"},
                 {"# a comment\n\n headroom:1, limit:2G\n\tlimit:10GG\n", ":4: limit"},
                 {"headroom:1\nlimit\n", ":2: 'limit' lacks"},
                 {"\r\n\r\nconf_file:x", ":3: conf_file"}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(files); i++) {
        file_write_text(files[i].text);
        env_set("conf_file:%s", file_path);
        cr_assert(berm__options_load(&options, NULL) == BERM_ERROR_OPTION_VALUE);
        cr_assert(strncmp(options.error, file_path, strlen(file_path)) == 0, "%s", options.error);
        cr_assert(
            strncmp(options.error + strlen(file_path), files[i].place, strlen(files[i].place)) == 0,
            "%s", options.error);
        (void)unlink(file_path);
    }
    file_write_text("headroom:1\n\nnonsense:2\n");
    env_set("conf_file:%s", file_path);
    cr_assert(berm__options_load(&options, NULL) == BERM_OK);
    cr_assert(strstr(last_line, ":3: unknown option 'nonsense' ignored") != NULL, "%s", last_line);
    (void)unlink(file_path);
}

Test(options, conf_file_only_from_the_environment) {
    cr_assert(berm__options_load(&options, "conf_file:/etc/berm.conf") == BERM_ERROR_OPTION_VALUE);
    cr_assert(strstr(options.error, "BERM_CONF") != NULL);
    file_write_text("conf_file:/etc/berm.conf");
    env_set("conf_file:%s", file_path);
    cr_assert(berm__options_load(&options, NULL) == BERM_ERROR_OPTION_VALUE);
    (void)unlink(file_path);
}

static void file_expect_refused(const char *path, const char *why) {
    env_set("conf_file:%s", path);
    cr_assert(berm__options_load(&options, NULL) == BERM_ERROR_OPTION_VALUE);
    cr_assert(strstr(options.error, path) != NULL, "%s", options.error);
    cr_assert(strstr(options.error, why) != NULL, "%s", options.error);
}

Test(options, files_that_cannot_be_read, .timeout = 5) {
    file_expect_refused("/nonexistent/berm.conf", "No such file");
    file_expect_refused("/tmp", "not a regular file");
    file_expect_refused("/dev/zero", "not a regular file");
    static char large[BERM_OPTION_FILE_MAX_BYTES + 1];
    memset(large, ',', sizeof large);
    file_write(large, sizeof large);
    file_expect_refused(file_path, "larger than 16 KiB");
    (void)unlink(file_path);
    file_write(large, sizeof large - 1);
    env_set("conf_file:%s", file_path);
    cr_assert(berm__options_load(&options, NULL) == BERM_OK, "%s", options.error);
    (void)unlink(file_path);
    file_write("headroom:5\0limit:1", 18);
    file_expect_refused(file_path, "NUL");
    (void)unlink(file_path);
    (void)snprintf(file_path, sizeof file_path, "/tmp/berm-test-fifo-%d", (int)getpid());
    cr_assert(mkfifo(file_path, 0600) == 0);
    file_expect_refused(file_path, "not a regular file"); // and does not wait for a writer
    (void)unlink(file_path);
}

Test(options, numbers_do_not_depend_on_the_locale) {
    static const char locales[][12] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", ""};
    for (int i = 0; i < 4; i++) {
        (void)setlocale(LC_ALL, locales[i]); // where it is installed
        cr_assert(parse("headroom:2.5") == BERM_OK && options.headroom_pct == 2.5);
        cr_assert_str_eq(value_of("headroom"), "2.5");
    }
}

// No text crashes, and one that is refused changes nothing.
Test(options, random_texts) {
    static const char pieces[][12] = {"headroom", "limit", ":", ",",     "\n",   "#",
                                      " ",        "1",     "G", "remap", "off",  "9",
                                      ".",        "%",     "-", "x",     "\xff", "none"};
    berm_rng_t rng;
    berm__rng_seed(&rng, 11);
    for (int i = 0; i < 3000; i++) {
        char text[256] = "";
        for (uint64_t n = berm__rng_below(&rng, 20); n > 0; n--)
            strcat(text, pieces[berm__rng_below(&rng, BERM_ARRAY_LENGTH(pieces))]);
        berm_options_t before = options;
        if (parse(text) != BERM_OK) {
            cr_assert(strncmp(error, "test: ", 6) == 0, "%s", error);
            cr_assert(memcmp(&before, &options, sizeof options) == 0, "%s", text);
        }
    }
}
