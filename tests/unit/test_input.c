// SPDX-License-Identifier: Apache-2.0
// Loading and unpacking: files, pipes, gzip that is cut off, damaged or a bomb.
#include "stress/trace/input.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/trace_helpers.h"

static void expect_error(const char *format, const char *path) {
    char expected[256];
    snprintf(expected, sizeof expected, format, path);
    cr_assert(strcmp(th_error, expected) == 0, "got:      %s\nexpected: %s", th_error, expected);
}

static int load(trace_input_t *input, const char *path) {
    th_error[0] = '\0';
    return trace_input_load(input, path, NULL, th_error, sizeof th_error);
}

static int borrow(trace_input_t *input, th_bytes_t bytes, const trace_input_limits_t *limits) {
    th_error[0] = '\0';
    return trace_input_borrow(input, "T", bytes.bytes, bytes.size, limits, th_error,
                              sizeof th_error);
}

Test(input, loads_plain_and_gzip_files_alike) {
    th_folder_t folder = th_make_folder();
    th_bytes_t text = {0};
    th_put_repeated(&text, 'x', 300000);
    th_bytes_t packed = th_gzip(text.bytes, text.size);
    const char *paths[2] = {
        th_write_file(&folder, "plain.gz", text.bytes, text.size), // the name does not count
        th_write_file(&folder, "packed", packed.bytes, packed.size),
    };
    for (size_t i = 0; i < 2; i++) {
        trace_input_t input;
        cr_assert(load(&input, paths[i]) == 0, "%s", th_error);
        cr_assert(input.name == paths[i] && input.size == text.size);
        cr_assert(memcmp(input.bytes, text.bytes, text.size) == 0);
        trace_input_unload(&input);
        cr_assert(input.bytes == NULL && input.owned == NULL);
    }
    free(text.bytes);
    free(packed.bytes);
    th_remove_folder(&folder);
}

Test(input, says_why_a_file_cannot_be_loaded) {
    th_folder_t folder = th_make_folder();
    trace_input_t input;
    const char *missing = th_name_file(&folder, "missing");
    cr_assert(load(&input, missing) == -1);
    expect_error("%s: No such file or directory", missing);
    cr_assert(load(&input, folder.path) == -1);
    expect_error("%s: is a directory, not a trace", folder.path);
    cr_assert(load(&input, "/dev/zero") == -1);
    expect_error("%s: is neither a file nor a pipe", "/dev/zero");
    const char *empty = th_write_file(&folder, "empty", NULL, 0);
    cr_assert(load(&input, empty) == 0 && input.size == 0);
    trace_input_unload(&input);
    th_remove_folder(&folder);
}

Test(input, stops_at_the_limit_of_size) {
    th_folder_t folder = th_make_folder();
    trace_input_t input;
    trace_input_limits_t limits = {.size_bytes = 1000};
    th_bytes_t text = {0};
    th_put_repeated(&text, 'x', 1000);
    const char *fits = th_write_file(&folder, "fits", text.bytes, text.size);
    th_put_repeated(&text, 'x', 1);
    const char *large = th_write_file(&folder, "large", text.bytes, text.size);
    cr_assert(trace_input_load(&input, fits, &limits, th_error, sizeof th_error) == 0);
    trace_input_unload(&input);
    cr_assert(trace_input_load(&input, large, &limits, th_error, sizeof th_error) == -1);
    expect_error("%s: is larger than is read; cut the recording into shorter ones", large);
    th_bytes_t packed = th_gzip(text.bytes, text.size);
    cr_assert(borrow(&input, packed, &limits) == -1);
    cr_assert(strstr(th_error, "unpacks to more than is read") != NULL, "%s", th_error);
    free(packed.bytes);
    free(text.bytes);
    th_remove_folder(&folder);
}

Test(input, reads_a_pipe) {
    th_folder_t folder = th_make_folder();
    const char *path = th_name_file(&folder, "pipe");
    cr_assert(mkfifo(path, 0600) == 0);
    pid_t writer = fork();
    cr_assert(writer >= 0);
    if (writer == 0) {
        FILE *file = fopen(path, "wb");
        for (int i = 0; file != NULL && i < 200000; i++) {
            fputc('p', file);
        }
        _exit(file == NULL || fclose(file) != 0);
    }
    trace_input_t input;
    cr_assert(load(&input, path) == 0, "%s", th_error);
    cr_assert(input.size == 200000 && input.bytes[199999] == 'p');
    trace_input_unload(&input);
    int status = -1;
    cr_assert(waitpid(writer, &status, 0) == writer && status == 0);
    th_remove_folder(&folder);
}

Test(input, reads_gzip_members_one_after_another) {
    th_bytes_t both = th_gzip("hello ", 6);
    th_bytes_t second = th_gzip("world", 5);
    th_put(&both, second.bytes, second.size);
    trace_input_t input;
    cr_assert(borrow(&input, both, NULL) == 0, "%s", th_error);
    cr_assert(input.size == 11 && memcmp(input.bytes, "hello world", 11) == 0);
    trace_input_unload(&input);
    free(both.bytes);
    free(second.bytes);
}

Test(input, refuses_gzip_cut_off_anywhere) {
    th_bytes_t packed = th_gzip("some text that is long enough to be packed", 42);
    for (size_t size = 2; size < packed.size; size++) {
        uint8_t *copy = malloc(size);
        cr_assert(copy != NULL);
        memcpy(copy, packed.bytes, size);
        trace_input_t input;
        cr_assert(borrow(&input, (th_bytes_t){.bytes = copy, .size = size}, NULL) == -1);
        char expected[64];
        snprintf(expected, sizeof expected, "T: at byte %zu: gzip: the data is cut off", size);
        expect_error("%s", expected);
        free(copy);
    }
    free(packed.bytes);
}

Test(input, refuses_damaged_gzip_and_garbage_after_it) {
    th_bytes_t packed = th_gzip("some text that is long enough to be packed", 42);
    trace_input_t input;
    packed.bytes[packed.size - 6] ^= 1; // in the checksum
    cr_assert(borrow(&input, packed, NULL) == -1);
    cr_assert(strstr(th_error, "gzip: the data is damaged") != NULL, "%s", th_error);
    packed.bytes[packed.size - 6] ^= 1;
    th_put_text(&packed, "garbage");
    cr_assert(borrow(&input, packed, NULL) == -1);
    cr_assert(strstr(th_error, "gzip: the data is damaged") != NULL, "%s", th_error);
    free(packed.bytes);
}

Test(input, refuses_a_gzip_bomb_early, .timeout = 60) {
    size_t size = (size_t)200 << 20;
    uint8_t *zeros = calloc(size, 1);
    cr_assert(zeros != NULL);
    th_bytes_t bomb = th_gzip(zeros, size); // about 200 KB
    free(zeros);
    trace_input_t input;
    cr_assert(borrow(&input, bomb, NULL) == -1);
    cr_assert(strstr(th_error, "refused as a bomb") != NULL, "%s", th_error);
    size_t at = 0;
    cr_assert(sscanf(th_error, "T: at byte %zu:", &at) == 1);
    cr_assert(at < bomb.size / 2, "stopped after %zu of %zu bytes", at, bomb.size);
    trace_input_limits_t generous = {.ratio = 2000};
    cr_assert(borrow(&input, bomb, &generous) == 0, "%s", th_error);
    cr_assert(input.size == size);
    trace_input_unload(&input);
    free(bomb.bytes);
}

Test(input, an_error_is_one_printable_line_whatever_the_name) {
    trace_input_t input;
    cr_assert(load(&input, "no/such\nfile\x1b[2J") == -1);
    expect_error("%s: No such file or directory", "no/such?file?[2J");
    char small[8];
    trace_fail(small, sizeof small, "%s", "longer than eight");
    cr_assert(strcmp(small, "longer ") == 0);
    trace_fail(NULL, 0, "nothing to write to");
}
