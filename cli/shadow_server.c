// SPDX-License-Identifier: Apache-2.0
// The program of a shadow run, held at its `import torch` (python/berm/_shadow.py), and the reports
// that its processes leave.
//
// The server reads a line ALLOCATOR, MEMORY, KERNEL_NS, FOLDER, WHAT, separated by tabs, and
// answers with the exit status of that run. A program that never imports torch ends without an
// answer.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/shadow.h"

enum {
    FOLDER_CAPACITY = 256,
};

struct shadow_server {
    const char *command;
    pid_t pid;
    int commands;  // we write
    FILE *answers; // we read
    char folder[FOLDER_CAPACITY];
};

static bool environment_set(const shadow_arguments_t *a, const char *folder, const int *ends) {
    char text[64];
    bool is_set = setenv("BERM_SHADOW_FOLDER", folder, 1) == 0;
    (void)snprintf(text, sizeof text, "%d,%d", ends[0], ends[1]);
    is_set = is_set && setenv("BERM_SHADOW_SERVER", text, 1) == 0;
    is_set = is_set && setenv("BERM_SHADOW_VALUES", a->values, 1) == 0;
    (void)snprintf(text, sizeof text, "%" PRIu64, a->steps);
    is_set = is_set && setenv("BERM_SHADOW_STEPS", text, 1) == 0;
    is_set = is_set && setenv("SIMCUDA_GPU", a->gpu, 1) == 0;
    // PyTorch's own expandable segments map under a capture in global mode, and get away with it.
    is_set = is_set && setenv("SIMCUDA_CAPTURE_EDITS", "1", 1) == 0;
    if (a->devices > 0) {
        (void)snprintf(text, sizeof text, "%" PRIu64, a->devices);
        is_set = is_set && setenv("SIMCUDA_DEVICES", text, 1) == 0;
    }
    if (a->snapshot != NULL)
        is_set = is_set && setenv("BERM_SHADOW_SNAPSHOT", a->snapshot, 1) == 0;
    if (a->record != NULL)
        is_set = is_set && setenv("BERM_SHADOW_RECORD", a->record, 1) == 0;
    return is_set;
}

shadow_server_t *shadow_server_start(const shadow_arguments_t *a, char *const *program) {
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    const char *temporary = getenv("TMPDIR");
    shadow_server_t *server = calloc(1, sizeof *server);
    if (server == NULL) {
        (void)cli_fail(a->command, "no memory");
        return NULL;
    }
    server->command = a->command;
    (void)snprintf(server->folder, sizeof server->folder, "%s/berm-shadow-XXXXXX",
                   temporary != NULL && *temporary != '\0' ? temporary : "/tmp");
    if (mkdtemp(server->folder) == NULL || pipe2(to, O_CLOEXEC) != 0 ||
        pipe2(from, O_CLOEXEC) != 0) {
        (void)cli_fail(a->command, "%s: %s", server->folder, strerror(errno));
        free(server);
        return NULL;
    }
    const int ends[2] = {to[0], from[1]};
    (void)signal(SIGPIPE, SIG_IGN); // of a server that has ended
    if (environment_set(a, server->folder, ends))
        server->pid = cli_program_start(a->command, program, ends);
    else
        server->pid = cli_fail(a->command, "no memory") == CLI_OK ? 0 : -1;
    (void)close(to[0]);
    (void)close(from[1]);
    server->commands = to[1];
    server->answers = fdopen(from[0], "r");
    if (server->pid > 0 && server->answers != NULL)
        return server;
    shadow_server_stop(server);
    return NULL;
}

// Why there was no answer: the program's own line was printed by it.
static int server_gone(shadow_server_t *server) {
    char path[FOLDER_CAPACITY + 16];
    (void)snprintf(path, sizeof path, "%s/refused", server->folder);
    int status = cli_program_wait(server->pid);
    server->pid = 0;
    if (access(path, F_OK) != 0)
        (void)cli_fail(server->command,
                       "the program ended (exit status %d) before it had imported torch", status);
    return -1;
}

int shadow_server_run(shadow_server_t *server, const shadow_try_t *one) {
    int status = -1;
    if (server->pid <= 0)
        return -1;
    if (dprintf(server->commands, "%s\t%" PRIu64 "\t%s\t%s\t%s\n", one->allocator,
                one->memory_bytes, one->kernel_ns, server->folder, one->what) < 0 ||
        fscanf(server->answers, "%d", &status) != 1)
        return server_gone(server);
    return status < 0 ? 128 - status : status;
}

const char *shadow_server_folder(const shadow_server_t *server) {
    return server->folder;
}

static void folder_empty(const char *folder) {
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    (void)closedir(entries);
}

void shadow_server_stop(shadow_server_t *server) {
    if (server == NULL)
        return;
    if (server->commands > 0)
        (void)close(server->commands); // the server ends at the end of its input
    if (server->answers != NULL)
        (void)fclose(server->answers);
    if (server->pid > 0)
        (void)cli_program_wait(server->pid);
    folder_empty(server->folder);
    (void)rmdir(server->folder);
    free(server);
}

void shadow_reports_drop(shadow_run_t *run) {
    while (run->report_count > 0)
        json_decref(run->reports[--run->report_count]);
}

static int report_compare(const void *a, const void *b) {
    json_int_t left = json_integer_value(json_object_get(*(json_t *const *)a, "pid"));
    json_int_t right = json_integer_value(json_object_get(*(json_t *const *)b, "pid"));
    return (left > right) - (left < right);
}

bool shadow_reports_take(shadow_server_t *server, shadow_run_t *run) {
    DIR *entries = opendir(server->folder);
    if (entries == NULL)
        return cli_fail(server->command, "%s: %s", server->folder, strerror(errno)) == CLI_OK;
    bool is_good = true;
    for (const struct dirent *entry; is_good && (entry = readdir(entries)) != NULL;) {
        char path[FOLDER_CAPACITY + 300];
        json_error_t error;
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", server->folder, entry->d_name);
        json_t *report =
            run->report_count < SHADOW_PROCESSES_MAX ? json_load_file(path, 0, &error) : NULL;
        is_good = report != NULL;
        if (is_good)
            run->reports[run->report_count++] = report;
    }
    (void)closedir(entries);
    folder_empty(server->folder);
    qsort(run->reports, (size_t)run->report_count, sizeof run->reports[0], report_compare);
    for (int i = 0; i < run->report_count; i++)
        run->is_short |=
            json_is_true(json_object_get(json_object_get(run->reports[i], "error"), "is_shortage"));
    return is_good || cli_fail(server->command, "a process left a report that cannot be read, or "
                                                "there were more than 64") == CLI_OK;
}
