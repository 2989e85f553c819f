// SPDX-License-Identifier: Apache-2.0
// Where the report of a failed request goes: the log, the file of the option oom_report (text, or
// JSON where its name ends in .json), and the application's callback. See report.h.
//
// Locks: none is held but, for a moment, the heap's for an option and one of rank CALLBACK for NVML
// and the application's callback. A file that does not take the report loses it, which is logged.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "berm_introspect.h"
#include "drv/nvml.h"
#include "front/leaving.h"
#include "front/naming.h"
#include "front/report.h"
#include "host/log.h"

enum {
    TEXT_BYTES = 8192
};

static struct {
    berm_mutex_t lock;
    berm_nvml_t nvml;
    berm_report_fn callback;
    void *context;
} reports = {.lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_CALLBACK, "reports")};

// The machine's, whatever berm_clock_set says.
static uint64_t real_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void processes_read(berm_report_t *report) {
    report->process_count = -1;
    if (!report->shortage->has_uuid)
        return;
    berm__mutex_lock(&reports.lock);
    berm__nvml_open(&reports.nvml, berm__heap.options.driver);
    report->process_count = berm__nvml_processes(&reports.nvml, report->shortage->uuid,
                                                 report->processes, BERM_PROCESSES_MAX);
    berm__mutex_unlock(&reports.lock);
}

typedef struct bytes {
    size_t length, capacity;
    char *at;
} bytes_t;

static void bytes_add(void *context, const char *text, size_t length) {
    bytes_t *bytes = context;
    if (length > bytes->capacity - bytes->length)
        length = bytes->capacity - bytes->length;
    memcpy(bytes->at + bytes->length, text, length);
    bytes->length += length;
}

// One write, so that reports of several processes do not mix.
static void file_append(const char *path, const char *text, size_t length) {
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    ssize_t written = file >= 0 ? write(file, text, length) : -1;
    if (file >= 0)
        (void)close(file);
    if (written != (ssize_t)length)
        BERM_LOG(BERM_LOG_WARN, "oom_report: '%s' does not take the report", path);
}

// The JSON is large, and so is of this function's stack only.
__attribute__((noinline)) static void json_append(const char *path, const berm_report_t *report) {
    char json[2 * TEXT_BYTES];
    bytes_t bytes = {0, sizeof json, json};
    berm__report_write_json(report, bytes_add, &bytes);
    file_append(path, json, bytes.length);
}

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

static void lines_log(const char *text) {
    const char *at = strchr(text, '\n') + 1; // the first is logged already
    for (const char *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
        berm__log(BERM_LOG_INFO, "%.*s", (int)(end - at), at);
}

// The text is large, and so is of this function's stack only.
__attribute__((noinline)) static void
report_give(const berm_shortage_t *shortage, const berm_diagnosis_t *diagnosis, uint64_t start_ns) {
    char named[BERM_OPTION_TEXT_BYTES], path[BERM_OPTION_TEXT_BYTES + 256], text[TEXT_BYTES];
    berm_report_t report = {.shortage = shortage, .diagnosis = diagnosis};
    berm__mutex_lock(&berm__heap.lock);
    memcpy(named, berm__heap.options.oom_report, sizeof named);
    berm__mutex_unlock(&berm__heap.lock);
    berm__mutex_lock(&reports.lock);
    berm_report_fn callback = reports.callback;
    void *context = reports.context;
    berm__mutex_unlock(&reports.lock);
    if (callback == NULL && named[0] == '\0' && berm__log_level() < BERM_LOG_INFO)
        return;
    berm__name_expand(named, path, sizeof path);
    processes_read(&report);
    (void)berm__leaving_path(report.dump, sizeof report.dump);
    report.took_ns = real_ns() - start_ns;
    berm__report_write_text(&report, text, sizeof text);
    if (berm__log_level() >= BERM_LOG_INFO)
        lines_log(text);
    if (ends_in(path, ".json"))
        json_append(path, &report);
    else if (path[0] != '\0')
        file_append(path, text, strlen(text));
    if (callback != NULL)
        callback(context, shortage->status, text);
}

// The verdict comes first in the line, which is cut at its end.
static void line_lead(berm_shortage_t *shortage, const berm_diagnosis_t *diagnosis) {
    char line[sizeof shortage->line];
    if (!diagnosis->is_known)
        return;
    memcpy(line, shortage->line, sizeof line);
    (void)snprintf(shortage->line, sizeof shortage->line, "verdict: %s (confidence: %s): %.400s",
                   berm__verdict_name(diagnosis->verdict.kind),
                   diagnosis->verdict.is_high ? "high" : "medium", line);
}

void berm__shortage_report(berm_shortage_t *shortage) {
    static _Thread_local bool is_inside; // a request of the callback's own
    berm_diagnosis_t diagnosis = {.is_known = false};
    if (!shortage->is_due)
        return;
    uint64_t start_ns = real_ns();
    berm__diagnosis_make(&diagnosis, shortage);
    line_lead(shortage, &diagnosis);
    if (shortage->left_out == 0)
        berm__log(BERM_LOG_WARN, "%s", shortage->line);
    else
        berm__log(BERM_LOG_WARN, "%s (%llu more such since the last line)", shortage->line,
                  (unsigned long long)shortage->left_out);
    if (!is_inside) {
        is_inside = true;
        report_give(shortage, &diagnosis, start_ns);
        is_inside = false;
    }
    berm__leaving_fail();
    // The callback may have called berm.
    (void)berm__error_set(shortage->status, "%s", shortage->line);
}

berm_status_t berm_report_set(berm_report_fn callback, void *context) {
    if (atomic_load(&berm__heap.is_forked))
        return berm__error_set(BERM_ERROR_FORKED, "called in a child of fork()");
    berm__mutex_lock(&reports.lock);
    reports.callback = callback;
    reports.context = context;
    berm__mutex_unlock(&reports.lock);
    return BERM_OK;
}

void berm__reports_end(void) {
    berm__mutex_lock(&reports.lock);
    berm__nvml_close(&reports.nvml);
    berm__mutex_unlock(&reports.lock);
}
