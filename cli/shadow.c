// SPDX-License-Identifier: Apache-2.0
// berm shadow: a PyTorch program on a simulated GPU, and what it needs of memory. Kernels compute
// nothing; everything else of torch is the real thing. This file reads the arguments and says what
// is run; the program's side is python/berm/_shadow.py.
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/shadow.h"

enum {
    OPTION_GPU = 256,
    OPTION_MEMORY,
    OPTION_DEVICES,
    OPTION_ALLOCATOR,
    OPTION_COMPARE,
    OPTION_FIT,
    OPTION_EVENT_RANGE,
    OPTION_RECORD,
    OPTION_SNAPSHOT,
    OPTION_STEPS,
    OPTION_VALUES,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"gpu", required_argument, NULL, OPTION_GPU},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {"devices", required_argument, NULL, OPTION_DEVICES},
    {"allocator", required_argument, NULL, OPTION_ALLOCATOR},
    {"compare", no_argument, NULL, OPTION_COMPARE},
    {"fit", no_argument, NULL, OPTION_FIT},
    {"event-range", no_argument, NULL, OPTION_EVENT_RANGE},
    {"record", required_argument, NULL, OPTION_RECORD},
    {"snapshot", required_argument, NULL, OPTION_SNAPSHOT},
    {"steps", required_argument, NULL, OPTION_STEPS},
    {"values", required_argument, NULL, OPTION_VALUES},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

static const char *const allocators[SHADOW_ALLOCATORS_MAX] = {"native", "expandable", "berm"};
static const char *const value_modes[] = {"none", "small", "all"};

static const char *name_find(const char *text, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return names[i];
    return NULL;
}

static bool parse_option(shadow_arguments_t *a, int option, const char *text) {
    switch (option) {
    case OPTION_GPU:
        a->gpu = text;
        return true;
    case OPTION_MEMORY:
        return cli_parse_bytes(text, &a->memory_bytes);
    case OPTION_DEVICES:
        return cli_parse_u64(text, 1, 16, &a->devices);
    case OPTION_ALLOCATOR:
        a->allocators[0] = name_find(text, allocators, SHADOW_ALLOCATORS_MAX);
        a->allocator_count = 1;
        return a->allocators[0] != NULL;
    case OPTION_COMPARE:
        memcpy(a->allocators, allocators, sizeof allocators);
        a->allocator_count = SHADOW_ALLOCATORS_MAX;
        return true;
    case OPTION_FIT:
        a->fits = true;
        return true;
    case OPTION_EVENT_RANGE:
        a->ranges = true;
        return true;
    case OPTION_RECORD:
        a->record = text;
        return true;
    case OPTION_SNAPSHOT:
        a->snapshot = text;
        return true;
    case OPTION_STEPS:
        return cli_parse_u64(text, 1, 1000000, &a->steps);
    case OPTION_VALUES:
        a->values = name_find(text, value_modes, BERM_ARRAY_LENGTH(value_modes));
        return a->values != NULL;
    default:
        a->is_json = true;
        return true;
    }
}

static int parse_arguments(shadow_arguments_t *a, int argc, char **argv) {
    int index = 0;
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "+:", long_options, &index)) != -1;) {
        if (c == ':')
            return cli_fail(a->command, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(a->command, "no option '%s'; see berm shadow --help", argv[optind - 1]);
        if (!parse_option(a, c, optarg))
            return cli_fail(a->command, "--%s does not take '%s'; see berm shadow --help",
                            long_options[index].name, optarg);
    }
    a->program = argv + optind;
    if (optind == argc)
        return cli_fail(a->command, "no program given; see berm shadow --help");
    if (a->allocator_count > 1 && (a->record != NULL || a->snapshot != NULL))
        return cli_fail(a->command, "--record and --snapshot are of one run: not with --compare");
    return CLI_OK;
}

static bool has_hole(char *const *program) {
    for (size_t i = 0; program[i] != NULL; i++)
        if (strstr(program[i], "{}") != NULL)
            return true;
    return false;
}

// The run that is reported, and what it ended with.
static bool run_report(const shadow_arguments_t *a, shadow_server_t *server, shadow_run_t *run) {
    char what[64];
    (void)snprintf(what, sizeof what, "%s: running the program", run->allocator);
    cli_progress(what, 0, 1);
    run->status =
        shadow_server_run(server, &(shadow_try_t){run->allocator, "report", "", a->memory_bytes});
    cli_progress_end();
    if (run->status < 0 || !shadow_reports_take(server, run))
        return false;
    if (run->report_count == 0)
        return cli_fail(a->command, "the program used no GPU, or left no report (exit status %d)",
                        run->status) == CLI_OK;
    if (run->status != 0 && !run->is_short)
        return cli_fail(a->command, "the program failed (exit status %d), and not for memory",
                        run->status) == CLI_OK;
    return true;
}

static bool run_all(const shadow_arguments_t *a, shadow_run_t *runs) {
    bool is_batch = a->fits && has_hole(a->program), is_good = true;
    shadow_server_t *server = NULL;
    for (int i = 0; i < a->allocator_count && is_good; i++) {
        runs[i] = (shadow_run_t){.allocator = a->allocators[i], .largest_batch = UINT64_MAX};
        if (is_batch) {
            is_good = shadow_fit_batch(a, &runs[i]);
            continue;
        }
        if (server == NULL)
            server = shadow_server_start(a, a->program);
        is_good = server != NULL && run_report(a, server, &runs[i]);
        bool fits = a->fits || a->allocator_count > 1;
        if (is_good && (a->ranges || fits))
            is_good = shadow_range_measure(a, server, &runs[i]);
        if (is_good && fits)
            is_good = shadow_fit_memory(a, server, &runs[i]);
    }
    shadow_server_stop(server);
    return is_good;
}

static int shadow_run(int argc, char **argv) {
    char package[PATH_MAX];
    shadow_arguments_t a = {.command = argv[0],
                            .allocators = {allocators[0]},
                            .allocator_count = 1,
                            .gpu = "H100-80",
                            .values = "small"};
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    if (!cli_program_package(a.command, package) || !cli_program_hook(a.command, package))
        return CLI_BAD;
    shadow_run_t *runs = calloc(SHADOW_ALLOCATORS_MAX, sizeof *runs);
    if (runs == NULL)
        return cli_fail(a.command, "no memory");
    status = run_all(&a, runs) ? CLI_OK : CLI_BAD;
    if (status == CLI_OK && a.is_json)
        shadow_print_json(&a, runs, a.allocator_count);
    else if (status == CLI_OK)
        shadow_print(&a, runs, a.allocator_count);
    for (int i = 0; i < a.allocator_count; i++) {
        if (status == CLI_OK && (runs[i].is_short || runs[i].largest_batch == 0))
            status = CLI_FINDING;
        shadow_reports_drop(&runs[i]);
    }
    free(runs);
    return status;
}

const cli_command_t cli_shadow = {
    .name = "shadow",
    .summary = "run a PyTorch program on a simulated GPU: will it fit, and what holds the memory",
    .help =
        "usage: berm shadow [OPTION...] -- PROGRAM [ARGUMENT...]\n\n"
        "Runs a Python program that uses PyTorch's CUDA build on a machine without a GPU, and\n"
        "says whether it fits a GPU and what holds its memory when it needs most. torch and its\n"
        "allocator are the real ones; kernels compute nothing. ./run shadow-setup gets a torch.\n\n"
        "  --gpu NAME|FILE    the GPU: A100-40, A100-80, H100-80 (default), H200-141, L4-24,\n"
        "                     RTX4090-24, T4-16, B200-192, or a device file\n"
        "  --memory BYTES     its memory, if another (24G, 80GiB, ...)\n"
        "  --devices N        how many of them; 1, or one for each process that torchrun starts\n"
        "  --allocator native|expandable|berm  PyTorch's (default), PyTorch's with\n"
        "                     expandable_segments:True, or berm in its place\n"
        "  --compare          all three, and the smallest memory that each can do with\n"
        "  --fit              the smallest memory with which the program ends, by running it\n"
        "                     again; with {} in its arguments, the largest number in that\n"
        "                     place (a batch size) with which it fits the GPU\n"
        "  --event-range      run it twice more, with kernels of no time and of 1 ms\n"
        "                     each, and say what was reserved: how far that hangs on when\n"
        "                     events come; --compare and --fit do it too\n"
        "  --steps N          end after N steps of an optimizer\n"
        "  --values none|small|all  what is computed: nothing; tensors up to 64 KiB (default),\n"
        "                     so that loops and tests go the right way; everything, on the CPU\n"
        "  --record FILE      write a trace of the program for berm replay (.gz: compressed)\n"
        "  --snapshot FILE    write PyTorch's memory snapshot, for its viewer\n"
        "  --json             one JSON object on standard output\n\n"
        "Exit status: 0 it fits; 1 it does not; 2 it could not be run, or failed for another\n"
        "reason.\n",
    .run = shadow_run,
};
