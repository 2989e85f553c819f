// SPDX-License-Identifier: Apache-2.0
// See other_process.h. The role, its argument and the socket's number go by the environment.
#include "tests/support/other_process.h"

#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/heap_fixture.h"

enum {
    SOCKET_FD = 3, // in the other process
    SECONDS_MOST = 60
};

#define ROLE_NAME     "BERM_TEST_ROLE"
#define ROLE_ARGUMENT "BERM_TEST_ROLE_ARGUMENT"

void other_process_run(const other_process_role_t *roles, size_t count) {
    const char *role = getenv(ROLE_NAME), *argument = getenv(ROLE_ARGUMENT);
    if (role == NULL || argument == NULL)
        return;
    (void)alarm(SECONDS_MOST);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(roles[i].name, role) != 0)
            continue;
        roles[i].run(SOCKET_FD, atoi(argument));
        _exit(0);
    }
    _exit(2);
}

other_process_t other_process_start(const char *role, int argument, int socket_type) {
    int sockets[2];
    char number[16];
    char *arguments[] = {(char *)(uintptr_t)role, NULL};
    other_process_t other;
    posix_spawn_file_actions_t actions;
    HEAP_INSIST(socketpair(AF_UNIX, socket_type | SOCK_CLOEXEC, 0, sockets) == 0);
    HEAP_INSIST(posix_spawn_file_actions_init(&actions) == 0);
    HEAP_INSIST(posix_spawn_file_actions_adddup2(&actions, sockets[1], SOCKET_FD) == 0);
    (void)snprintf(number, sizeof number, "%d", argument);
    HEAP_INSIST(setenv(ROLE_NAME, role, 1) == 0 && setenv(ROLE_ARGUMENT, number, 1) == 0);
    HEAP_INSIST(posix_spawn(&other.process, "/proc/self/exe", &actions, NULL, arguments, environ) ==
                0);
    HEAP_INSIST(unsetenv(ROLE_NAME) == 0 && unsetenv(ROLE_ARGUMENT) == 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(sockets[1]);
    other.socket_fd = sockets[0];
    return other;
}

void other_process_end(other_process_t *other) {
    int status = -1;
    (void)close(other->socket_fd);
    HEAP_INSIST(waitpid(other->process, &status, 0) == other->process);
    HEAP_INSIST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void other_process_kill(other_process_t *other) {
    int status = -1;
    HEAP_INSIST(kill(other->process, SIGKILL) == 0);
    HEAP_INSIST(waitpid(other->process, &status, 0) == other->process);
    (void)close(other->socket_fd);
}

void other_process_tell(int socket_fd) {
    HEAP_INSIST(send(socket_fd, "", 1, MSG_NOSIGNAL) == 1);
}

void other_process_hear(int socket_fd) {
    char byte;
    HEAP_INSIST(recv(socket_fd, &byte, 1, 0) == 1);
}

int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    HEAP_INSIST(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}
