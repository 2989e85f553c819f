// SPDX-License-Identifier: Apache-2.0
// Runs the cells of the matrix in processes of their own, since the simulated device and berm have
// one state a process: each takes the next cell until there is none, and writes its number into a
// pipe when its result is in shared memory.
//
// Results do not depend on how many processes there are. The parent reads the pipe until all have
// closed it, and reports cells in their order.
// Locks: none; the number of the next cell is atomic. May fail: no memory, pipe or process.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress/matrix/matrix.h"

typedef struct shared {
    _Atomic size_t next; // cell that nobody has taken
    matrix_result_t results[];
} shared_t;

typedef struct run {
    const matrix_options_t *options;
    shared_t *shared;
    bool *is_told; // by the pipe: the result of a cell is there
    size_t count;
    void (*report)(void *context, size_t number, const matrix_result_t *result);
    void *context;
} run_t;

// In a child: cells until there are no more. Neighbours have the same trace, which is kept.
static void cells_run(const run_t *run, int fd) {
    char error[256] = "";
    trace_t *trace = NULL;
    const matrix_source_t *source = NULL;
    uint64_t streams = 0;
    for (size_t i; (i = atomic_fetch_add(&run->shared->next, 1)) < run->count;) {
        const matrix_cell_t cell = matrix_cell(run->options, i);
        matrix_result_t *result = &run->shared->results[i];
        if (trace == NULL || source != cell.source || streams != cell.streams) {
            trace_destroy(trace);
            trace = matrix_cell_trace(run->options, &cell, error, sizeof error);
            source = cell.source;
            streams = cell.streams;
        }
        if (trace != NULL) {
            matrix_cell_run(run->options, &cell, trace, result);
        } else {
            (void)snprintf(result->finding, sizeof result->finding, "no trace: %.200s", error);
        }
        while (write(fd, &i, sizeof i) < 0 && errno == EINTR)
            continue;
    }
    trace_destroy(trace);
}

static pid_t child_start(const run_t *run, const int fds[2], pid_t parent) {
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    (void)close(fds[0]);
    cells_run(run, fds[1]);
    // What the allocator left is not taken down: the end of the process does it.
    _exit(0);
}

// Reports what is done and has not been, in order.
static size_t report_done(const run_t *run, size_t reported) {
    while (reported < run->count && run->is_told[reported]) {
        run->report(run->context, reported, &run->shared->results[reported]);
        reported++;
    }
    return reported;
}

// Until all children have closed the pipe.
static void results_take(const run_t *run, int fd) {
    size_t number, reported = 0;
    for (;;) {
        ssize_t bytes = read(fd, &number, sizeof number);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            break;
        run->is_told[number] = true;
        reported = report_done(run, reported);
    }
    // A process that ended early left its cell undone.
    for (size_t i = reported; i < run->count; i++) {
        matrix_result_t *result = &run->shared->results[i];
        if (run->is_told[i])
            continue;
        result->is_good = false;
        (void)snprintf(result->finding, sizeof result->finding,
                       "the process that ran it, or all of them, ended early");
        run->is_told[i] = true;
    }
    (void)report_done(run, reported);
}

int matrix_run(const matrix_options_t *options, size_t jobs,
               void (*report)(void *context, size_t number, const matrix_result_t *result),
               void *context, char *error, size_t error_capacity) {
    run_t run = {.options = options,
                 .count = matrix_cell_count(options),
                 .report = report,
                 .context = context};
    size_t bytes = sizeof(shared_t) + run.count * sizeof(matrix_result_t), started = 0;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fds[2] = {-1, -1};
    run.is_told = calloc(run.count + 1, sizeof *run.is_told);
    if (run.is_told == NULL || memory == MAP_FAILED || pipe(fds) != 0) {
        (void)snprintf(error, error_capacity, "the runs cannot be started: %s", strerror(errno));
        free(run.is_told);
        if (memory != MAP_FAILED)
            (void)munmap(memory, bytes);
        return -1;
    }
    run.shared = memory;
    const pid_t parent = getpid();
    while (started < jobs && child_start(&run, fds, parent) > 0)
        started++;
    if (started == 0)
        (void)snprintf(error, error_capacity, "the runs cannot be started: %s", strerror(errno));
    (void)close(fds[1]);
    if (started > 0)
        results_take(&run, fds[0]);
    (void)close(fds[0]);
    while (started > 0 && (waitpid(-1, NULL, 0) > 0 || errno == EINTR))
        continue;
    (void)munmap(memory, bytes);
    free(run.is_told);
    return started > 0 ? 0 : -1;
}
