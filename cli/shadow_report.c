// SPDX-License-Identifier: Apache-2.0
// What a shadow run says: the table of allocators, of GPUs, of steps; what holds the peak; and how
// far all of it can be believed. Figures come from the processes' reports
// (python/berm/_account.py).
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/shadow.h"

enum {
    STEPS_SHOWN = 8,
    STUBS_SHOWN = 6,
    LINES_SHOWN = 6,
    READS_SHOWN = 4,
};

static uint64_t figure_of(const json_t *object, const char *figure) {
    json_int_t value = json_integer_value(json_object_get(object, figure));
    return value > 0 ? (uint64_t)value : 0;
}

// Calls for each device of each process.
#define EACH_DEVICE(run, report, device)                                                           \
    for (int i_ = 0; i_ < (run)->report_count; i_++)                                               \
        for (size_t j_ = 0; (report) = (run)->reports[i_],                                         \
                    j_ < json_array_size(json_object_get((report), "devices")) &&                  \
                                ((device) = json_array_get(json_object_get((report), "devices"),   \
                                                           j_)) != NULL;                           \
             j_++)

uint64_t shadow_largest(const shadow_run_t *run, const char *figure) {
    const json_t *report, *device;
    uint64_t largest = 0;
    EACH_DEVICE(run, report, device) {
        uint64_t value = figure_of(device, figure);
        largest = value > largest ? value : largest;
    }
    return largest;
}

// What the device's contexts take: all that is used and not reserved by torch.
uint64_t shadow_context_bytes(const shadow_run_t *run) {
    return shadow_largest(run, "context_bytes");
}

static bool is_short(const json_t *report) {
    return json_is_true(json_object_get(json_object_get(report, "error"), "is_shortage"));
}

// Of all processes, or of those only that were short of memory; NULL: none.
static const json_t *device_with_peak(const shadow_run_t *run, bool is_of_short,
                                      const json_t **report_of) {
    const json_t *report, *device, *found = NULL;
    EACH_DEVICE(run, report, device) {
        if (is_of_short && !is_short(report))
            continue;
        if (found == NULL ||
            figure_of(device, "peak_requested_bytes") > figure_of(found, "peak_requested_bytes")) {
            found = device;
            *report_of = report;
        }
    }
    return found;
}

static size_t device_count(const shadow_run_t *run) {
    const json_t *report, *device;
    size_t count = 0;
    EACH_DEVICE(run, report, device)
    count++;
    return count;
}

// --- tables --------------------------------------------------------------------------------------

static void cell_mib(cli_table_t *table, uint64_t bytes) {
    if (bytes == 0)
        cli_table_cell(table, "-");
    else
        cli_table_cell(table, "%.1f", cli_mib(bytes));
}

static void print_allocators(const shadow_run_t *runs, int count) {
    static const char *const names[] = {"allocator",
                                        "peak\nrequested\nMiB",
                                        "peak\nallocated\nMiB",
                                        "peak\nreserved\nMiB",
                                        "smallest\nmemory\nMiB",
                                        "smallest\n/requested",
                                        "driver\nallocs",
                                        "result"};
    cli_table_t *table = calloc(1, sizeof *table);
    if (table == NULL)
        return;
    cli_table_head(table, names, BERM_ARRAY_LENGTH(names));
    for (int i = 0; i < count; i++) {
        const shadow_run_t *run = &runs[i];
        uint64_t requested = shadow_largest(run, "peak_requested_bytes");
        cli_table_row(table);
        cli_table_cell(table, "%s", run->allocator);
        cell_mib(table, requested);
        cell_mib(table, shadow_largest(run, "peak_allocated_bytes"));
        cell_mib(table, shadow_largest(run, "peak_reserved_bytes"));
        cell_mib(table, run->least_bytes);
        if (run->least_bytes > 0 && requested > 0 && !run->is_short)
            cli_table_cell(table, "%.4f", (double)run->least_bytes / (double)requested);
        else
            cli_table_cell(table, "-");
        cli_table_cell(table, "%" PRIu64, shadow_largest(run, "device_allocs"));
        cli_table_cell(table, "%s", run->is_short ? "does not fit" : "fits");
    }
    cli_table_print(table, stdout);
    free(table);
}

// What became of a process.
static const char *result_of(const json_t *report) {
    const json_t *error = json_object_get(report, "error");
    const char *type = json_string_value(json_object_get(error, "type"));
    if (is_short(report))
        return "does not fit";
    if (type == NULL)
        return "fits";
    return strcmp(type, "SIGTERM") == 0 ? "was ended" : "failed";
}

// Ranks that were killed, or ended without Python's end.
static void print_missing(const shadow_run_t *run) {
    long ranks = 0, seen = 0;
    for (int i = 0; i < run->report_count; i++) {
        const char *all = json_string_value(json_object_get(run->reports[i], "ranks"));
        long number = all != NULL ? strtol(all, NULL, 10) : 0;
        ranks = number > ranks ? number : ranks;
        seen += number > 0;
    }
    if (seen < ranks)
        (void)printf("%ld of %ld ranks left no report\n", ranks - seen, ranks);
}

static void print_gpus(const shadow_run_t *run) {
    static const char *const names[] = {
        "process", "rank", "GPU", "peak\nrequested\nMiB", "peak\nreserved\nMiB", "steps", "result"};
    const json_t *report, *device;
    cli_table_t *table = calloc(1, sizeof *table);
    if (table == NULL || device_count(run) < 2) {
        free(table);
        return;
    }
    cli_table_head(table, names, BERM_ARRAY_LENGTH(names));
    EACH_DEVICE(run, report, device) {
        const char *rank = json_string_value(json_object_get(report, "rank"));
        cli_table_row(table);
        cli_table_cell(table, "%" PRIu64, figure_of(report, "pid"));
        cli_table_cell(table, "%s", rank != NULL ? rank : "-");
        cli_table_cell(table, "%" PRIu64, figure_of(device, "device"));
        cell_mib(table, figure_of(device, "peak_requested_bytes"));
        cell_mib(table, figure_of(device, "peak_reserved_bytes"));
        cli_table_cell(table, "%" PRIu64, figure_of(report, "steps"));
        cli_table_cell(table, "%s", result_of(report));
    }
    (void)printf("\n");
    cli_table_print(table, stdout);
    free(table);
    print_missing(run);
}

static void print_steps(const json_t *device) {
    const json_t *peaks = json_object_get(device, "step_peak_bytes");
    size_t count = json_array_size(peaks);
    if (count == 0)
        return;
    (void)printf("\nPeak of each step, MiB:");
    for (size_t i = 0; i < count && i < STEPS_SHOWN; i++)
        (void)printf(" %.1f", cli_mib((uint64_t)json_integer_value(json_array_get(peaks, i))));
    (void)printf("%s\n", count > STEPS_SHOWN ? " ..." : "");
}

static void print_sums(const json_t *device, const char *key, const char *title, size_t most) {
    const json_t *rows = json_object_get(device, key);
    uint64_t peak = figure_of(device, "peak_requested_bytes");
    if (json_array_size(rows) == 0 || peak == 0)
        return;
    (void)printf("\n%s\n", title);
    for (size_t i = 0; i < json_array_size(rows) && i < most; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        uint64_t bytes = figure_of(row, "bytes");
        (void)printf("  %10.1f MiB  %5.1f %%  in %6" PRIu64 "  %s\n", cli_mib(bytes),
                     100.0 * (double)bytes / (double)peak, figure_of(row, "blocks"),
                     name != NULL ? name : "?");
    }
}

// Which values the program had no way to know. Pairs are [name, count].
static void print_pairs(const json_t *pairs, size_t most) {
    for (size_t i = 0; i < json_array_size(pairs) && i < most; i++) {
        const json_t *pair = json_array_get(pairs, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        (void)printf("    %8" PRIu64 "  %s\n",
                     (uint64_t)json_integer_value(json_array_get(pair, 1)),
                     name != NULL ? name : "?");
    }
}

static void print_reads(const json_t *report) {
    const json_t *values = json_object_get(report, "values");
    uint64_t reads = json_is_object(values)
                         ? figure_of(values, "unknown_reads")
                         : figure_of(json_object_get(report, "counters"), "host_reads");
    (void)printf("  %" PRIu64
                 " reads by the host of values that are not known (zeros were given)%s\n",
                 reads, reads > 0 && json_is_object(values) ? ":" : "");
    print_pairs(json_object_get(values, "unknown_read_lines"), READS_SHOWN);
    if (figure_of(values, "unknown_sizes") > 0)
        (void)printf("  %" PRIu64 " results whose size depends on such values: taken as if they "
                     "were zeros\n",
                     figure_of(values, "unknown_sizes"));
    if (json_array_size(json_object_get(values, "not_on_cpu")) > 0)
        (void)printf("  operators that the CPU could not do:\n");
    print_pairs(json_object_get(values, "not_on_cpu"), READS_SHOWN);
}

static void print_ranges(const shadow_run_t *runs, int count) {
    if (runs[0].reserved_high_bytes == 0)
        (void)printf("  kernels take a modelled time: what record_stream holds, and for how long, "
                     "is a guess;\n    --event-range says how much that changes\n");
    for (int i = 0; i < count && runs[i].reserved_high_bytes > 0; i++)
        (void)printf("  %s: %.1f to %.1f MiB reserved at most, with kernels of no time to 1 ms "
                     "each%s\n",
                     runs[i].allocator, cli_mib(runs[i].reserved_low_bytes),
                     cli_mib(runs[i].reserved_high_bytes),
                     runs[i].is_range_short ? "; it does not fit with one of them" : "");
}

static void print_confidence(const shadow_run_t *runs, int count, const json_t *report,
                             const json_t *device) {
    const json_t *counters = json_object_get(report, "counters");
    const json_t *stubs = json_object_get(report, "stubs");
    (void)printf("\nHow far to believe it\n");
    print_reads(report);
    (void)printf("  %" PRIu64 " calls of %zu library functions that do less than the real ones",
                 figure_of(counters, "stub_hits"), json_array_size(stubs));
    for (size_t i = 0; i < json_array_size(stubs) && i < STUBS_SHOWN; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(stubs, i), "name"));
        (void)printf("%s %s", i == 0 ? ":" : ",", name != NULL ? name : "?");
    }
    (void)printf("%s\n", json_array_size(stubs) > STUBS_SHOWN ? ", ..." : "");
    (void)printf("  workspaces of cuBLAS, cuDNN and solvers are taken as 0 or estimated: real ones "
                 "are larger\n");
    print_ranges(runs, count);
    (void)printf("  a context takes %.0f MiB of the GPU here: an estimate\n",
                 cli_mib(figure_of(device, "context_bytes")));
}

static void print_batches(const shadow_arguments_t *a, const shadow_run_t *runs, int count) {
    for (int i = 0; i < count; i++) {
        if (runs[i].largest_batch == 0)
            (void)printf("%s on %s: not even 1 for {} fits\n", runs[i].allocator, a->gpu);
        else
            (void)printf("%s on %s: the largest number for {} that fits is %" PRIu64 "\n",
                         runs[i].allocator, a->gpu, runs[i].largest_batch);
    }
}

static void print_verdict(const shadow_run_t *run) {
    const json_t *report = NULL, *device = device_with_peak(run, true, &report);
    if (!run->is_short || device == NULL)
        return;
    const char *rank = json_string_value(json_object_get(report, "rank"));
    (void)printf(
        "\nDoes not fit: out of memory with %s%s%s in step %" PRIu64 ", when %.1f MiB were "
        "requested and live.\nThe GPU has %.1f MiB, of which a context takes %.1f. "
        "--fit says with how much it ends.\n",
        run->allocator, rank != NULL ? " in rank " : "", rank != NULL ? rank : "",
        figure_of(device, "step_of_end"), cli_mib(figure_of(device, "live_end_bytes")),
        cli_mib(figure_of(device, "memory_bytes")), cli_mib(figure_of(device, "context_bytes")));
}

void shadow_print(const shadow_arguments_t *a, const shadow_run_t *runs, int count) {
    if (runs[0].largest_batch != UINT64_MAX) {
        print_batches(a, runs, count);
        return;
    }
    const json_t *report = NULL, *device = device_with_peak(&runs[count - 1], false, &report);
    const char *name = json_string_value(json_object_get(device, "name"));
    (void)printf("%s, simulated: %.0f MiB%s\n\n", name != NULL ? name : a->gpu,
                 cli_mib(figure_of(device, "memory_bytes")),
                 a->fits || count > 1 ? "; smallest memory is without what a context takes" : "");
    print_allocators(runs, count);
    for (int i = 0; i < count; i++)
        print_verdict(&runs[i]);
    print_gpus(&runs[count - 1]);
    print_steps(device);
    print_sums(device, "holders", "What holds the peak", LINES_SHOWN);
    print_sums(device, "modules", "By module that was running", LINES_SHOWN);
    print_sums(device, "lines", "By line of the program", LINES_SHOWN);
    print_confidence(runs, count, report, device);
}

void shadow_print_json(const shadow_arguments_t *a, const shadow_run_t *runs, int count) {
    json_t *all = json_object(), *list = json_array();
    (void)json_object_set_new(all, "gpu", json_string(a->gpu));
    for (int i = 0; i < count; i++) {
        const shadow_run_t *run = &runs[i];
        json_t *one = json_object(), *processes = json_array();
        (void)json_object_set_new(one, "allocator", json_string(run->allocator));
        (void)json_object_set_new(one, "fits", json_boolean(!run->is_short));
        if (run->least_bytes > 0)
            (void)json_object_set_new(one, "smallest_memory_bytes",
                                      json_integer((json_int_t)run->least_bytes));
        if (run->reserved_high_bytes > 0) {
            (void)json_object_set_new(one, "reserved_low_bytes",
                                      json_integer((json_int_t)run->reserved_low_bytes));
            (void)json_object_set_new(one, "reserved_high_bytes",
                                      json_integer((json_int_t)run->reserved_high_bytes));
            (void)json_object_set_new(one, "fits_whatever_the_timing",
                                      json_boolean(!run->is_short && !run->is_range_short));
        }
        if (run->largest_batch != UINT64_MAX)
            (void)json_object_set_new(one, "largest_number",
                                      json_integer((json_int_t)run->largest_batch));
        for (int j = 0; j < run->report_count; j++)
            (void)json_array_append(processes, run->reports[j]);
        (void)json_object_set_new(one, "processes", processes);
        (void)json_array_append_new(list, one);
    }
    (void)json_object_set_new(all, "runs", list);
    (void)json_dumpf(all, stdout, JSON_INDENT(1));
    (void)printf("\n");
    json_decref(all);
}
