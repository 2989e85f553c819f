// SPDX-License-Identifier: Apache-2.0
// Forks a process that checks the options, then one for each part of each trace, some at a time,
// and waits for them. Their answers
// are written into shared memory; each part writes only its own points, so there is no lock.
//
// The result does not depend on how many run at a time. When a part fails, no more are started, and
// those that run are waited for.
// Locks: none. May fail: no process or memory; a part's own failure.
#include "stress/curves/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ERROR_CAPACITY = 512
};

typedef struct run {
    const curves_options_t *options;
    trace_t *const *traces;
    curves_point_t *points;
    char (*errors)[ERROR_CAPACITY]; // of the parts, in shared memory; "" for none
    size_t parts;                   // of a trace
    bool is_check;                  // instead of the parts, look at the options
} run_t;

enum {
    STATUS_FAILED = 2 // of a child: it says why
};

static void *shared_create(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

curves_point_t *curves_points_create(size_t count) {
    return shared_create(count * sizeof(curves_point_t));
}

void curves_points_destroy(curves_point_t *points, size_t count) {
    if (points != NULL)
        (void)munmap(points, count * sizeof *points);
}

// In the child. It ends with the parent.
static void part_run(const run_t *run, size_t number, pid_t parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    size_t trace = number / run->parts;
    char *error = run->errors[number];
    int status = run->is_check
                     ? curves_options_check(run->options, error, ERROR_CAPACITY)
                     : curves_part_run(run->options, run->traces[trace], number % run->parts,
                                       run->points + trace * curves_point_count(run->options),
                                       error, ERROR_CAPACITY);
    // What the allocators left is not taken down: the end of the process does it.
    _exit(status == 0 ? 0 : STATUS_FAILED);
}

// Whether a child that ended did its part; waits for one. False with a line when it did not.
static bool part_end(const run_t *run, const pid_t *pids, size_t count, char *error,
                     size_t error_capacity) {
    int status = 0;
    pid_t pid = -1;
    do
        pid = waitpid(-1, &status, 0);
    while (pid < 0 && errno == EINTR);
    size_t number = 0;
    while (number < count && pids[number] != pid)
        number++;
    if (number == count) {
        (void)snprintf(error, error_capacity, "a process is lost: %s", strerror(errno));
        return false;
    }
    const char *path = run->traces[number / run->parts]->path;
    if (WIFSIGNALED(status))
        (void)snprintf(error, error_capacity, "%s: the process of a part ended by signal %d (%s)",
                       path, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == STATUS_FAILED)
        (void)snprintf(error, error_capacity, "%s", run->errors[number]);
    else if (WEXITSTATUS(status) != 0)
        (void)snprintf(error, error_capacity, "%s: the process of a part ended with status %d",
                       path, WEXITSTATUS(status));
    else
        return true;
    return false;
}

static int parts_run(const run_t *run, size_t total, pid_t *pids, size_t jobs,
                     void (*progress)(uint64_t done, uint64_t total), char *error,
                     size_t error_capacity) {
    size_t started = 0, ended = 0;
    const pid_t parent = getpid();
    bool is_good = true;
    while (ended < started || (is_good && started < total)) {
        if (is_good && started < total && started - ended < jobs) {
            (void)fflush(NULL);
            pid_t pid = fork();
            if (pid == 0)
                part_run(run, started, parent);
            if (pid > 0)
                pids[started++] = pid;
            else
                (void)snprintf(error, error_capacity, "fork: %s", strerror(errno));
            is_good = pid > 0;
            continue;
        }
        char later[ERROR_CAPACITY];
        is_good = part_end(run, pids, started, is_good ? error : later,
                           is_good ? error_capacity : sizeof later) &&
                  is_good;
        ended++;
        if (progress != NULL)
            progress(ended, total);
    }
    return is_good ? 0 : -1;
}

int curves_run(const curves_options_t *options, trace_t *const *traces, size_t trace_count,
               curves_point_t *points, size_t jobs, void (*progress)(uint64_t done, uint64_t total),
               char *error, size_t error_capacity) {
    run_t run = {.options = options,
                 .traces = traces,
                 .points = points,
                 .parts = curves_part_count(options)};
    size_t total = run.parts * trace_count;
    size_t bytes = total * (ERROR_CAPACITY + sizeof(pid_t));
    char *memory = shared_create(bytes);
    if (memory == NULL) {
        (void)snprintf(error, error_capacity, "no memory");
        return -1;
    }
    run.errors = (char(*)[ERROR_CAPACITY])(void *)memory;
    pid_t *pids = (pid_t *)(void *)(memory + total * ERROR_CAPACITY);
    run.is_check = true;
    int status = parts_run(&run, 1, pids, 1, NULL, error, error_capacity);
    run.is_check = false;
    if (status == 0)
        status = parts_run(&run, total, pids, jobs, progress, error, error_capacity);
    (void)munmap(memory, bytes);
    return status;
}
