// SPDX-License-Identifier: Apache-2.0
// Programs of the user's: see program.h.
//
// May fail: no package, no such program; one line says it, nothing is started then.
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

// Where the package lies, from the folder of the executable: in a source tree, and installed.
static const char *const places[] = {
    "../../../python",
    "../lib/berm/python",
    "../lib/x86_64-linux-gnu/berm/python",
    "../lib64/berm/python",
};

bool cli_program_package(const char *command, char folder[PATH_MAX]) {
    char own[PATH_MAX / 2], path[PATH_MAX];
    const char *named = getenv("BERM_PYTHON");
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < (named != NULL ? 1 : BERM_ARRAY_LENGTH(places)); i++) {
        if (named != NULL)
            (void)snprintf(path, sizeof path, "%s", named);
        else
            (void)snprintf(path, sizeof path, "%s/%s", own, places[i]);
        char hook[PATH_MAX + 64];
        (void)snprintf(hook, sizeof hook, "%s/berm/_site/sitecustomize.py", path);
        if (access(hook, R_OK) == 0 && realpath(path, folder) != NULL)
            return true;
    }
    (void)cli_fail(command,
                   "berm's Python package is not in %s: set BERM_PYTHON to the folder "
                   "that has berm/",
                   named != NULL ? named : "the places it is built to");
    return false;
}

bool cli_program_hook(const char *command, const char *package) {
    const char *before = getenv("PYTHONPATH");
    bool has_more = before != NULL && *before != '\0';
    size_t capacity = strlen(package) * 2 + (has_more ? strlen(before) : 0) + 32;
    char *path = malloc(capacity);
    if (path == NULL)
        return cli_fail(command, "no memory") == CLI_OK;
    (void)snprintf(path, capacity, "%s/berm/_site:%s%s%s", package, package, has_more ? ":" : "",
                   has_more ? before : "");
    bool is_set = setenv("PYTHONPATH", path, 1) == 0;
    free(path);
    return is_set || cli_fail(command, "no memory") == CLI_OK;
}

// The child's side; ends it.
static BERM_NORETURN void program_become(char *const *argv, int failure) {
    (void)execvp(argv[0], argv);
    int error = errno;
    ssize_t written = write(failure, &error, sizeof error);
    _exit(written > 0 ? 127 : 126);
}

pid_t cli_program_start(const char *command, char *const *argv, const int *server) {
    int failure[2], error = 0;
    if (pipe2(failure, O_CLOEXEC) != 0) {
        (void)cli_fail(command, "pipe: %s", strerror(errno));
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (server != NULL && (fcntl(server[0], F_SETFD, 0) != 0 || fcntl(server[1], F_SETFD, 0)))
            _exit(126);
        program_become(argv, failure[1]);
    }
    (void)close(failure[1]);
    ssize_t length = pid < 0 ? 0 : read(failure[0], &error, sizeof error);
    (void)close(failure[0]);
    if (pid > 0 && length <= 0)
        return pid;
    (void)cli_fail(command, "%s: %s", argv[0], strerror(pid < 0 ? errno : error));
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return -1;
}

int cli_program_wait(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return CLI_BAD;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
