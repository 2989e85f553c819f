// SPDX-License-Identifier: Apache-2.0
// The smallest memory and the largest batch with which a program ends, and what it reserves at most
// when its kernels take less or more time: by running it again.
//
// Memory: between the most that it had requested at once, which no device can do without, and what
// the first run had reserved; to 2 MiB, the granule, where programs end or not for reasons that
// change with the last granule anyway. Batch: doubled until it does not fit, and then between.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "cli/shadow.h"

#define GRANULE BERM_MIB(2)

enum {
    BATCH_MOST = 1 << 24,
    ERROR_CAPACITY = 400,
};

// The last line that a trial wrote to standard error.
static void error_read(const shadow_server_t *server, char line[ERROR_CAPACITY]) {
    char path[PATH_MAX], text[ERROR_CAPACITY];
    (void)snprintf(path, sizeof path, "%s/errors", shadow_server_folder(server));
    FILE *file = fopen(path, "r");
    line[0] = '\0';
    while (file != NULL && fgets(text, sizeof text, file) != NULL)
        if (text[strspn(text, " \t\r\n")] != '\0')
            memcpy(line, text, sizeof text);
    line[strcspn(line, "\r\n")] = '\0';
    if (file != NULL)
        (void)fclose(file);
}

// Whether a process of the trial said that it was short of memory (python/berm/_shadow.py); what
// started it has a status of its own.
static bool shortage_take(const shadow_server_t *server) {
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/shortage", shadow_server_folder(server));
    return unlink(path) == 0;
}

// 1: it ended; 0: out of memory; -1: another failure, after a line.
static int trial(const shadow_arguments_t *a, shadow_server_t *server, const char *allocator,
                 uint64_t memory_bytes) {
    char line[ERROR_CAPACITY];
    int status = shadow_server_run(server, &(shadow_try_t){allocator, "trial", "", memory_bytes});
    bool is_short = shortage_take(server);
    if (status == CLI_OK || is_short)
        return status == CLI_OK;
    if (status > 0) {
        error_read(server, line);
        (void)cli_fail(a->command, "%s: the program failed (exit status %d): %s", allocator, status,
                       line);
    }
    return -1;
}

bool shadow_fit_memory(const shadow_arguments_t *a, shadow_server_t *server, shadow_run_t *run) {
    uint64_t context = shadow_context_bytes(run), tries = 0;
    uint64_t low = shadow_largest(run, "peak_requested_bytes") / GRANULE; // one less does not do
    uint64_t high = shadow_largest(run, "peak_reserved_bytes") / GRANULE + 1;
    char what[64];
    (void)snprintf(what, sizeof what, "%s: the smallest memory", run->allocator);
    for (int result; high < (UINT64_C(1) << 30); high += high / 8 + 1) {
        cli_progress(what, tries++, 12);
        result = trial(a, server, run->allocator, high * GRANULE + context);
        if (result > 0)
            break;
        if (result < 0)
            return false;
        low = high;
    }
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        cli_progress(what, tries++, 12);
        int result = trial(a, server, run->allocator, middle * GRANULE + context);
        if (result < 0)
            return false;
        if (result > 0)
            high = middle;
        else
            low = middle;
    }
    cli_progress_end();
    run->least_bytes = high * GRANULE;
    return true;
}

// --- the time of kernels -------------------------------------------------------------------------

bool shadow_range_measure(const shadow_arguments_t *a, shadow_server_t *server, shadow_run_t *run) {
    static const char *const kernel_ns[] = {"0", "1000000"};
    char what[64];
    (void)snprintf(what, sizeof what, "%s: kernels of other lengths", run->allocator);
    run->reserved_low_bytes = run->reserved_high_bytes = shadow_largest(run, "peak_reserved_bytes");
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(kernel_ns); i++) {
        shadow_run_t *bound = calloc(1, sizeof *bound);
        if (bound == NULL)
            return cli_fail(a->command, "no memory") == CLI_OK;
        cli_progress(what, i, BERM_ARRAY_LENGTH(kernel_ns));
        const shadow_try_t one = {run->allocator, "bound", kernel_ns[i], a->memory_bytes};
        bool is_good = shadow_server_run(server, &one) >= 0 && shadow_reports_take(server, bound);
        uint64_t reserved = shadow_largest(bound, "peak_reserved_bytes");
        run->is_range_short |= bound->is_short && !run->is_short;
        if (bound->report_count > 0) {
            run->reserved_low_bytes = berm__min_u64(run->reserved_low_bytes, reserved);
            run->reserved_high_bytes = berm__max_u64(run->reserved_high_bytes, reserved);
        }
        shadow_reports_drop(bound);
        free(bound);
        if (!is_good)
            return false;
    }
    cli_progress_end();
    return true;
}

// --- the batch -----------------------------------------------------------------------------------

static void arguments_free(char **arguments) {
    for (size_t i = 0; arguments != NULL && arguments[i] != NULL; i++)
        free(arguments[i]);
    free(arguments);
}

// The program's arguments with a number for each {}; NULL: no memory.
static char **arguments_with(char **program, uint64_t number) {
    size_t count = 0;
    while (program[count] != NULL)
        count++;
    char **made = calloc(count + 1, sizeof *made);
    for (size_t i = 0; made != NULL && i < count; i++) {
        const char *hole = strstr(program[i], "{}");
        size_t capacity = strlen(program[i]) + 24;
        made[i] = malloc(capacity);
        if (made[i] == NULL) {
            arguments_free(made);
            return NULL;
        }
        if (hole == NULL)
            (void)snprintf(made[i], capacity, "%s", program[i]);
        else
            (void)snprintf(made[i], capacity, "%.*s%" PRIu64 "%s", (int)(hole - program[i]),
                           program[i], number, hole + 2);
    }
    return made;
}

static int batch_trial(const shadow_arguments_t *a, const shadow_run_t *run, uint64_t number) {
    char **arguments = arguments_with(a->program, number);
    if (arguments == NULL)
        return cli_fail(a->command, "no memory") == CLI_OK ? 0 : -1;
    char what[64];
    (void)snprintf(what, sizeof what, "%s: %" PRIu64 " for {}", run->allocator, number);
    cli_progress(what, 0, 1);
    shadow_server_t *server = shadow_server_start(a, arguments);
    int result = server == NULL ? -1 : trial(a, server, run->allocator, a->memory_bytes);
    shadow_server_stop(server);
    arguments_free(arguments);
    return result;
}

bool shadow_fit_batch(const shadow_arguments_t *a, shadow_run_t *run) {
    uint64_t low = 0, high = 1;
    for (int result; high <= BATCH_MOST; high *= 2) {
        result = batch_trial(a, run, high);
        if (result < 0)
            return false;
        if (result == 0)
            break;
        low = high;
    }
    while (high <= BATCH_MOST && high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        int result = batch_trial(a, run, middle);
        if (result < 0)
            return false;
        if (result > 0)
            low = middle;
        else
            high = middle;
    }
    cli_progress_end();
    run->largest_batch = low;
    return true;
}
