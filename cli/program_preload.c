// SPDX-License-Identifier: Apache-2.0
// What a program's loader is told, by the environment: libberm_preload.so, and the simulated
// device.
//
// May fail: a library that is not where it was built or installed; one line says which.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/program.h"

// From the folder of the executable: in a build tree, and installed.
static const char *const library_places[] = {"../lib", "../lib/x86_64-linux-gnu", "../lib64"};

// The folder in which `file` lies, below one of the places; false after a line.
static bool folder_find(const char *command, const char *const *below, size_t count,
                        const char *file, char folder[PATH_MAX]) {
    char own[PATH_MAX / 4], path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(library_places); i++) {
        for (size_t j = 0; j < count; j++) {
            char found[2 * PATH_MAX];
            (void)snprintf(path, sizeof path, "%s/%s%s", own, library_places[i], below[j]);
            (void)snprintf(found, sizeof found, "%s/%s", path, file);
            if (access(found, R_OK) == 0 && realpath(path, folder) != NULL)
                return true;
        }
    }
    (void)cli_fail(command, "%s is not in %s beside %s: build or install berm whole", file,
                   library_places[0], own);
    return false;
}

// Puts `first` before what the variable has.
static bool variable_prepend(const char *command, const char *name, const char *first) {
    const char *before = getenv(name);
    bool has_more = before != NULL && *before != '\0';
    size_t capacity = strlen(first) + (has_more ? strlen(before) : 0) + 2;
    char *value = malloc(capacity);
    if (value != NULL)
        (void)snprintf(value, capacity, "%s%s%s", first, has_more ? ":" : "",
                       has_more ? before : "");
    bool is_set = value != NULL && setenv(name, value, 1) == 0;
    free(value);
    return is_set || cli_fail(command, "no memory") == CLI_OK;
}

bool cli_program_preload(const char *command) {
    static const char file[] = "libberm_preload.so";
    static const char *const below[] = {""};
    char folder[PATH_MAX], path[PATH_MAX + sizeof file + 1];
    if (!folder_find(command, below, BERM_ARRAY_LENGTH(below), file, folder))
        return false;
    // The loader splits its list at spaces and colons, and knows no way to quote them.
    if (strpbrk(folder, " :") != NULL) {
        (void)cli_fail(command, "%s: LD_PRELOAD takes no path with a space or a colon", folder);
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    // A Python package of berm's takes the same libberm: two copies would be two heaps.
    if (setenv("BERM_LIBRARY", folder, 0) != 0)
        return cli_fail(command, "no memory") == CLI_OK;
    return variable_prepend(command, "LD_PRELOAD", path);
}

bool cli_program_simulate(const char *command) {
    static const char *const below[] = {"/simcuda", "/berm/simcuda"};
    char folder[PATH_MAX];
    return folder_find(command, below, BERM_ARRAY_LENGTH(below), "libcuda.so.1", folder) &&
           variable_prepend(command, "LD_LIBRARY_PATH", folder);
}

// --- what kind of program ------------------------------------------------------------------------

// Where execvp will find it; false if nowhere.
static bool program_find(const char *program, char path[PATH_MAX]) {
    const char *from = getenv("PATH");
    if (strchr(program, '/') != NULL)
        return realpath(program, path) != NULL;
    while (from != NULL && *from != '\0') {
        char candidate[2 * PATH_MAX];
        size_t length = strcspn(from, ":");
        (void)snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, from, program);
        if (access(candidate, X_OK) == 0 && realpath(candidate, path) != NULL)
            return true;
        from += length + (from[length] == ':');
    }
    return false;
}

bool cli_program_is_python(const char *program) {
    char path[PATH_MAX], line[256] = "";
    if (!program_find(program, path))
        return false;
    const char *slash = strrchr(path, '/');
    if (slash != NULL && strncmp(slash + 1, "python", 6) == 0)
        return true;
    FILE *file = fopen(path, "r");
    bool is_python = file != NULL && fgets(line, sizeof line, file) != NULL &&
                     strncmp(line, "#!", 2) == 0 && strstr(line, "python") != NULL;
    if (file != NULL)
        (void)fclose(file);
    return is_python;
}
