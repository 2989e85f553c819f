// SPDX-License-Identifier: Apache-2.0
// Starts the command again for one replay, or for one question, and takes its result over a pipe:
// see child.h.
//
// The answer is an answer_t, then the repeats: both ends are the same program, so structures go as
// they are, and the parent puts its own pointers in.
// Bounds: one child at a time; what it prints on standard error is shown. Locks: none; one thread.
// May fail: the child cannot be started, or ends without an answer; the line says how it ended.
#include "stress/child.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENV_FD        "BERM_CHILD_FD"
#define ENV_TRACE     "BERM_CHILD_TRACE"
#define ENV_ALLOCATOR "BERM_CHILD_ALLOCATOR"
#define ENV_CAPACITY  "BERM_CHILD_CAPACITY"
#define ENV_QUESTION  "BERM_CHILD_QUESTION"

typedef struct answer {
    int status;
    char error[512];
    stress_replay_result_t result; // its pointers mean nothing to the reader
} answer_t;

static char **command;

void stress_child_command_set(char **argv) {
    command = argv;
}

// --- the child -----------------------------------------------------------------------------------

static int child_fd(void) {
    const char *text = getenv(ENV_FD);
    char *end = NULL;
    long fd = text != NULL ? strtol(text, &end, 10) : -1;
    return text != NULL && *text != '\0' && *end == '\0' && fd >= 0 && fd < 1 << 20 ? (int)fd : -1;
}

bool stress_child_order(stress_child_order_t *order) {
    const char *capacity = getenv(ENV_CAPACITY);
    *order = (stress_child_order_t){.trace = getenv(ENV_TRACE), .allocator = getenv(ENV_ALLOCATOR)};
    if (child_fd() < 0 || order->trace == NULL || order->allocator == NULL || capacity == NULL)
        return false;
    order->capacity_bytes = strtoull(capacity, NULL, 10);
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(fd, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

int stress_child_answer(int status, const stress_replay_result_t *result, const char *error) {
    answer_t *answer = calloc(1, sizeof *answer);
    if (answer == NULL)
        return -1;
    answer->status = status;
    if (status == 0)
        answer->result = *result;
    else
        (void)snprintf(answer->error, sizeof answer->error, "%s", error);
    bool is_written = write_all(child_fd(), answer, sizeof *answer);
    if (status == 0)
        is_written = is_written && write_all(child_fd(), result->per_repeat,
                                             result->per_repeat_count * sizeof *result->per_repeat);
    free(answer);
    return is_written ? 0 : -1;
}

const char *stress_child_question(void) {
    return child_fd() < 0 ? NULL : getenv(ENV_QUESTION);
}

int stress_child_reply(const void *answer, size_t bytes) {
    return write_all(child_fd(), answer, bytes) ? 0 : -1;
}

// --- the parent ----------------------------------------------------------------------------------

static bool read_all(int fd, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        ssize_t done = read(fd, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

// After fork; what the child is for is in the environment already.
static void child_exec(int fd) {
    char fd_text[16];
    (void)snprintf(fd_text, sizeof fd_text, "%d", fd);
    (void)setenv(ENV_FD, fd_text, 1);
    // What it prints must not mix with the parent's report.
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    (void)execv("/proc/self/exe", command);
    _exit(127);
}

static void child_exec_replay(int fd, const trace_t *trace,
                              const stress_replay_options_t *options) {
    char capacity_text[32];
    (void)snprintf(capacity_text, sizeof capacity_text, "%" PRIu64, options->capacity_bytes);
    (void)setenv(ENV_TRACE, trace->path, 1);
    (void)setenv(ENV_ALLOCATOR, options->ops->name, 1);
    (void)setenv(ENV_CAPACITY, capacity_text, 1);
    child_exec(fd);
}

static bool child_read(int fd, stress_replay_result_t *result, answer_t *answer) {
    if (!read_all(fd, answer, sizeof *answer))
        return false;
    if (answer->status != 0)
        return true;
    const stress_replay_result_t own = *result;
    *result = answer->result;
    result->allocator = own.allocator;
    result->trace = own.trace;
    result->per_repeat = calloc((size_t)result->repeats + 1, sizeof *result->per_repeat);
    return result->per_repeat != NULL && result->per_repeat_count <= result->repeats &&
           read_all(fd, result->per_repeat, result->per_repeat_count * sizeof *result->per_repeat);
}

static int child_end(pid_t pid, const char *name, char *error, size_t error_capacity) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status))
        (void)snprintf(error, error_capacity, "%s: its process was ended by signal %d (%s)", name,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(error, error_capacity, "%s: its process ended with status %d and no result",
                       name, WEXITSTATUS(status));
    return -1;
}

int stress_child_replay(const trace_t *trace, const stress_replay_options_t *options,
                        stress_replay_result_t *result, char *error, size_t error_capacity) {
    const char *name = options->ops->name;
    *result = (stress_replay_result_t){.allocator = name, .trace = trace->path};
    int fds[2] = {-1, -1};
    answer_t *answer = calloc(1, sizeof *answer);
    if (command == NULL || answer == NULL || pipe(fds) != 0) {
        (void)snprintf(error, error_capacity, "%s: no process of its own can be started for it",
                       name);
        free(answer);
        return -1;
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fds[0]);
        child_exec_replay(fds[1], trace, options);
    }
    (void)close(fds[1]);
    int status = -1;
    if (pid < 0) {
        (void)snprintf(error, error_capacity, "%s: fork: %s", name, strerror(errno));
    } else if (!child_read(fds[0], result, answer)) {
        status = child_end(pid, name, error, error_capacity);
    } else {
        char ignored[1];
        (void)child_end(pid, name, ignored, 0);
        status = answer->status;
        if (status != 0)
            (void)snprintf(error, error_capacity, "%s", answer->error);
    }
    (void)close(fds[0]);
    if (status != 0)
        stress_replay_result_destroy(result);
    free(answer);
    return status;
}

stress_child_end_t stress_child_ask(const char *question, void *answer, size_t bytes, char *error,
                                    size_t error_capacity) {
    int fds[2] = {-1, -1};
    if (command == NULL || pipe(fds) != 0) {
        (void)snprintf(error, error_capacity, "no process of its own can be started for it");
        return STRESS_CHILD_NOT_STARTED;
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fds[0]);
        (void)setenv(ENV_QUESTION, question, 1);
        child_exec(fds[1]);
    }
    (void)close(fds[1]);
    stress_child_end_t end = STRESS_CHILD_NOT_STARTED;
    if (pid < 0) {
        (void)snprintf(error, error_capacity, "fork: %s", strerror(errno));
    } else {
        bool is_read = read_all(fds[0], answer, bytes);
        char ignored[1];
        (void)child_end(pid, question, is_read ? ignored : error, is_read ? 0 : error_capacity);
        end = is_read ? STRESS_CHILD_ANSWERED : STRESS_CHILD_SILENT;
    }
    (void)close(fds[0]);
    return end;
}
