// SPDX-License-Identifier: Apache-2.0
// `berm stress traces`: every trace on several numbers of streams, in each mode of berm, under each
// switch of the simulated device. The runs are stress/matrix. This reads arguments and prints.
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/stress.h"
#include "stress/curves/sources.h"
#include "stress/matrix/matrix.h"

#define COMMAND "stress traces"

enum {
    AUDITS_DEFAULT = 1000,
    EVENT_LAG_DEFAULT_US = 100,
    PATHS_MAX = MATRIX_SOURCES_MAX / 2,
};

enum {
    OPTION_STREAMS = 256,
    OPTION_MODE,
    OPTION_SEED,
    OPTION_EVENT_LAG,
    OPTION_AUDITS,
    OPTION_SCALE,
    OPTION_JOBS,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"streams", required_argument, NULL, OPTION_STREAMS},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"event-lag", required_argument, NULL, OPTION_EVENT_LAG},
    {"audits", required_argument, NULL, OPTION_AUDITS},
    {"scale", required_argument, NULL, OPTION_SCALE},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

typedef struct totals {
    uint64_t runs, bad, caught, events, audits, hazards, allowed_hazards, leaks, check_failures;
    uint64_t host_waits, moved_bytes;
    double seconds;
} totals_t;

typedef struct traces_arguments {
    matrix_options_t options;
    matrix_source_t sources[MATRIX_SOURCES_MAX];
    trace_read_options_t read;
    uint64_t jobs;
    bool is_json;
    totals_t totals;
    berm_emit_t emit;
} traces_arguments_t;

// --- arguments -----------------------------------------------------------------------------------

static bool parse_streams(matrix_options_t *o, const char *text) {
    char name[CLI_NAME_CAPACITY];
    o->streams_count = 0;
    for (const char *at = text; at == text || *at != '\0';)
        if (o->streams_count == MATRIX_STREAMS_MAX || !cli_list_next(&at, name) ||
            !cli_parse_u64(name, 1, 4096, &o->streams[o->streams_count++]))
            return false;
    return true;
}

static bool parse_option(traces_arguments_t *a, int option, const char *text) {
    matrix_options_t *o = &a->options;
    switch (option) {
    case OPTION_STREAMS:
        return parse_streams(o, text);
    case OPTION_MODE:
        if (o->mode_count == MATRIX_MODES_MAX)
            return false;
        o->modes[o->mode_count++] = text;
        return true;
    case OPTION_SEED:
        return cli_parse_u64(text, 0, UINT64_MAX, &o->seed);
    case OPTION_EVENT_LAG:
        return cli_parse_u64(text, 0, 1000000, &o->event_lag_ns) &&
               (o->event_lag_ns *= 1000) % 1000 == 0;
    case OPTION_AUDITS:
        return cli_parse_u64(text, 1, UINT64_MAX, &o->audits);
    case OPTION_SCALE:
        return cli_parse_u64(text, 1, UINT64_C(1) << 40, &a->read.scale);
    case OPTION_JOBS:
        return cli_parse_u64(text, 1, 256, &a->jobs);
    default:
        return a->is_json = true;
    }
}

static int parse_arguments(traces_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    int index = 0;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, &index)) != -1;) {
        if (c == ':')
            return cli_fail(COMMAND, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(COMMAND, "no option '%s'; see berm stress --help", argv[optind - 1]);
        if (!parse_option(a, c, optarg))
            return cli_fail(COMMAND, "--%s does not take '%s'; see berm stress --help",
                            long_options[index].name, optarg);
    }
    matrix_options_t *o = &a->options;
    if (o->mode_count == 0) {
        o->modes[o->mode_count++] = "remap:passed";
        o->modes[o->mode_count++] = "remap:alias";
        o->modes[o->mode_count++] = "remap:off";
    }
    return CLI_OK;
}

// --- traces --------------------------------------------------------------------------------------

static int add_generated(traces_arguments_t *a, const char *name) {
    bool is_all = strcmp(name, "all") == 0, is_found = false;
    for (size_t i = 0; i < matrix_generated_count; i++) {
        if (!is_all && strcmp(name, matrix_generated[i].name) != 0)
            continue;
        if (a->options.source_count == MATRIX_SOURCES_MAX)
            return cli_fail(COMMAND, "more than %d traces", MATRIX_SOURCES_MAX);
        a->sources[a->options.source_count++] = matrix_generated[i];
        is_found = true;
    }
    return is_found ? CLI_OK
                    : cli_fail(COMMAND, "no generated trace '%s'; see berm stress --help", name);
}

static int add_trace(traces_arguments_t *a, const char *path) {
    char error[512] = "";
    if (strncmp(path, "gen:", 4) == 0)
        return add_generated(a, path + 4);
    if (a->options.source_count == MATRIX_SOURCES_MAX)
        return cli_fail(COMMAND, "more than %d traces", MATRIX_SOURCES_MAX);
    matrix_source_t *source = &a->sources[a->options.source_count];
    source->trace = trace_read(path, &a->read, error, sizeof error);
    if (source->trace == NULL)
        return cli_fail(COMMAND, "%s", error);
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    (void)snprintf(source->name, sizeof source->name, "%.*s", (int)strcspn(name, "."), name);
    a->options.source_count++;
    return CLI_OK;
}

static int add_default(traces_arguments_t *a) {
    char *paths[PATHS_MAX];
    size_t count = curves_shipped(paths, PATHS_MAX);
    int status = CLI_OK;
    if (count == 0)
        status =
            cli_fail(COMMAND, "the shipped recordings are not beside the program: name TRACEs");
    for (size_t i = 0; i < count; i++) {
        if (status == CLI_OK)
            status = add_trace(a, paths[i]);
        free(paths[i]);
    }
    return status == CLI_OK ? add_generated(a, "all") : status;
}

// --- output --------------------------------------------------------------------------------------

static void print_row(const matrix_cell_t *cell, const matrix_result_t *r) {
    char name[MATRIX_NAME + 24];
    (void)snprintf(name, sizeof name, "%s, %" PRIu64, cell->source->name, cell->streams);
    (void)printf("%-28s %-13s %-18s %8" PRIu64 " x%" PRIu64 " %6" PRIu64 " %7" PRIu64 " %8" PRIu64
                 " %8.0f %6.1f  ",
                 name, cell->mode, cell->with->name, r->events, r->repeats, r->audit_every,
                 r->hazards, r->host_waits, cli_mib(r->moved_bytes), r->seconds);
    if (!r->is_good)
        (void)printf("FINDING: %s\n", r->finding);
    else if (r->is_caught)
        (void)printf("caught, as it may be: %" PRIu64 "\n", r->allowed_hazards);
    else
        (void)printf("ok\n");
    (void)fflush(stdout);
}

static void emit_row(berm_emit_t *emit, const matrix_cell_t *cell, const matrix_result_t *r) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "trace", cell->source->name);
    berm__emit_u64(emit, "streams", cell->streams);
    berm__emit_string(emit, "mode", cell->mode);
    berm__emit_string(emit, "switch", cell->with->name);
    berm__emit_u64(emit, "events", r->events);
    berm__emit_u64(emit, "repeats", r->repeats);
    berm__emit_u64(emit, "audit_every", r->audit_every);
    berm__emit_u64(emit, "audits", r->audits);
    berm__emit_u64(emit, "hazards", r->hazards);
    berm__emit_u64(emit, "allowed_hazards", r->allowed_hazards);
    berm__emit_u64(emit, "leaks", r->leaks);
    berm__emit_u64(emit, "check_failures", r->check_failures);
    berm__emit_u64(emit, "host_waits", r->host_waits);
    berm__emit_u64(emit, "moved_bytes", r->moved_bytes);
    berm__emit_bool(emit, "good", r->is_good);
    if (!r->is_good)
        berm__emit_string(emit, "finding", r->finding);
    berm__emit_object_end(emit);
}

static void report(void *context, size_t number, const matrix_result_t *r) {
    traces_arguments_t *a = context;
    totals_t *t = &a->totals;
    const matrix_cell_t cell = matrix_cell(&a->options, number);
    t->runs++;
    t->bad += !r->is_good;
    t->caught += r->is_caught;
    t->events += r->events * r->repeats;
    t->audits += r->audits;
    t->hazards += r->hazards;
    t->allowed_hazards += r->allowed_hazards;
    t->leaks += r->leaks;
    t->check_failures += r->check_failures;
    t->host_waits += r->host_waits;
    t->moved_bytes += r->moved_bytes;
    t->seconds += r->seconds;
    if (a->is_json)
        emit_row(&a->emit, &cell, r);
    else
        print_row(&cell, r);
}

static void print_head(void) {
    (void)printf("%-28s %-13s %-18s %11s %6s %7s %8s %8s %6s\n", "trace, streams", "mode", "switch",
                 "events", "audit", "hazards", "host", "moved", "s");
    (void)printf("%-28s %-13s %-18s %11s %6s %7s %8s %8s\n", "", "", "", "x repeats", "every", "",
                 "waits", "MiB");
}

static void print_totals(const totals_t *t) {
    (void)printf("\n%" PRIu64 " runs, %" PRIu64 " with findings: %" PRIu64 " events, %" PRIu64
                 " audits, %" PRIu64 " hazards, %" PRIu64 " leaks, %" PRIu64 " failed checks\n",
                 t->runs, t->bad, t->events, t->audits, t->hazards, t->leaks, t->check_failures);
    (void)printf("%.0f GiB moved, %" PRIu64 " host waits; %" PRIu64
                 " runs caught where they may be, %" PRIu64 " hazards; %.0f s of processors\n",
                 cli_mib(t->moved_bytes) / 1024, t->host_waits, t->caught, t->allowed_hazards,
                 t->seconds);
}

// --- running -------------------------------------------------------------------------------------

static int run_all(traces_arguments_t *a) {
    char error[512] = "";
    if (a->jobs == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        a->jobs = processors > 0 ? (uint64_t)processors : 1;
    }
    if (a->is_json) {
        berm__emit_init(&a->emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
        berm__emit_object_begin(&a->emit, NULL);
        berm__emit_array_begin(&a->emit, "runs");
    } else {
        print_head();
    }
    int status = matrix_run(&a->options, (size_t)a->jobs, report, a, error, sizeof error);
    if (a->is_json) {
        berm__emit_array_end(&a->emit);
        berm__emit_bool(&a->emit, "good", status == 0 && a->totals.bad == 0);
        berm__emit_object_end(&a->emit);
        berm__emit_finish(&a->emit);
    } else if (status == 0) {
        print_totals(&a->totals);
    }
    if (status != 0)
        return cli_fail(COMMAND, "%s", error);
    return a->totals.bad == 0 ? CLI_OK : CLI_FINDING;
}

int cli_stress_traces(int argc, char **argv) {
    traces_arguments_t *a = calloc(1, sizeof *a);
    if (a == NULL)
        return cli_fail(COMMAND, "no memory");
    a->read = (trace_read_options_t){.scale = 1, .device = -1};
    a->options = (matrix_options_t){.sources = a->sources,
                                    .streams = {1, 4, 16},
                                    .streams_count = 3,
                                    .event_lag_ns = EVENT_LAG_DEFAULT_US * UINT64_C(1000),
                                    .audits = AUDITS_DEFAULT};
    cli_environment_forget();
    int status = parse_arguments(a, argc, argv);
    if (status == CLI_OK && optind == argc)
        status = add_default(a);
    for (int i = optind; i < argc && status == CLI_OK; i++)
        status = add_trace(a, argv[i]);
    if (status == CLI_OK)
        status = run_all(a);
    for (size_t i = 0; i < a->options.source_count; i++)
        trace_destroy(a->sources[i].trace);
    free(a);
    return status;
}

void cli_stress_traces_help(void) {
    (void)fputs(
        "\nusage: berm stress traces [OPTION...] [TRACE...]\n\n"
        "traces: every TRACE on several numbers of streams, in each mode of libberm, under each\n"
        "switch of the simulated device (as above), with events that come late at random. A line\n"
        "a run, and a total. Overlap, alignment, ledger and hazards are checked after every "
        "event,\n"
        "all invariants after every k-th, which the line says. With --stale-map, for which "
        "libberm\n"
        "does nothing, every run must be caught; with --dependent-launch remap:alias may be. Exit\n"
        "status 1: a run that did not end, any other hazard, a leak, a failed check.\n\n"
        "  TRACE              a file as in replay --help, gen:NAME or gen:all; by default the\n"
        "                     shipped recordings and gen:all, which are\n",
        stdout);
    for (size_t i = 0; i < matrix_generated_count; i++)
        (void)printf("                       gen:%s\n", matrix_generated[i].name);
    (void)fputs("  --streams N[,N...] 1,4,16\n"
                "  --mode CONF        options of libberm; once for each mode. remap:passed,\n"
                "                     remap:alias and remap:off\n"
                "  --seed N           of streams, events and generated traces; 0\n"
                "  --event-lag US     one kernel in four takes up to so much longer; 100\n"
                "  --audits N         about so many audits a run; 1000\n"
                "  --scale N          bytes per unit of size in lifetimes CSV; 1\n"
                "  --jobs N           processes at a time; one a processor\n"
                "  --json             one JSON object on standard output\n",
                stdout);
}
