// SPDX-License-Identifier: Apache-2.0
// The recording at a failure and at the end, and the check for leaks: see leaving.h.
//
// A file is written beside its place and then renamed, so that a reader never sees half of one. One
// that cannot be written is lost, which is logged.
// Locks: none, but for a moment the heap's for an option.
#include "front/leaving.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "berm_diagnose.h"
#include "front/heap.h"
#include "front/naming.h"
#include "host/log.h"

enum {
    PATH_BYTES = 512
};

static atomic_bool has_failure; // the file is of a failure, and stays

static void write_file(void *file, const char *text, size_t length) {
    (void)fwrite(text, 1, length, file);
}

bool berm__leaving_write(const char *path, unsigned mode) {
    char beside[PATH_MAX + 8];
    (void)snprintf(beside, sizeof beside, "%s.part", path);
    (void)unlink(beside); // of a process that was killed
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    berm_status_t status =
        berm_trace_write(BERM_DEVICE_ANY, BERM_TRACE_RECORDING, write_file, file);
    bool is_written = ferror(file) == 0;
    is_written = fclose(file) == 0 && is_written && status == BERM_OK;
    if (is_written && rename(beside, path) == 0)
        return true;
    (void)unlink(beside);
    return false;
}

bool berm__leaving_path(char *path, size_t capacity) {
    char named[BERM_OPTION_TEXT_BYTES];
    berm__mutex_lock(&berm__heap.lock);
    memcpy(named, berm__heap.options.recording, sizeof named);
    berm__mutex_unlock(&berm__heap.lock);
    berm__name_expand(named, path, capacity);
    return named[0] != '\0';
}

static void recording_leave(void) {
    char path[PATH_BYTES];
    if (berm__leaving_path(path, sizeof path) && !berm__leaving_write(path, 0666))
        BERM_LOG(BERM_LOG_WARN, "recording: '%s' cannot be written", path);
}

void berm__leaving_fail(void) {
    recording_leave();
    atomic_store(&has_failure, true);
}

void berm__leaving_stop(void) {
    if (!atomic_load(&has_failure))
        recording_leave();
}

// --- leaks ---------------------------------------------------------------------------------------

static bool leak_print(void *context, const berm_diff_t *diff) {
    uint64_t *blocks = context;
    *blocks += diff->blocks;
    (void)fprintf(stderr, "berm: leak: device %d, %llu block%s of %llu bytes%s%s%s\n", diff->device,
                  (unsigned long long)diff->blocks, BERM_PLURAL(diff->blocks),
                  (unsigned long long)diff->each_bytes, *diff->tag != '\0' ? ", tag '" : "",
                  diff->tag, *diff->tag != '\0' ? "'" : "");
    return true;
}

// What lives since the last mark, or at all. Ends the process where there is anything.
static void leaks_check(void) {
    uint64_t blocks = 0, mark = berm__mark_last();
    if (berm_diff(BERM_DEVICE_ANY, mark, leak_print, &blocks) != BERM_OK || blocks == 0)
        return;
    (void)fprintf(stderr, "berm: leak: %llu block%s live at the end%s\n",
                  (unsigned long long)blocks, BERM_PLURAL(blocks),
                  mark != 0 ? " that were not at the last mark" : "");
    (void)fflush(NULL);
    _exit(1);
}

static void process_end(void) {
    if (atomic_load(&berm__heap.is_forked) || atomic_load(&berm__heap.state) != BERM_HEAP_RUNNING)
        return;
    berm__leaving_stop();
    berm__mutex_lock(&berm__heap.lock);
    bool checks = berm__heap.options.leak_check;
    berm__mutex_unlock(&berm__heap.lock);
    if (checks)
        leaks_check();
}

static void end_register(void) {
    (void)atexit(process_end);
}

void berm__leaving_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const berm_options_t *options = &berm__heap.options;
    if (options->recording[0] != '\0' || options->leak_check)
        (void)pthread_once(&once, end_register);
}
