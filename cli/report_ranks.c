// SPDX-License-Identifier: Apache-2.0
// berm report of several recordings: those of the processes of one job, one each (the option
// recording with %r in the name). It says which process failed first, and where they differ.
//
// Times are those of the hosts' clocks: what is first between hosts is right as far as they agree.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"
#include "record/verdict.h"
#include "stress/trace/recording.h"

enum {
    SHOWN_MAX = 60, // rows of the table
    VALUES = 4,     // that ranks are compared by
};

typedef struct rank {
    char name[BERM_RECORD_RANK_BYTES], host[BERM_RECORD_HOST_BYTES];
    uint64_t number, pid;
    int device;
    berm_verdict_t verdict;
    bool has_failed;
    int64_t failed_ns;       // since 1970
    uint64_t values[VALUES]; // bytes: as value_names
} rank_t;

static const char *const value_names[VALUES] = {"live", "reserved", "reserved at the peak",
                                                "held outside berm"};

// --- reading -------------------------------------------------------------------------------------

static const berm_record_device_t *device_of(const berm_record_t *record, int ordinal) {
    for (unsigned i = 0; i < record->device_count; i++)
        if (record->devices[i].ordinal == ordinal)
            return &record->devices[i];
    return record->device_count > 0 ? &record->devices[0] : NULL;
}

static void values_read(rank_t *rank, const berm_record_t *record) {
    const berm_record_device_t *device = device_of(record, rank->verdict.device);
    if (device == NULL)
        return;
    const berm_record_figures_t *figures = &device->figures;
    uint64_t known = figures->reserved + figures->driver_free;
    rank->device = device->ordinal;
    rank->values[0] = figures->requested;
    rank->values[1] = figures->reserved;
    rank->values[2] = figures->reserved_peak;
    rank->values[3] = figures->memory > known ? figures->memory - known : 0;
    for (uint64_t i = device->event_count; i-- > 0 && rank->has_failed;)
        if (device->events[i].kind == BERM_RECORD_FAIL) {
            rank->failed_ns = record->wall_ns + (int64_t)device->events[i].time_ns;
            return;
        }
}

static int rank_read(const char *command, const char *path, rank_t *rank) {
    char error[512] = "";
    berm_record_t *record = recording_load(path, error, sizeof error);
    if (record == NULL)
        return cli_fail(command, "%s", error);
    bool is_good = berm__verdict_find(record, &rank->verdict);
    rank->has_failed = rank->verdict.kind != BERM_VERDICT_NONE;
    rank->pid = record->pid;
    memcpy(rank->name, record->rank, sizeof rank->name);
    memcpy(rank->host, record->host, sizeof rank->host);
    rank->number = strtoull(rank->name, NULL, 10);
    values_read(rank, record);
    recording_free(record);
    return is_good ? CLI_OK : cli_fail(command, "no memory");
}

static int rank_order(const void *one, const void *other) {
    const rank_t *a = one, *b = other;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

// --- comparing -----------------------------------------------------------------------------------

// The rank that failed first; NULL: none.
static const rank_t *first_find(const rank_t *ranks, size_t count) {
    const rank_t *first = NULL;
    for (size_t i = 0; i < count; i++)
        if (ranks[i].has_failed && (first == NULL || ranks[i].failed_ns < first->failed_ns))
            first = &ranks[i];
    return first;
}

static int value_order(const void *one, const void *other) {
    const uint64_t *a = one, *b = other;
    return *a < *b ? -1 : *a > *b;
}

static uint64_t median_find(const rank_t *ranks, size_t count, unsigned value) {
    uint64_t *sorted = calloc(count, sizeof *sorted);
    if (sorted == NULL)
        return ranks[0].values[value];
    for (size_t i = 0; i < count; i++)
        sorted[i] = ranks[i].values[value];
    qsort(sorted, count, sizeof *sorted, value_order);
    uint64_t median = sorted[(count - 1) / 2];
    free(sorted);
    return median;
}

// A fifth and 16 MiB from the median.
static bool is_apart(uint64_t value, uint64_t median) {
    uint64_t distance = value > median ? value - median : median - value;
    return distance > median / 5 && distance > BERM_MIB(16);
}

// --- showing -------------------------------------------------------------------------------------

static double after_ms(const rank_t *rank, const rank_t *first) {
    return (double)(rank->failed_ns - first->failed_ns) / 1e6;
}

static void table_print(const rank_t *ranks, size_t count, const rank_t *first) {
    static const char *const names[] = {"rank",         "host",          "pid",
                                        "GPU",          "live\nMiB",     "reserved\nMiB",
                                        "outside\nMiB", "failed\nafter", "verdict"};
    static cli_table_t table;
    table.columns = BERM_ARRAY_LENGTH(names);
    cli_table_head(&table, names, BERM_ARRAY_LENGTH(names));
    for (size_t i = 0; i < count && i < SHOWN_MAX; i++) {
        const rank_t *rank = &ranks[i];
        cli_table_row(&table);
        cli_table_cell(&table, "%s", rank->name);
        cli_table_cell(&table, "%.20s", rank->host);
        cli_table_cell(&table, "%" PRIu64, rank->pid);
        cli_table_cell(&table, "%d", rank->device);
        cli_table_cell(&table, "%.1f", cli_mib(rank->values[0]));
        cli_table_cell(&table, "%.1f", cli_mib(rank->values[1]));
        cli_table_cell(&table, "%.1f", cli_mib(rank->values[3]));
        if (rank->has_failed)
            cli_table_cell(&table, "%.1f ms", after_ms(rank, first));
        else
            cli_table_cell(&table, "-");
        cli_table_cell(&table, "%s", berm__verdict_name(rank->verdict.kind));
    }
    cli_table_print(&table, stdout);
    if (count > SHOWN_MAX)
        (void)printf("and %zu more: berm report --json has all\n", count - SHOWN_MAX);
}

static void differences_print(const rank_t *ranks, size_t count) {
    for (unsigned value = 0; value < VALUES; value++) {
        uint64_t median = median_find(ranks, count, value);
        for (size_t i = 0; i < count; i++)
            if (is_apart(ranks[i].values[value], median))
                (void)printf("rank %s differs: %s %.1f MiB, of most %.1f MiB\n", ranks[i].name,
                             value_names[value], cli_mib(ranks[i].values[value]), cli_mib(median));
    }
}

static void text_print(const rank_t *ranks, size_t count) {
    const rank_t *first = first_find(ranks, count);
    size_t failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += ranks[i].has_failed;
    if (first == NULL) {
        (void)printf("verdict: nothing failed on any of %zu ranks\n", count);
    } else {
        (void)printf("verdict: %s (confidence: %s), first on rank %s of %s; %zu of %zu ranks "
                     "failed\n",
                     berm__verdict_name(first->verdict.kind),
                     first->verdict.is_high ? "high" : "medium", first->name, first->host, failed,
                     count);
        for (unsigned i = 0; i < first->verdict.line_count; i++)
            (void)printf("  %s\n", first->verdict.lines[i]);
        (void)printf("next: %s\n", first->verdict.next);
    }
    table_print(ranks, count, first);
    differences_print(ranks, count);
}

static void rank_emit(berm_emit_t *emit, const rank_t *rank, const rank_t *first) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "rank", rank->name);
    berm__emit_string(emit, "host", rank->host);
    berm__emit_u64(emit, "pid", rank->pid);
    berm__emit_i64(emit, "device", rank->device);
    berm__emit_string(emit, "verdict", berm__verdict_name(rank->verdict.kind));
    berm__emit_string(emit, "confidence", rank->verdict.is_high ? "high" : "medium");
    if (rank->has_failed)
        berm__emit_double(emit, "failed_after_ms", after_ms(rank, first), 3);
    else
        berm__emit_null(emit, "failed_after_ms");
    berm__emit_u64(emit, "wanted_bytes", rank->verdict.wanted_bytes);
    berm__emit_u64(emit, "live_bytes", rank->values[0]);
    berm__emit_u64(emit, "reserved_bytes", rank->values[1]);
    berm__emit_u64(emit, "reserved_peak_bytes", rank->values[2]);
    berm__emit_u64(emit, "outside_bytes", rank->values[3]);
    berm__emit_array_begin(emit, "evidence");
    for (unsigned i = 0; i < rank->verdict.line_count; i++)
        berm__emit_string(emit, NULL, rank->verdict.lines[i]);
    berm__emit_array_end(emit);
    berm__emit_object_end(emit);
}

static void json_print(const rank_t *ranks, size_t count) {
    const rank_t *first = first_find(ranks, count);
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    if (first != NULL)
        berm__emit_string(&emit, "first_rank", first->name);
    else
        berm__emit_null(&emit, "first_rank");
    berm__emit_array_begin(&emit, "ranks");
    for (size_t i = 0; i < count; i++)
        rank_emit(&emit, &ranks[i], first);
    berm__emit_array_end(&emit);
    berm__emit_array_begin(&emit, "differ");
    for (unsigned value = 0; value < VALUES; value++) {
        uint64_t median = median_find(ranks, count, value);
        for (size_t i = 0; i < count; i++)
            if (is_apart(ranks[i].values[value], median)) {
                berm__emit_object_begin(&emit, NULL);
                berm__emit_string(&emit, "rank", ranks[i].name);
                berm__emit_string(&emit, "what", value_names[value]);
                berm__emit_u64(&emit, "bytes", ranks[i].values[value]);
                berm__emit_u64(&emit, "median_bytes", median);
                berm__emit_object_end(&emit);
            }
    }
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

int cli_report_ranks(const char *command, char *const *paths, size_t count, bool is_json) {
    rank_t *ranks = calloc(count, sizeof *ranks);
    int status = ranks != NULL ? CLI_OK : cli_fail(command, "no memory");
    for (size_t i = 0; i < count && status == CLI_OK; i++)
        status = rank_read(command, paths[i], &ranks[i]);
    if (status == CLI_OK) {
        qsort(ranks, count, sizeof *ranks, rank_order);
        (is_json ? json_print : text_print)(ranks, count);
        status = first_find(ranks, count) != NULL ? CLI_FINDING : CLI_OK;
    }
    free(ranks);
    return status;
}
