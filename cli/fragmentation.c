// SPDX-License-Identifier: Apache-2.0
// berm bench fragmentation: what memory costs in driver time. The replays are stress/curves; output
// is fragmentation_output.c. All traces are read before anything runs.
#include "cli/fragmentation.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_options.h"
#include "stress/curves/sources.h"
#include "stress/curves/workers.h"

#define COMMAND "bench fragmentation"

enum {
    OPTION_ALLOCATOR = 256,
    OPTION_MODE,
    OPTION_LATENCY,
    OPTION_HEADROOM,
    OPTION_SCALE,
    OPTION_SOURCE_DEVICE,
    OPTION_JOBS,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"allocator", required_argument, NULL, OPTION_ALLOCATOR},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"headroom", required_argument, NULL, OPTION_HEADROOM},
    {"scale", required_argument, NULL, OPTION_SCALE},
    {"source-device", required_argument, NULL, OPTION_SOURCE_DEVICE},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

// Of berm, where no --mode is given.
static const char *const modes_default[] = {"remap:passed", "remap:alias", "remap:off",
                                            "remap:passed,growth_handle:2M"};
#define ALLOCATORS_DEFAULT "berm,pytorch,expandable,gmlake,naive,bfc,cudamalloc"
#define LATENCIES_DEFAULT  "fast,typical,slow"
#define HEADROOMS_DEFAULT  "0,2,5,10,25"

typedef struct arguments {
    const char *allocators, *latencies, *headrooms;
    const char *modes[CURVES_VARIANTS_MAX];
    size_t mode_count;
} arguments_t;

// --- options -------------------------------------------------------------------------------------

static bool add_variant(curves_options_t *o, const stress_allocator_ops_t *ops, const char *conf) {
    if (o->variant_count == CURVES_VARIANTS_MAX) {
        (void)cli_fail(COMMAND, "more than %d allocators and modes", CURVES_VARIANTS_MAX);
        return false;
    }
    curves_variant_t *variant = &o->variants[o->variant_count++];
    variant->ops = ops;
    (void)snprintf(variant->conf, sizeof variant->conf, "%s", conf);
    return true;
}

// berm once for each mode, the others once.
static bool make_variants(curves_options_t *o, const arguments_t *a) {
    const stress_allocator_ops_t *allocators[CLI_ALLOCATORS_MAX];
    size_t count = 0;
    if (!cli_parse_allocators(COMMAND, a->allocators, true, allocators, CLI_ALLOCATORS_MAX, &count))
        return false;
    for (size_t i = 0; i < count; i++) {
        const stress_allocator_ops_t *ops = allocators[i];
        if (ops->is_per_process) {
            (void)cli_fail(COMMAND, "%s can be made once a process: not here; its model can",
                           ops->name);
            return false;
        }
        bool is_berm = ops == stress_allocators[0];
        for (size_t j = 0; j < (is_berm ? a->mode_count : 1); j++)
            if (!add_variant(o, ops, is_berm ? a->modes[j] : ""))
                return false;
    }
    return true;
}

static bool make_headrooms(curves_options_t *o, const char *text) {
    char name[CLI_NAME_CAPACITY];
    for (const char *at = text; at == text || *at != '\0';) {
        double *pct = &o->headrooms_pct[o->headroom_count];
        if (o->headroom_count == CURVES_HEADROOMS_MAX || !cli_list_next(&at, name) ||
            !cli_parse_double(name, 0, 100000, pct) || (o->headroom_count > 0 && *pct <= pct[-1])) {
            (void)cli_fail(COMMAND,
                           "--headroom '%s' is no ascending list of at most %d percentages", text,
                           CURVES_HEADROOMS_MAX);
            return false;
        }
        o->headroom_count++;
    }
    return true;
}

static bool make_latencies(cli_fragmentation_t *f, const char *text) {
    char name[CLI_NAME_CAPACITY];
    char *to = f->latencies = malloc(strlen(text) + CURVES_LATENCIES_MAX + 1);
    for (const char *at = text; to != NULL && (at == text || *at != '\0');) {
        size_t count = f->options.latency_count;
        if (count == CURVES_LATENCIES_MAX || !cli_list_next(&at, name)) {
            (void)cli_fail(COMMAND, "--latency '%s' is no list of at most %d names", text,
                           CURVES_LATENCIES_MAX);
            return false;
        }
        size_t bytes = strlen(name) + 1;
        f->options.latencies[f->options.latency_count++] = memcpy(to, name, bytes);
        to += bytes;
    }
    if (to == NULL)
        (void)cli_fail(COMMAND, "no memory");
    return to != NULL;
}

// What this command varies is no mode.
static bool modes_check(const arguments_t *a) {
    for (size_t i = 0; i < a->mode_count; i++)
        if (!cli_run_conf_check(COMMAND, a->modes[i], 0, true))
            return false;
    return true;
}

static bool parse_value(cli_fragmentation_t *f, arguments_t *a, int option, const char *text) {
    uint64_t number = 0;
    switch (option) {
    case OPTION_ALLOCATOR:
        a->allocators = text;
        return true;
    case OPTION_LATENCY:
        a->latencies = text;
        return true;
    case OPTION_HEADROOM:
        a->headrooms = text;
        return true;
    case OPTION_MODE:
        if (a->mode_count == CURVES_VARIANTS_MAX || strlen(text) >= CURVES_CONF_CAPACITY)
            return false;
        a->modes[a->mode_count++] = text;
        return true;
    case OPTION_SCALE:
        return cli_parse_u64(text, 1, UINT64_C(1) << 40, &f->read.scale);
    case OPTION_SOURCE_DEVICE:
        if (!cli_parse_u64(text, 0, 1023, &number))
            return false;
        f->read.device = (int)number;
        return true;
    case OPTION_JOBS:
        if (!cli_parse_u64(text, 1, 256, &number))
            return false;
        f->jobs = (size_t)number;
        return true;
    default:
        f->is_json = true;
        return true;
    }
}

static int parse_arguments(cli_fragmentation_t *f) {
    arguments_t a = {.allocators = ALLOCATORS_DEFAULT,
                     .latencies = LATENCIES_DEFAULT,
                     .headrooms = HEADROOMS_DEFAULT};
    optind = 0;
    opterr = 0;
    int index = 0;
    char **argv = f->argv + 1;
    for (int c; (c = getopt_long(f->argc - 1, argv, ":", long_options, &index)) != -1;) {
        if (c == ':')
            return cli_fail(COMMAND, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(COMMAND, "no option '%s'; see berm bench --help", argv[optind - 1]);
        if (!parse_value(f, &a, c, optarg))
            return cli_fail(COMMAND, "--%s does not take '%s'; see berm bench --help",
                            long_options[index].name, optarg);
    }
    if (a.mode_count == 0) {
        a.mode_count = BERM_ARRAY_LENGTH(modes_default);
        memcpy(a.modes, modes_default, sizeof modes_default);
    }
    if (!modes_check(&a) || !make_variants(&f->options, &a) ||
        !make_headrooms(&f->options, a.headrooms) || !make_latencies(f, a.latencies))
        return CLI_BAD;
    return CLI_OK;
}

// --- traces --------------------------------------------------------------------------------------

static bool trace_add(cli_fragmentation_t *f, trace_t *trace, const char *name) {
    if (trace == NULL)
        return false;
    f->traces[f->trace_count] = trace;
    (void)snprintf(f->names[f->trace_count++], CLI_FRAGMENTATION_NAME, "%s", name);
    return true;
}

// The name of a file in the output: without folder and what follows the first dot.
static void name_of(const char *path, char *name, size_t capacity) {
    const char *slash = strrchr(path, '/');
    path = slash != NULL ? slash + 1 : path;
    (void)snprintf(name, capacity, "%.*s", (int)strcspn(path, "."), path);
    for (char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == ',' || *c == '"')
            *c = '_';
}

static bool source_add(cli_fragmentation_t *f, const curves_source_t *source, char *error,
                       size_t error_capacity) {
    return trace_add(f, trace_generate(source->kind, &source->options, error, error_capacity),
                     source->name);
}

static bool sources_add(cli_fragmentation_t *f, char *error, size_t error_capacity) {
    for (size_t i = 0; i < curves_source_count; i++)
        if (!source_add(f, &curves_sources[i], error, error_capacity))
            return false;
    return true;
}

static bool argument_add(cli_fragmentation_t *f, const char *text, char *error,
                         size_t error_capacity) {
    char name[CLI_FRAGMENTATION_NAME];
    if (strcmp(text, "gen:all") == 0)
        return sources_add(f, error, error_capacity);
    if (strncmp(text, "gen:", 4) == 0) {
        const curves_source_t *source = curves_source_find(text + 4);
        if (source == NULL)
            (void)snprintf(error, error_capacity,
                           "no generated trace '%.200s'; see berm bench "
                           "--help",
                           text + 4);
        return source != NULL && source_add(f, source, error, error_capacity);
    }
    name_of(text, name, sizeof name);
    return trace_add(f, trace_read(text, &f->read, error, error_capacity), name);
}

static bool shipped_add(cli_fragmentation_t *f, char *error, size_t error_capacity) {
    char *paths[CLI_FRAGMENTATION_TRACES_MAX];
    size_t count = curves_shipped(paths, CLI_FRAGMENTATION_TRACES_MAX / 2);
    bool is_good = count > 0;
    if (!is_good)
        (void)snprintf(error, error_capacity,
                       "the shipped recordings are not beside the program: name TRACEs");
    for (size_t i = 0; i < count; i++) {
        is_good = is_good && argument_add(f, paths[i], error, error_capacity);
        free(paths[i]);
    }
    return is_good;
}

static int read_traces(cli_fragmentation_t *f) {
    char error[512] = "";
    int first = optind + 1, count = f->argc - first;
    bool is_good = true;
    if (count == 0)
        is_good = shipped_add(f, error, sizeof error) && sources_add(f, error, sizeof error);
    for (int i = 0; i < count && is_good; i++) {
        if (f->trace_count + curves_source_count > CLI_FRAGMENTATION_TRACES_MAX)
            return cli_fail(COMMAND, "too many traces");
        is_good = argument_add(f, f->argv[first + i], error, sizeof error);
    }
    if (!is_good)
        return cli_fail(COMMAND, "%s", error);
    for (size_t i = 0; i < f->trace_count; i++)
        if (f->traces[i]->peak_live_bytes == 0)
            return cli_fail(COMMAND, "%s: nothing is ever live in it", f->traces[i]->path);
    return CLI_OK;
}

// --- running -------------------------------------------------------------------------------------

static void show_progress(uint64_t done, uint64_t total) {
    cli_progress("fragmentation", done, total);
}

static int run_all(cli_fragmentation_t *f) {
    char error[512] = "";
    size_t per_trace = curves_point_count(&f->options);
    f->point_count = per_trace * f->trace_count;
    f->points = curves_points_create(f->point_count);
    if (f->points == NULL)
        return cli_fail(COMMAND, "no memory");
    for (size_t i = 0; i < f->trace_count; i++)
        curves_points_fill(&f->options, f->traces[i], (uint32_t)i, f->points + i * per_trace);
    if (f->jobs == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        f->jobs = processors > 0 ? (size_t)processors : 1;
    }
    show_progress(0, 1);
    int status = curves_run(&f->options, f->traces, f->trace_count, f->points, f->jobs,
                            show_progress, error, sizeof error);
    cli_progress_end();
    if (status != 0)
        return error[0] != '\0' ? cli_fail(COMMAND, "%s", error) : CLI_BAD;
    curves_compare(&f->options, f->points, f->point_count);
    f->summary_count = curves_summarize(&f->options, f->points, f->point_count, f->summaries);
    return CLI_OK;
}

// Hazards, leaks, failed checks, and what failed but for want of memory.
static int look_for_findings(const cli_fragmentation_t *f) {
    for (size_t i = 0; i < f->point_count; i++) {
        const curves_point_t *p = &f->points[i];
        if (p->findings == 0 && p->note[0] == '\0')
            continue;
        cli_warn(COMMAND, "%s: %s %s, %s, %s: %s", f->names[p->trace],
                 f->options.variants[p->variant].ops->name, f->options.variants[p->variant].conf,
                 f->options.latencies[p->latency], curves_kind_names[p->kind], p->note);
        return CLI_FINDING;
    }
    return CLI_OK;
}

int cli_fragmentation_run(int argc, char **argv) {
    cli_environment_forget();
    cli_fragmentation_t *f = calloc(1, sizeof *f);
    if (f == NULL)
        return cli_fail(COMMAND, "no memory");
    f->argc = argc;
    f->argv = argv;
    f->read = (trace_read_options_t){.scale = 1, .device = -1};
    int status = parse_arguments(f);
    if (status == CLI_OK)
        status = read_traces(f);
    if (status == CLI_OK)
        status = run_all(f);
    if (status == CLI_OK) {
        if (f->is_json)
            cli_fragmentation_print_json(f);
        else
            cli_fragmentation_print_csv(f);
        status = look_for_findings(f);
    }
    for (size_t i = 0; i < f->trace_count; i++)
        trace_destroy(f->traces[i]);
    curves_points_destroy(f->points, f->point_count);
    free(f->latencies);
    free(f);
    return status;
}

void cli_fragmentation_help(void) {
    (void)fputs(
        "\nusage: berm bench fragmentation [OPTION...] [TRACE...]\n\n"
        "What memory costs: replays each trace through each allocator on simulated devices, and\n"
        "prints CSV with a row a replay, which `berm plot` draws. No figure is of host time; "
        "every\n"
        "run gives the same. docs/curves.md says how to read it.\n\n"
        "  uncapped             a device of 16 times the peak of live; headroom is the "
        "allocator's\n"
        "  capped               one of peak live x (1 + headroom), in whole granules\n"
        "  common               the smallest on which both berm and expandable finish\n\n"
        "  TRACE                a file as in replay --help, gen:NAME or gen:all; by default the\n"
        "                       shipped recordings and gen:all, which are\n",
        stdout);
    for (size_t i = 0; i < curves_source_count; i++)
        (void)printf("                         gen:%s\n", curves_sources[i].name);
    (void)fputs(
        "  --allocator NAME[,NAME...]  " ALLOCATORS_DEFAULT "\n"
        "  --mode CONF          options of berm; once for each mode. By default remap:passed,\n"
        "                       remap:alias, remap:off, and remap:passed,growth_handle:2M\n"
        "  --latency NAME[,NAME...]  " LATENCIES_DEFAULT "; or files\n"
        "  --headroom PCT[,PCT...]  " HEADROOMS_DEFAULT "\n"
        "  --scale N            bytes per unit of size in lifetimes CSV; 1\n"
        "  --source-device N    which device's events of a PyTorch snapshot; the one with most\n"
        "  --jobs N             processes at a time; one a processor\n"
        "  --json               one JSON object instead of CSV\n\n"
        "Exit status 1: a hazard, a leak or a failed check. To run out of memory is a figure.\n",
        stdout);
}
