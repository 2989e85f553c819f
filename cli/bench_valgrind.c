// SPDX-License-Identifier: Apache-2.0
// Instruction counts for `berm bench` where the kernel does not let a process count its own: the
// program runs itself under valgrind twice, with few and with many operations; the difference is
// what the operations cost.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.h"

extern char **environ;

enum {
    OPERATIONS_FEW = 500,
    OPERATIONS_MANY = 1500,
    LIVE_MAX = 10000, // filling more takes minutes under valgrind
};

int cli_bench_spawn(char *const *argv, int descriptor, char *output, size_t capacity) {
    int ends[2];
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        int other = descriptor == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO;
        if (posix_spawn_file_actions_adddup2(&actions, ends[1], descriptor) != 0 ||
            posix_spawn_file_actions_addopen(&actions, other, "/dev/null", O_WRONLY, 0) != 0 ||
            posix_spawnp(&child, argv[0], &actions, NULL, argv, environ) != 0)
            child = -1;
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]);
    size_t length = 0;
    while (child > 0) {
        if (length == capacity - 1) { // keep the end
            memmove(output, output + capacity / 2, length - capacity / 2);
            length -= capacity / 2;
        }
        ssize_t got = read(ends[0], output + length, capacity - 1 - length);
        if (got > 0)
            length += (size_t)got;
        else if (got == 0 || errno != EINTR)
            break;
    }
    output[length] = '\0';
    (void)close(ends[0]);
    int status = 0;
    if (child <= 0)
        return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// "==12== I   refs:      1,234,567"
static bool refs_parse(const char *output, uint64_t *count) {
    const char *at = strstr(output, "refs:");
    if (at == NULL)
        return false;
    at += strlen("refs:");
    at += strspn(at, " ");
    *count = 0;
    bool has_digit = false;
    for (; (*at >= '0' && *at <= '9') || *at == ','; at++) {
        has_digit = has_digit || *at != ',';
        if (*at != ',')
            *count = *count * 10 + (uint64_t)(*at - '0');
    }
    return has_digit;
}

static bool valgrind_run(const cli_bench_t *bench, const bench_row_t *row, const char *more_conf,
                         unsigned operations, uint64_t *count) {
    char path[PATH_MAX], number[16], headroom[32], output[8192], seed[32], conf[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    (void)snprintf(number, sizeof number, "%u", operations);
    (void)snprintf(headroom, sizeof headroom, "%.6g", bench->options.headroom_pct);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, bench->options.seed);
    bool has_conf = bench->options.conf != NULL && *bench->options.conf != '\0';
    (void)snprintf(conf, sizeof conf, "%s%s%s", has_conf ? bench->options.conf : "",
                   has_conf && *more_conf != '\0' ? "," : "", more_conf);
    char *argv[32] = {"valgrind",
                      "--tool=cachegrind",
                      "--cache-sim=no",
                      "--cachegrind-out-file=/dev/null",
                      path,
                      "bench",
                      "--bare",
                      number,
                      "--seed",
                      seed,
                      "--benchmark",
                      (char *)row->benchmark->name,
                      "--allocator",
                      (char *)row->allocator,
                      "--conf",
                      conf};
    if (bench->options.headroom_pct >= 0) {
        argv[16] = "--headroom";
        argv[17] = headroom;
    }
    return cli_bench_spawn(argv, STDERR_FILENO, output, sizeof output) == 0 &&
           refs_parse(output, count);
}

// Instructions an operation, or -1.
static double valgrind_count(const cli_bench_t *bench, const bench_row_t *row,
                             const char *more_conf) {
    uint64_t few = 0, many = 0;
    if (!valgrind_run(bench, row, more_conf, OPERATIONS_FEW, &few) ||
        !valgrind_run(bench, row, more_conf, OPERATIONS_MANY, &many) || many <= few)
        return -1;
    return (double)(many - few) / (OPERATIONS_MANY - OPERATIONS_FEW);
}

int cli_bench_valgrind(cli_bench_t *bench) {
    char output[256];
    char *const version[] = {"valgrind", "--version", NULL};
    if (cli_bench_spawn(version, STDOUT_FILENO, output, sizeof output) != 0)
        return cli_fail("bench", "--instructions: the kernel does not let this process count its "
                                 "own and valgrind is not installed");
    for (size_t i = 0; i < bench->row_count; i++) {
        bench_row_t *row = &bench->rows[i];
        cli_progress("instructions", i, bench->row_count);
        if (row->mean_ns < 0 || row->instructions >= 0 || row->benchmark->live > LIVE_MAX ||
            (row->benchmark->kind != BENCH_PAIR && row->benchmark->kind != BENCH_CHURN))
            continue;
        row->instructions = valgrind_count(bench, row, "");
        if (row->benchmark->is_ring)
            row->off_instructions = valgrind_count(bench, row, "event_ring:off");
    }
    cli_progress_end();
    return CLI_OK;
}
