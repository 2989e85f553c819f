// SPDX-License-Identifier: Apache-2.0
// The report of a failed request as one JSON object: see report.h. All sizes are bytes; what is not
// known is null.
//
// Locks: none.
#include "base/bits.h"
#include "base/emit.h"
#include "front/report.h"
#include "front/tag.h"

typedef struct field {
    const char *name;
    uint64_t value; // UINT64_MAX: null
} field_t;

static void fields_emit(berm_emit_t *emit, const field_t *fields, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fields[i].value == UINT64_MAX)
            berm__emit_null(emit, fields[i].name);
        else
            berm__emit_u64(emit, fields[i].name, fields[i].value);
}

static void verdict_emit(berm_emit_t *emit, const berm_diagnosis_t *diagnosis) {
    const berm_verdict_t *verdict = &diagnosis->verdict;
    if (!diagnosis->is_known) {
        berm__emit_null(emit, "verdict");
        return;
    }
    berm__emit_string(emit, "verdict", berm__verdict_name(verdict->kind));
    berm__emit_string(emit, "confidence", verdict->is_high ? "high" : "medium");
    berm__emit_array_begin(emit, "evidence");
    for (unsigned i = 0; i < verdict->line_count; i++)
        berm__emit_string(emit, NULL, verdict->lines[i]);
    berm__emit_array_end(emit);
    berm__emit_string(emit, "next", verdict->next);
    berm__emit_u64(emit, "events", diagnosis->events);
}

static void request_emit(berm_emit_t *emit, const berm_shortage_t *shortage) {
    const berm_want_t *want = &shortage->want;
    berm__emit_object_begin(emit, "request");
    berm__emit_u64(emit, "size_bytes", want->size_bytes);
    berm__emit_u64(emit, "alignment_bytes", want->alignment_bytes);
    berm__emit_i64(emit, "device", want->ordinal);
    berm__emit_i64(emit, "stream", (int64_t)(intptr_t)want->stream);
    berm__emit_u64(emit, "pool_high", want->id.high);
    berm__emit_u64(emit, "pool_low", want->id.low);
    berm__emit_string(emit, "tag", berm__tag_name(shortage->tag));
    berm__emit_addr(emit, "call_site", (berm_addr_t)(uintptr_t)shortage->site);
    if (shortage->driver_symbol != NULL) {
        berm__emit_string(emit, "refused_by", shortage->driver_symbol);
        berm__emit_i64(emit, "driver_result", shortage->driver_result);
    }
    berm__emit_u64(emit, "left_out", shortage->left_out);
    berm__emit_object_end(emit);
}

static void figures_emit(berm_emit_t *emit, const berm_shortage_t *shortage) {
    const berm_obtainable_t *obtainable = &shortage->obtainable;
    bool knows = shortage->knows_driver;
    const field_t fields[] = {
        {"live_bytes", shortage->live_bytes},
        {"blocks", shortage->blocks},
        {"allocated_bytes", shortage->allocated_bytes},
        {"awaited_bytes", shortage->awaited_bytes},
        {"cached_bytes", shortage->cached_bytes},
        {"reserved_bytes", shortage->reserved_bytes},
        {"pinned_bytes", shortage->pinned_bytes},
        {"exported_bytes", shortage->exported_bytes},
        {"poisoned_bytes", shortage->poisoned_bytes},
        {"largest_free_bytes", shortage->largest_free_bytes},
        {"largest_obtainable_bytes", obtainable->bytes},
        {"obtainable_idle_bytes", obtainable->idle_bytes},
        {"obtainable_moved_bytes", obtainable->free_bytes},
        {"obtainable_awaited_bytes", obtainable->awaited_bytes},
        {"obtainable_new_bytes", obtainable->growth_bytes},
        {"limit_bytes", shortage->limit_bytes},
        {"memory_bytes", shortage->memory_bytes},
        {"driver_free_bytes", knows ? shortage->free_bytes : UINT64_MAX},
        {"outside_bytes", knows ? shortage->outside_bytes : UINT64_MAX},
    };
    berm__emit_object_begin(emit, "figures");
    fields_emit(emit, fields, BERM_ARRAY_LENGTH(fields));
    if (shortage->limit_bytes == UINT64_MAX)
        berm__emit_null(emit, "limit_set_by");
    else
        berm__emit_string(emit, "limit_set_by", berm__limit_source_text(shortage->limit_source));
    berm__emit_object_end(emit);
}

static void holders_emit(berm_emit_t *emit, const char *name, const berm_holder_t *holders,
                         unsigned count) {
    berm__emit_array_begin(emit, name);
    for (unsigned i = 0; i < count; i++) {
        const berm_holder_t *holder = &holders[i];
        berm__emit_object_begin(emit, NULL);
        berm__emit_u64(emit, "live_bytes", holder->live_bytes);
        berm__emit_u64(emit, "blocks", holder->blocks);
        if (holder->tag != NULL) {
            berm__emit_string(emit, "tag", holder->tag);
        } else if (holder->largest_bytes != 0) {
            berm__emit_u64(emit, "largest_bytes", holder->largest_bytes);
        } else {
            berm__emit_u64(emit, "reserved_bytes", holder->reserved_bytes);
            berm__emit_u64(emit, "pool_high", holder->id.high);
            berm__emit_u64(emit, "pool_low", holder->id.low);
            berm__emit_i64(emit, "stream", (int64_t)(intptr_t)holder->stream);
        }
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
}

static void fit_emit(berm_emit_t *emit, const berm_diagnosis_t *diagnosis) {
    berm__emit_object_begin(emit, "to_fit");
    berm__emit_u64(emit, "free_blocks", diagnosis->enough_blocks);
    berm__emit_u64(emit, "free_blocks_bytes", diagnosis->enough_bytes);
    berm__emit_array_begin(emit, "free_addresses");
    for (uint64_t i = 0; i < berm__min_u64(diagnosis->enough_blocks, BERM_ENOUGH_MAX); i++)
        berm__emit_addr(emit, NULL, diagnosis->enough[i]);
    berm__emit_array_end(emit);
    berm__emit_u64(emit, "move_pages", diagnosis->move_pages);
    berm__emit_u64(emit, "move_us", diagnosis->move_us);
    berm__emit_double(emit, "scale_request", diagnosis->scale_request, 4);
    berm__emit_double(emit, "scale_all", diagnosis->scale_all, 4);
    berm__emit_object_end(emit);
}

static void processes_emit(berm_emit_t *emit, const berm_report_t *report) {
    if (report->process_count < 0) {
        berm__emit_null(emit, "processes");
        return;
    }
    berm__emit_array_begin(emit, "processes");
    for (int i = 0; i < report->process_count; i++) {
        const field_t fields[] = {{"pid", report->processes[i].pid},
                                  {"used_bytes", report->processes[i].used_bytes}};
        berm__emit_object_begin(emit, NULL);
        fields_emit(emit, fields, BERM_ARRAY_LENGTH(fields));
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
}

void berm__report_write_json(const berm_report_t *report, berm_emit_write_fn write, void *context) {
    const berm_shortage_t *shortage = report->shortage;
    const berm_diagnosis_t *diagnosis = report->diagnosis;
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, write, context);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_u64(&emit, "berm_oom_report", 1);
    berm__emit_string(&emit, "line", shortage->line);
    berm__emit_string(&emit, "status", berm_status_name(shortage->status));
    verdict_emit(&emit, diagnosis);
    request_emit(&emit, shortage);
    figures_emit(&emit, shortage);
    processes_emit(&emit, report);
    berm__emit_object_begin(&emit, "holders");
    holders_emit(&emit, "pools", shortage->holders.pools, shortage->holders.pool_count);
    holders_emit(&emit, "sizes", shortage->holders.sizes, shortage->holders.size_count);
    holders_emit(&emit, "tags", diagnosis->tags, diagnosis->tag_count);
    berm__emit_object_end(&emit);
    fit_emit(&emit, diagnosis);
    if (report->dump[0] != '\0')
        berm__emit_string(&emit, "dump", report->dump);
    else
        berm__emit_null(&emit, "dump");
    berm__emit_u64(&emit, "took_us", report->took_ns / 1000);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}
