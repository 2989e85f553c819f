// SPDX-License-Identifier: Apache-2.0
// berm run and berm record: a program with berm in the place of its allocator: PyTorch's, by a hook
// on its import, or cudaMalloc, by a library that is loaded before it. This process becomes the
// program: its exit status is the program's.
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/program.h"

enum {
    OPTION_CONF = 256,
    OPTION_PRELOAD,
    OPTION_TORCH,
    OPTION_PRELOAD_CONF,
    OPTION_STATS,
    OPTION_SIMULATED,
    OPTION_GPU,
    OPTION_MEMORY,
};

static const struct option record_options[] = {
    {"output", required_argument, NULL, 'o'}, // the first: berm run has those behind it
    {"conf", required_argument, NULL, OPTION_CONF},
    {"preload", no_argument, NULL, OPTION_PRELOAD},
    {"torch", no_argument, NULL, OPTION_TORCH},
    {"preload-conf", required_argument, NULL, OPTION_PRELOAD_CONF},
    {"stats", no_argument, NULL, OPTION_STATS},
    {"simulated", no_argument, NULL, OPTION_SIMULATED},
    {"gpu", required_argument, NULL, OPTION_GPU},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {NULL, 0, NULL, 0},
};

typedef struct run_arguments {
    const char *command;
    bool is_preload, is_torch; // asked for; neither: by the kind of program
    bool is_python, is_simulated, has_stats;
    const char *conf, *preload_conf, *gpu, *memory;
    const char *recording; // the file of berm record; NULL: berm run
    char *const *program;
} run_arguments_t;

static void parse_option(run_arguments_t *a, int option, const char *text) {
    switch (option) {
    case OPTION_CONF:
        a->conf = text;
        break;
    case OPTION_PRELOAD:
        a->is_preload = true;
        break;
    case OPTION_TORCH:
        a->is_torch = true;
        break;
    case OPTION_PRELOAD_CONF:
        a->preload_conf = text;
        break;
    case OPTION_STATS:
        a->has_stats = true;
        break;
    case OPTION_SIMULATED:
        a->is_simulated = true;
        break;
    case OPTION_GPU:
        a->gpu = text;
        break;
    case 'o':
        a->recording = text;
        break;
    default:
        a->memory = text;
        break;
    }
}

static int parse_arguments(run_arguments_t *a, int argc, char **argv) {
    uint64_t bytes = 0;
    bool is_record = a->recording != NULL;
    const struct option *options = is_record ? record_options : record_options + 1;
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, is_record ? "+:o:" : "+:", options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(a->command, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(a->command, "no option '%s'; see berm %s --help", argv[optind - 1],
                            a->command);
        parse_option(a, c, optarg);
    }
    a->program = argv + optind;
    if (optind == argc)
        return cli_fail(a->command, "no program given; see berm %s --help", a->command);
    if (is_record && strpbrk(a->recording, ",\n") != NULL)
        return cli_fail(a->command, "--output '%s': has a comma", a->recording);
    if ((a->gpu != NULL || a->memory != NULL) && !a->is_simulated)
        return cli_fail(a->command, "--gpu and --memory are of a simulated device: --simulated");
    if (a->memory != NULL && !cli_parse_bytes(a->memory, &bytes))
        return cli_fail(a->command, "--memory '%s' is no size", a->memory);
    a->is_python = cli_program_is_python(a->program[0]);
    if (!a->is_preload && !a->is_torch) {
        a->is_torch = true; // for a Python that the program may start
        a->is_preload = !a->is_python;
    }
    if (!a->is_preload && (a->has_stats || a->preload_conf != NULL))
        return cli_fail(a->command,
                        "--stats and --preload-conf are of the preloaded library, which "
                        "is not used for Python: --preload");
    return CLI_OK;
}

static bool variable_set(const run_arguments_t *a, const char *name, const char *value) {
    return setenv(name, value, 1) == 0 || cli_fail(a->command, "no memory") == CLI_OK;
}

// The options of the preloaded library: those of the environment, of the arguments, --stats.
static bool preload_conf_set(const run_arguments_t *a) {
    const char *parts[] = {getenv("BERM_PRELOAD"), a->preload_conf,
                           a->has_stats ? "stats:on" : NULL};
    char text[1024] = "";
    size_t length = 0;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(parts); i++) {
        if (parts[i] == NULL || *parts[i] == '\0')
            continue;
        if (length + strlen(parts[i]) + 2 > sizeof text)
            return cli_fail(a->command, "--preload-conf is too long") == CLI_OK;
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                   length > 0 ? "," : "", parts[i]);
    }
    return length == 0 || variable_set(a, "BERM_PRELOAD", text);
}

// The hook on the import of torch: what it does there is in python/berm/_hook.py.
static bool hook_prepare(const run_arguments_t *a, const char *what) {
    char package[PATH_MAX];
    return cli_program_package(a->command, package) && cli_program_hook(a->command, package) &&
           variable_set(a, "BERM_RUN", what);
}

static bool torch_prepare(const run_arguments_t *a) {
    if (a->is_torch)
        return hook_prepare(a, a->is_simulated ? "simulated" : "1");
    // A torch whose allocator stays still has to be given the simulated device's libraries.
    return !a->is_simulated || !a->is_python || hook_prepare(a, "device");
}

// Statistics for berm top, unless what was asked for says otherwise: the later text wins.
static bool conf_set(const run_arguments_t *a) {
    char text[8192];
    const char *asked = a->conf != NULL ? a->conf : getenv("BERM_CONF");
    bool has_more = asked != NULL && *asked != '\0';
    int length = snprintf(text, sizeof text, "live_page:on%s%s%s%s", has_more ? "," : "",
                          has_more ? asked : "", a->recording != NULL ? ",recording:" : "",
                          a->recording != NULL ? a->recording : "");
    if ((size_t)length >= sizeof text)
        return cli_fail(a->command, "--conf or --output is too long") == CLI_OK;
    return variable_set(a, "BERM_CONF", text);
}

static bool preload_prepare(const run_arguments_t *a) {
    return preload_conf_set(a) && cli_program_preload(a->command);
}

static bool device_prepare(const run_arguments_t *a) {
    return cli_program_simulate(a->command) &&
           (a->gpu == NULL || variable_set(a, "SIMCUDA_GPU", a->gpu)) &&
           (a->memory == NULL || variable_set(a, "SIMCUDA_MEMORY", a->memory));
}

static int program_run(run_arguments_t *a, int argc, char **argv) {
    int status = parse_arguments(a, argc, argv);
    if (status != CLI_OK)
        return status;
    if (!conf_set(a) || !torch_prepare(a) || (a->is_preload && !preload_prepare(a)) ||
        (a->is_simulated && !device_prepare(a)))
        return CLI_BAD;
    (void)execvp(a->program[0], a->program);
    return cli_fail(a->command, "%s: %s", a->program[0], strerror(errno));
}

static int run_run(int argc, char **argv) {
    return program_run(&(run_arguments_t){.command = argv[0]}, argc, argv);
}

static int record_run(int argc, char **argv) {
    return program_run(&(run_arguments_t){.command = argv[0], .recording = "berm.%p.json"}, argc,
                       argv);
}

// The part of --help about the options that both have.
#define RUN_OPTIONS                                                                                \
    "  --torch             only PyTorch's allocator, whatever the program is\n"                    \
    "  --preload           only libberm_preload.so, likewise\n"                                    \
    "  --conf STRING       berm's options, as BERM_CONF has them; berm conf lists them\n"          \
    "  --preload-conf STRING  the library's own options, as BERM_PRELOAD has them\n"               \
    "                      (dlsym, async, cached_is_free, sync_free, ipc, least, stats)\n"         \
    "  --stats             say at the end how many requests berm has served\n"                     \
    "  --simulated         on berm's simulated device, whose kernels compute nothing\n"            \
    "  --gpu NAME|FILE     what it simulates, as for berm shadow\n"                                \
    "  --memory BYTES      its memory (24G, 80GiB, ...)\n\n"

const cli_command_t cli_run = {
    .name = "run",
    .summary = "run a program with berm in the place of PyTorch's allocator or of cudaMalloc",
    .help = "usage: berm run [OPTION...] -- PROGRAM [ARGUMENT...]\n\n"
            "Runs a program, and what it starts, with berm in the place of its allocator; the\n"
            "program is not changed. A Python program (python, or a script whose first line\n"
            "names it) gets berm as PyTorch's CUDA allocator: on first use berm is compiled\n"
            "against the torch that it imports (under a minute, with g++). Any other program gets\n"
            "libberm_preload.so, which serves cudaMalloc, cuMemAlloc and their relations, whether\n"
            "the CUDA runtime is a library of its own or in the program; a Python that it starts\n"
            "gets both.\n\n" RUN_OPTIONS
            "berm top shows the program while it runs (BERM_CONF gets live_page:on).\n\n"
            "Exit status: the program's; 2 when it could not be started, or berm not installed.\n",
    .run = run_run,
};

const cli_command_t cli_record = {
    .name = "record",
    .summary = "run a program likewise, and keep the last events of its device memory",
    .help = "usage: berm record [-o FILE] [OPTION...] -- PROGRAM [ARGUMENT...]\n\n"
            "Runs a program as berm run does, and has berm write a recording when a request fails\n"
            "and when the program ends: the last events of each device (option event_ring) and\n"
            "the blocks at their end. berm export, report and diff read it, and so do replay,\n"
            "fit and plot.\n\n"
            "  -o, --output FILE   where to; %p is the process's number. berm.%p.json\n" RUN_OPTIONS
            "Exit status: the program's; 2 when it could not be started, or berm not installed.\n",
    .run = record_run,
};
