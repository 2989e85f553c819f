// SPDX-License-Identifier: Apache-2.0
// What `berm bench` prints: CSV with the command and the machine as comments, or one JSON object.
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "berm.h"
#include "cli/bench.h"

// --- the machine ---------------------------------------------------------------------------------

static void processor_read(char *name, size_t capacity) {
    (void)snprintf(name, capacity, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        (void)snprintf(name, capacity, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file != NULL)
        (void)fclose(file);
}

// The commit of the source tree that the program lies in, where there is one.
static void commit_read(char *commit, size_t capacity) {
    char path[PATH_MAX], output[128] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    (void)snprintf(commit, capacity, "unknown");
    if (length <= 0)
        return;
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    char *const argv[] = {"git", "-C", path, "describe", "--always", "--dirty", NULL};
    if (cli_bench_spawn(argv, STDOUT_FILENO, output, sizeof output) == 0)
        (void)snprintf(commit, capacity, "%.*s", (int)strcspn(output, "\n"), output);
}

static void machine_write(char *text, size_t capacity) {
    struct utsname system = {0};
    char processor[128], commit[64];
    (void)uname(&system);
    processor_read(processor, sizeof processor);
    commit_read(commit, sizeof commit);
    (void)snprintf(text, capacity, "%.32s, %s, %ld processors, %s device; berm %s, commit %s",
                   system.machine, processor, sysconf(_SC_NPROCESSORS_ONLN),
                   stress_device_is_simulated() ? "simulated" : "real", berm_version(), commit);
}

// --- output --------------------------------------------------------------------------------------

static void print_figure(double value, int digits) {
    if (value < 0)
        (void)printf(",na");
    else
        (void)printf(",%.*f", digits, value);
}

// The same with the event ring off.
static void print_ring(const bench_row_t *row) {
    (void)printf("ring off %.1f ns", row->off_ns);
    if (row->off_instructions >= 0)
        (void)printf(" and %.0f instructions", row->off_instructions);
    (void)printf("; on over off %.3f", row->over_off);
}

void cli_bench_print_csv(const cli_bench_t *bench) {
    char text[4096];
    (void)cli_command_text(bench->argc, bench->argv, text, sizeof text);
    (void)printf("# %s\n", text);
    machine_write(text, sizeof text);
    (void)printf("# %s\n", text);
    (void)printf("benchmark,allocator,threads,operations,mean_ns,p50_ns,p99_ns,p999_ns,"
                 "per_mutex_pair,ratio,instructions,host_bytes_per_block,note\n");
    for (size_t i = 0; i < bench->row_count; i++) {
        const bench_row_t *row = &bench->rows[i];
        bool needs_quotes = strpbrk(row->allocator, ",\"") != NULL;
        (void)printf("%s,%s%s%s,%d,%" PRIu64, row->benchmark->name, needs_quotes ? "\"" : "",
                     row->allocator, needs_quotes ? "\"" : "", row->benchmark->threads,
                     row->operations);
        print_figure(row->mean_ns, 1);
        print_figure(row->p50_ns, 0);
        print_figure(row->p99_ns, 0);
        print_figure(row->p999_ns, 0);
        print_figure(row->per_mutex_pair, 2);
        print_figure(row->ratio, 3);
        print_figure(row->instructions, 0);
        print_figure(row->host_bytes, 1);
        (void)putchar(',');
        if (row->over_off >= 0)
            print_ring(row);
        for (const char *c = row->note; *c != '\0'; c++)
            (void)putchar(*c == ',' || *c == '"' || iscntrl((unsigned char)*c) ? ';' : *c);
        (void)putchar('\n');
    }
}

static void emit_figure(berm_emit_t *emit, const char *name, double value) {
    if (value < 0)
        berm__emit_null(emit, name);
    else
        berm__emit_double(emit, name, value, 3);
}

static void emit_row(berm_emit_t *emit, const bench_row_t *row) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "benchmark", row->benchmark->name);
    berm__emit_string(emit, "allocator", row->allocator);
    berm__emit_u64(emit, "threads", (uint64_t)row->benchmark->threads);
    berm__emit_u64(emit, "operations", row->operations);
    emit_figure(emit, "mean_ns", row->mean_ns);
    emit_figure(emit, "p50_ns", row->p50_ns);
    emit_figure(emit, "p99_ns", row->p99_ns);
    emit_figure(emit, "p999_ns", row->p999_ns);
    emit_figure(emit, "per_mutex_pair", row->per_mutex_pair);
    emit_figure(emit, "ratio", row->ratio);
    emit_figure(emit, "instructions", row->instructions);
    emit_figure(emit, "host_bytes_per_block", row->host_bytes);
    if (row->benchmark->is_ring) {
        emit_figure(emit, "ring_off_ns", row->off_ns);
        emit_figure(emit, "ring_off_instructions", row->off_instructions);
        emit_figure(emit, "ring_over_off", row->over_off);
    }
    berm__emit_string(emit, "note", row->note);
    berm__emit_object_end(emit);
}

void cli_bench_print_json(const cli_bench_t *bench) {
    char text[4096];
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    (void)cli_command_text(bench->argc, bench->argv, text, sizeof text);
    berm__emit_string(&emit, "command", text);
    machine_write(text, sizeof text);
    berm__emit_string(&emit, "machine", text);
    berm__emit_array_begin(&emit, "rows");
    for (size_t i = 0; i < bench->row_count; i++)
        emit_row(&emit, &bench->rows[i]);
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}
