// SPDX-License-Identifier: Apache-2.0
// The report of a failed request as text: the line, then the table. See report.h.
//
//   LINE
//     request    what was asked for, and where
//     ours       what berm has of the device ...
//     to fit     what would have made it fit
//
// Locks: none.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "front/report.h"
#include "front/tag.h"
#include "host/mem.h"

typedef struct text {
    size_t length, capacity;
    char *at;
} text_t;

// What does not fit is left out.
BERM_PRINTF(2, 3) static void text_add(text_t *text, const char *format, ...) {
    va_list arguments;
    size_t room = text->capacity - text->length;
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
    if (shortage->tag != 0)
        text_add(text, ", tag '%s'", berm__tag_name(shortage->tag));
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

const char *berm__limit_source_text(berm_limit_source_t source) {
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
                 berm__limit_source_text(shortage->limit_source));
    if (shortage->knows_driver)
        text_add(text, "  device      %s, free %s, held outside berm %s\n",
                 MIB_TEXT(shortage->memory_bytes), MIB_TEXT(shortage->free_bytes),
                 MIB_TEXT(shortage->outside_bytes));
    else
        text_add(text, "  device      %s; the driver does not say what is free\n",
                 MIB_TEXT(shortage->memory_bytes));
}

static void processes_add(text_t *text, const berm_report_t *report) {
    text_add(text, "  processes   ");
    if (report->process_count < 0)
        text_add(text, "not known: NVML does not say");
    else if (report->process_count == 0)
        text_add(text, "none that NVML knows");
    for (int i = 0; i < report->process_count; i++) {
        const berm_nvml_process_t *process = &report->processes[i];
        bool is_own = process->pid == (unsigned)getpid();
        text_add(text, "%spid %u%s ", i > 0 ? ", " : "", process->pid, is_own ? " (this)" : "");
        if (process->used_bytes == BERM_NVML_UNKNOWN)
            text_add(text, "an unknown size");
        else
            text_add(text, "%s", MIB_TEXT(process->used_bytes));
    }
    text_add(text, "\n");
}

static void verdict_add(text_t *text, const berm_diagnosis_t *diagnosis) {
    const berm_verdict_t *verdict = &diagnosis->verdict;
    if (!diagnosis->is_known)
        return;
    text_add(text, "  verdict     %s (confidence: %s), by the last %llu event%s\n",
             berm__verdict_name(verdict->kind), verdict->is_high ? "high" : "medium",
             (unsigned long long)diagnosis->events, BERM_PLURAL(diagnosis->events));
    for (unsigned i = 0; i < verdict->line_count; i++)
        text_add(text, "    %s\n", verdict->lines[i]);
    text_add(text, "  next        %s\n", verdict->next);
}

static void tags_add(text_t *text, const berm_diagnosis_t *diagnosis) {
    if (diagnosis->tag_count > 0)
        text_add(text, "  holders, by tag\n");
    for (unsigned i = 0; i < diagnosis->tag_count; i++) {
        const berm_holder_t *holder = &diagnosis->tags[i];
        text_add(text, "    %s in %llu block%s: ", MIB_TEXT(holder->live_bytes),
                 (unsigned long long)holder->blocks, BERM_PLURAL(holder->blocks));
        text_add(text, *holder->tag != '\0' ? "'%s'\n" : "no tag\n", holder->tag);
    }
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

// Rounded down: what is said must fit.
static double floor_hundredth(double value) {
    return (double)(uint64_t)(value * 100) / 100;
}

// Blocks that would have been enough.
static void enough_add(text_t *text, const berm_diagnosis_t *diagnosis) {
    uint64_t count = diagnosis->enough_blocks;
    if (count == 0)
        return;
    text_add(text, "    it fits if %s were freed, %s: ", count == 1 ? "this block" : "these blocks",
             MIB_TEXT(diagnosis->enough_bytes));
    for (uint64_t i = 0; i < count && i < BERM_ENOUGH_MAX; i++)
        text_add(text, "%s0x%llx", i > 0 ? ", " : "", (unsigned long long)diagnosis->enough[i]);
    if (count > BERM_ENOUGH_MAX)
        text_add(text, " and %llu more", (unsigned long long)(count - BERM_ENOUGH_MAX));
    text_add(text, "\n");
}

static void other_ways_add(text_t *text, const berm_diagnosis_t *diagnosis) {
    enough_add(text, diagnosis);
    if (diagnosis->move_pages > 0)
        text_add(text,
                 "    it fits after remapping %llu page%s, %.1f ms as published, when no stream is "
                 "captured\n",
                 (unsigned long long)diagnosis->move_pages, BERM_PLURAL(diagnosis->move_pages),
                 (double)diagnosis->move_us / 1000);
    if (diagnosis->scale_all > 0 && diagnosis->scale_all < 1)
        text_add(text,
                 "    it fits at a batch size scaled by %.2f, if all that lives scales with "
                 "it; %.2f, if only this request does\n",
                 floor_hundredth(diagnosis->scale_all), floor_hundredth(diagnosis->scale_request));
}

// What would have made it fit; each by itself is enough. Nothing that is on already is advised.
static void remedy_add(text_t *text, const berm_shortage_t *shortage,
                       const berm_diagnosis_t *diagnosis) {
    uint64_t size_bytes = shortage->want.size_bytes, bytes = shortage->obtainable.bytes;
    const char *otherwise = remedy_otherwise(shortage->status);
    text_add(text, "  to fit      ");
    if (size_bytes > shortage->memory_bytes) {
        text_add(text, "a device with more memory: this one has %s\n",
                 MIB_TEXT(shortage->memory_bytes));
        other_ways_add(text, diagnosis);
        return;
    }
    if (otherwise != NULL || bytes >= size_bytes) {
        text_add(text, "%s\n",
                 otherwise != NULL ? otherwise
                                   : "as it seems enough could be had by now: ask again");
        other_ways_add(text, diagnosis);
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
    if (shortage->is_plain_by_option && shortage->cached_bytes >= size_bytes)
        text_add(text, ", or pages that move: enough is cached, in pieces (backing:auto)");
    text_add(text, "\n");
    other_ways_add(text, diagnosis);
}

void berm__report_write_text(const berm_report_t *report, char *at, size_t capacity) {
    const berm_shortage_t *shortage = report->shortage;
    text_t text = {0, capacity, at};
    text_add(&text, "%s\n", shortage->line);
    verdict_add(&text, report->diagnosis);
    request_add(&text, shortage);
    figures_add(&text, shortage);
    processes_add(&text, report);
    tags_add(&text, report->diagnosis);
    holders_add(&text, &shortage->holders);
    remedy_add(&text, shortage, report->diagnosis);
    if (report->dump[0] != '\0')
        text_add(&text, "  dump        %s, for berm report\n", report->dump);
    else
        text_add(&text, "  dump        none: the option recording names a file for it\n");
    text_add(&text, "  took        %.1f ms to find out\n", (double)report->took_ns / 1e6);
}
