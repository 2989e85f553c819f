// SPDX-License-Identifier: Apache-2.0
// The report of a failed request as text: the line, then the table. See report.h.
//
//   LINE
//     request    what was asked for, and where
//     ours       what berm has of the device ...
//     to fit     what would have made it fit
//
// Locks: none is held but, for a moment, the heap's for an option and one of rank CALLBACK for NVML
// and the application's callback. A file that does not take the text loses it, which is logged.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "drv/nvml.h"
#include "front/leaving.h"
#include "front/report.h"
#include "host/log.h"
#include "host/mem.h"

enum {
    TEXT_BYTES = 6144
};

typedef struct text {
    size_t length;
    char at[TEXT_BYTES];
} text_t;

static struct {
    berm_mutex_t lock;
    berm_nvml_t nvml;
    berm_report_fn callback;
    void *context;
} reports = {.lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_CALLBACK, "reports")};

// What does not fit is left out.
BERM_PRINTF(2, 3) static void text_add(text_t *text, const char *format, ...) {
    va_list arguments;
    size_t room = sizeof text->at - text->length;
    va_start(arguments, format);
    int length = vsnprintf(text->at + text->length, room, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < room)
        text->length += (size_t)length;
    else
        text->at[text->length] = '\0';
}

static const char *mib(uint64_t bytes, berm_figure_text_t *text) {
    *text = berm__mib_text(bytes);
    return text->at;
}

#define MIB_TEXT(bytes) mib((bytes), &(berm_figure_text_t){{0}})

static void pool_add(text_t *text, berm_pool_id_t id, berm_stream_t stream) {
    if (berm__pool_id_is_default(id))
        text_add(text, "default pool, ");
    else
        text_add(text, "pool %llu:%llu, ", (unsigned long long)id.high, (unsigned long long)id.low);
    if (stream == BERM_STREAM_NONE)
        text_add(text, "no stream");
    else
        text_add(text, "stream 0x%llx", (unsigned long long)(uintptr_t)stream);
}

static void site_add(text_t *text, const void *site) {
    Dl_info info;
    if (site == NULL)
        return;
    text_add(text, "  called from %p", site);
    if (dladdr(site, &info) != 0 && info.dli_fname != NULL)
        text_add(text, ", %s+0x%llx", info.dli_fname,
                 (unsigned long long)((uintptr_t)site - (uintptr_t)info.dli_fbase));
    text_add(text, "\n");
}

// What the driver was asked for.
static const char *kind_text(const char *symbol) {
    static const struct {
        const char *symbol, *kind;
    } kinds[] = {{"cuMemCreate", "device memory"},
                 {"cuMemAlloc", "device memory"},
                 {"cuMemAddressReserve", "device addresses"},
                 {"cuMemMap", "a mapping"},
                 {"cuMemSetAccess", "access to a mapping"},
                 {"cuMemUnmap", "the end of a mapping"}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(kinds); i++)
        if (strcmp(kinds[i].symbol, symbol) == 0)
            return kinds[i].kind;
    return "what was needed";
}

static void request_add(text_t *text, const berm_shortage_t *shortage) {
    const berm_want_t *want = &shortage->want;
    text_add(text, "  request     %s (%llu bytes, aligned to %llu) on device %d, ",
             MIB_TEXT(want->size_bytes), (unsigned long long)want->size_bytes,
             (unsigned long long)want->alignment_bytes, want->ordinal);
    pool_add(text, want->id, want->stream);
    text_add(text, "\n");
    site_add(text, shortage->site);
    if (shortage->driver_symbol != NULL)
        text_add(text, "  refused by  %s, for %s: it returned %d\n", shortage->driver_symbol,
                 kind_text(shortage->driver_symbol), shortage->driver_result);
    if (shortage->status == BERM_ERROR_OUT_OF_HOST_MEMORY)
        text_add(text, "  host        %s for berm's own records, of the backend %s\n",
                 MIB_TEXT(berm__mem_held_bytes()), berm__mem_backend_name());
    if (shortage->left_out > 0)
        text_add(text, "  repeated    %llu more such since the last report\n",
                 (unsigned long long)shortage->left_out);
}

static const char *limit_source_text(berm_limit_source_t source) {
    static const char *const texts[] = {
        [BERM_LIMIT_NONE] = "nobody",
        [BERM_LIMIT_OPTION] = "the option limit",
        [BERM_LIMIT_FRACTION] = "the option per_process_memory_fraction",
        [BERM_LIMIT_CALL] = "berm_limit_set",
    };
    return texts[source];
}

static void figures_add(text_t *text, const berm_shortage_t *shortage) {
    const berm_obtainable_t *obtainable = &shortage->obtainable;
    text_add(text,
             "  ours        live %s in %llu block%s, allocated %s, awaited %s, cached %s, reserved "
             "%s\n",
             MIB_TEXT(shortage->live_bytes), (unsigned long long)shortage->blocks,
             BERM_PLURAL(shortage->blocks), MIB_TEXT(shortage->allocated_bytes),
             MIB_TEXT(shortage->awaited_bytes), MIB_TEXT(shortage->cached_bytes),
             MIB_TEXT(shortage->reserved_bytes));
    text_add(text, "  that stays  pinned %s, exported %s, poisoned %s\n",
             MIB_TEXT(shortage->pinned_bytes), MIB_TEXT(shortage->exported_bytes),
             MIB_TEXT(shortage->poisoned_bytes));
    text_add(
        text,
        "  largest     free %s, without a driver call; obtainable %s: idle %s, moved %s, after "
        "waits %s, new %s\n",
        MIB_TEXT(shortage->largest_free_bytes), MIB_TEXT(obtainable->bytes),
        MIB_TEXT(obtainable->idle_bytes), MIB_TEXT(obtainable->free_bytes),
        MIB_TEXT(obtainable->awaited_bytes), MIB_TEXT(obtainable->growth_bytes));
    if (shortage->limit_bytes == UINT64_MAX)
        text_add(text, "  limit       none\n");
    else
        text_add(text, "  limit       %s, set by %s\n", MIB_TEXT(shortage->limit_bytes),
                 limit_source_text(shortage->limit_source));
    if (shortage->knows_driver)
        text_add(text, "  device      %s, free %s, held outside berm %s\n",
                 MIB_TEXT(shortage->memory_bytes), MIB_TEXT(shortage->free_bytes),
                 MIB_TEXT(shortage->outside_bytes));
    else
        text_add(text, "  device      %s; the driver does not say what is free\n",
                 MIB_TEXT(shortage->memory_bytes));
}

static void processes_add(text_t *text, const berm_shortage_t *shortage) {
    berm_nvml_process_t processes[BERM_PROCESSES_MAX];
    int count = -1;
    if (shortage->has_uuid) {
        berm__mutex_lock(&reports.lock);
        berm__nvml_open(&reports.nvml, berm__heap.options.driver);
        count = berm__nvml_processes(&reports.nvml, shortage->uuid, processes, BERM_PROCESSES_MAX);
        berm__mutex_unlock(&reports.lock);
    }
    text_add(text, "  processes   ");
    if (count < 0)
        text_add(text, "not known: NVML does not say");
    else if (count == 0)
        text_add(text, "none that NVML knows");
    for (int i = 0; i < count; i++) {
        bool is_own = processes[i].pid == (unsigned)getpid();
        text_add(text, "%spid %u%s ", i > 0 ? ", " : "", processes[i].pid, is_own ? " (this)" : "");
        if (processes[i].used_bytes == BERM_NVML_UNKNOWN)
            text_add(text, "an unknown size");
        else
            text_add(text, "%s", MIB_TEXT(processes[i].used_bytes));
    }
    text_add(text, "\n");
}

static void holders_add(text_t *text, const berm_holders_t *holders) {
    if (holders->pool_count > 0)
        text_add(text, "  holders, by pool\n");
    for (unsigned i = 0; i < holders->pool_count; i++) {
        const berm_holder_t *holder = &holders->pools[i];
        text_add(text, "    %s in %llu block%s, of %s reserved: ", MIB_TEXT(holder->live_bytes),
                 (unsigned long long)holder->blocks, BERM_PLURAL(holder->blocks),
                 MIB_TEXT(holder->reserved_bytes));
        pool_add(text, holder->id, holder->stream);
        text_add(text, "\n");
    }
    if (holders->pools_left_out > 0)
        text_add(text, "    and %llu pools with less\n",
                 (unsigned long long)holders->pools_left_out);
    if (holders->size_count > 0)
        text_add(text, "  holders, by size\n");
    for (unsigned i = 0; i < holders->size_count; i++) {
        const berm_holder_t *holder = &holders->sizes[i];
        text_add(text, "    %s in %llu block%s of at most %s\n", MIB_TEXT(holder->live_bytes),
                 (unsigned long long)holder->blocks, BERM_PLURAL(holder->blocks),
                 MIB_TEXT(holder->largest_bytes));
    }
}

// Where it is not device memory that was short.
static const char *remedy_otherwise(berm_status_t status) {
    switch (status) {
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
    case BERM_ERROR_LIMIT:
        return NULL;
    case BERM_ERROR_CEILING:
        return "fewer and larger handles (the option growth_handle), or a higher ceiling of files "
               "for the process (ulimit -n)";
    case BERM_ERROR_CAPTURE:
        return "the end of the capture";
    case BERM_ERROR_OUT_OF_ADDRESSES:
        return "fewer streams and pools, each of which has addresses of its own";
    default:
        return "it is not device memory that was short: see the first line";
    }
}

// What would have made it fit; each by itself is enough.
static void remedy_add(text_t *text, const berm_shortage_t *shortage) {
    uint64_t size_bytes = shortage->want.size_bytes, bytes = shortage->obtainable.bytes;
    const char *otherwise = remedy_otherwise(shortage->status);
    text_add(text, "  to fit      ");
    if (size_bytes > shortage->memory_bytes) {
        text_add(text, "a device with more memory: this one has %s\n",
                 MIB_TEXT(shortage->memory_bytes));
        return;
    }
    if (otherwise != NULL || bytes >= size_bytes) {
        text_add(text, "%s\n",
                 otherwise != NULL ? otherwise
                                   : "as it seems enough could be had by now: ask again");
        return;
    }
    uint64_t missing = berm__align_up(size_bytes - bytes, BERM_MIB(2));
    uint64_t growth = shortage->limit_bytes > shortage->reserved_bytes
                          ? shortage->limit_bytes - shortage->reserved_bytes
                          : 0;
    text_add(text, "%s more of live blocks freed", MIB_TEXT(missing));
    if (growth < shortage->free_bytes && shortage->free_bytes - growth >= missing)
        text_add(
            text, ", or a limit of %s",
            MIB_TEXT(berm__max_u64(shortage->limit_bytes, shortage->reserved_bytes) + missing));
    if (shortage->outside_bytes >= missing && growth >= shortage->free_bytes)
        text_add(text, ", or %s less held outside berm", MIB_TEXT(missing));
    if (!shortage->moves_pages && shortage->cached_bytes >= size_bytes)
        text_add(text, ", or pages that move: enough is cached, in pieces (the options remap and "
                       "backing)");
    text_add(text, "\n");
}

static void report_write(text_t *text, const berm_shortage_t *shortage) {
    text->length = 0;
    text_add(text, "%s\n", shortage->line);
    request_add(text, shortage);
    figures_add(text, shortage);
    processes_add(text, shortage);
    holders_add(text, &shortage->holders);
    remedy_add(text, shortage);
}

// --- where it goes -------------------------------------------------------------------------------

static void file_append(const char *path, const text_t *text) {
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    ssize_t written = file >= 0 ? write(file, text->at, text->length) : -1;
    if (file >= 0)
        (void)close(file);
    if (written != (ssize_t)text->length)
        BERM_LOG(BERM_LOG_WARN, "oom_report: '%s' does not take the report", path);
}

static void lines_log(const text_t *text) {
    const char *at = strchr(text->at, '\n') + 1; // the first is logged already
    for (const char *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
        berm__log(BERM_LOG_INFO, "%.*s", (int)(end - at), at);
}

// The text is large, and so is of this function's stack only.
__attribute__((noinline)) static void report_give(const berm_shortage_t *shortage) {
    static _Thread_local bool is_inside; // a request of the callback's own
    char path[BERM_OPTION_TEXT_BYTES];
    berm__mutex_lock(&berm__heap.lock);
    memcpy(path, berm__heap.options.oom_report, sizeof path);
    berm__mutex_unlock(&berm__heap.lock);
    berm__mutex_lock(&reports.lock);
    berm_report_fn callback = reports.callback;
    void *context = reports.context;
    berm__mutex_unlock(&reports.lock);
    bool is_wanted = callback != NULL || path[0] != '\0' || berm__log_level() >= BERM_LOG_INFO;
    if (!is_wanted || is_inside)
        return;
    text_t text;
    is_inside = true;
    report_write(&text, shortage);
    if (berm__log_level() >= BERM_LOG_INFO)
        lines_log(&text);
    if (path[0] != '\0')
        file_append(path, &text);
    if (callback != NULL)
        callback(context, shortage->status, text.at);
    is_inside = false;
}

void berm__shortage_report(const berm_shortage_t *shortage) {
    if (!shortage->is_due)
        return;
    if (shortage->left_out == 0)
        berm__log(BERM_LOG_WARN, "%s", shortage->line);
    else
        berm__log(BERM_LOG_WARN, "%s (%llu more such since the last line)", shortage->line,
                  (unsigned long long)shortage->left_out);
    report_give(shortage);
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
