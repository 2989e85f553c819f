// SPDX-License-Identifier: Apache-2.0
// A program of the user's, started by `berm shadow` or `berm run` with berm's Python package on its
// path.
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

// Finds the folder of the Python package `berm` (BERM_PYTHON, or relative to the executable). False
// after a line on standard error.
bool cli_program_package(const char *command, char folder[PATH_MAX]);
// Puts the package's hook first on PYTHONPATH, in this process's environment.
bool cli_program_hook(const char *command, const char *package);

// Whether the program is one for Python: its interpreter, or a script whose first line names it.
bool cli_program_is_python(const char *program);
// Puts libberm_preload.so before the program's libraries, in this process's environment. False
// after a line on standard error.
bool cli_program_preload(const char *command);
// Puts the simulated device's libraries before the system's, likewise.
bool cli_program_simulate(const char *command);

// Starts the program with this process's environment; -1 after a line. With `server` (two pipes'
// ends for the child: where it reads, where it writes) they stay open in the child.
pid_t cli_program_start(const char *command, char *const *argv, const int *server);
// Waits for it; its exit status, or 128 and the signal that ended it.
int cli_program_wait(pid_t pid);

#endif
