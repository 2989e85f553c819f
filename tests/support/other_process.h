// SPDX-License-Identifier: Apache-2.0
// Another process for a test: this program again, with exec, in a role of its own. A process that
// uses CUDA must not fork without exec.
//
//   static void exporter(int socket_fd, int argument) { ...HEAP_INSIST(...)... }
//   OTHER_PROCESS_ROLES({"exporter", exporter})
//   ...
//   other_process_t other = other_process_start("exporter", 3, SOCK_STREAM);
//
// A role runs before main and ends the process with 0 when it returns; what does not hold in it
// aborts, which other_process_end finds. An alarm ends one that hangs.
#ifndef BERM_TESTS_OTHER_PROCESS_H
#define BERM_TESTS_OTHER_PROCESS_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef struct other_process_role {
    const char *name;
    void (*run)(int socket_fd, int argument);
} other_process_role_t;

typedef struct other_process {
    pid_t process;
    int socket_fd; // leads to it
} other_process_t;

other_process_t other_process_start(const char *role, int argument, int socket_type);
// Waits for it: it must end with 0.
void other_process_end(other_process_t *other);
// SIGKILL, at any moment.
void other_process_kill(other_process_t *other);

// One byte, to keep step.
void other_process_tell(int socket_fd);
void other_process_hear(int socket_fd);

// Descriptors that this process has open.
int open_files(void);

void other_process_run(const other_process_role_t *roles, size_t count);

#define OTHER_PROCESS_ROLES(...)                                                                   \
    __attribute__((constructor)) static void other_process_roles_(void) {                          \
        static const other_process_role_t roles_[] = {__VA_ARGS__};                                \
        other_process_run(roles_, sizeof roles_ / sizeof roles_[0]);                               \
    }

#endif
