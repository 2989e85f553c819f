// SPDX-License-Identifier: Apache-2.0
// berm gen: writes a trace made by rule, as event CSV. The rules are stress/trace/generate.c.
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "stress/trace/generate.h"

enum {
    OPTION_OPERATIONS = 256,
    OPTION_MAX_SIZE,
    OPTION_LIVE_CAP,
    OPTION_SIZES,
    OPTION_STREAMS,
    OPTION_SEED,
    OPTION_OUTPUT,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"operations", required_argument, NULL, OPTION_OPERATIONS},
    {"max-size", required_argument, NULL, OPTION_MAX_SIZE},
    {"live-cap", required_argument, NULL, OPTION_LIVE_CAP},
    {"sizes", required_argument, NULL, OPTION_SIZES},
    {"streams", required_argument, NULL, OPTION_STREAMS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"output", required_argument, NULL, OPTION_OUTPUT},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

typedef struct gen_arguments {
    trace_generate_options_t generate;
    const char *kind, *output;
    bool is_json;
} gen_arguments_t;

static bool parse_option(gen_arguments_t *a, int option, const char *text) {
    uint64_t number = 0;
    switch (option) {
    case OPTION_OPERATIONS:
        return cli_parse_u64(text, 1, UINT64_C(100000000), &a->generate.operations);
    case OPTION_MAX_SIZE:
        return cli_parse_bytes(text, &a->generate.max_size_bytes);
    case OPTION_LIVE_CAP:
        return cli_parse_bytes(text, &a->generate.live_cap_bytes);
    case OPTION_SIZES:
        a->generate.sizes = strcmp(text, "log") == 0 ? TRACE_SIZES_LOG : TRACE_SIZES_UNIFORM;
        return strcmp(text, "log") == 0 || strcmp(text, "uniform") == 0;
    case OPTION_STREAMS:
        if (!cli_parse_u64(text, 1, 4096, &number))
            return false;
        a->generate.streams = (uint32_t)number;
        return true;
    case OPTION_SEED:
        return cli_parse_u64(text, 0, UINT64_MAX, &a->generate.seed);
    case OPTION_OUTPUT:
    case 'o':
        a->output = text;
        return *text != '\0';
    case OPTION_JSON:
        a->is_json = true;
        return true;
    default:
        return false;
    }
}

static int parse_arguments(gen_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    int index = -1;
    for (int c; (c = getopt_long(argc, argv, ":o:", long_options, &index)) != -1; index = -1) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm gen --help", argv[optind - 1]);
        if (!parse_option(a, c, optarg))
            return cli_fail(argv[0], "--%s does not take '%s'; see berm gen --help",
                            index < 0 ? "output" : long_options[index].name, optarg);
    }
    if (argc - optind != 1)
        return cli_fail(argv[0], "%s",
                        argc == optind ? "no KIND given; see berm gen --help"
                                       : "more than one KIND given; see berm gen --help");
    a->kind = argv[optind];
    if (a->is_json && a->output == NULL)
        return cli_fail(argv[0], "--json needs --output: standard output cannot hold both");
    return CLI_OK;
}

static void print_json(const trace_t *trace, const gen_arguments_t *a) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_string(&emit, "kind", a->kind);
    berm__emit_string(&emit, "output", a->output);
    berm__emit_u64(&emit, "events", trace->event_count);
    berm__emit_u64(&emit, "allocs", trace->alloc_count);
    berm__emit_u64(&emit, "frees", trace->free_count);
    berm__emit_u64(&emit, "live_at_end", trace->live_at_end);
    berm__emit_u64(&emit, "peak_live_bytes", trace->peak_live_bytes);
    berm__emit_u64(&emit, "streams", trace->stream_count);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

static int gen_run(int argc, char **argv) {
    gen_arguments_t a = {0};
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    char error[512] = "";
    trace_t *trace = trace_generate(a.kind, &a.generate, error, sizeof error);
    if (trace == NULL)
        return cli_fail(argv[0], "%s", error);
    const char *path = a.output == NULL || strcmp(a.output, "-") == 0 ? "/dev/stdout" : a.output;
    if (trace_write_csv(trace, path, error, sizeof error) != 0)
        status = cli_fail(argv[0], "%s", error);
    else if (a.is_json)
        print_json(trace, &a);
    trace_destroy(trace);
    return status;
}

const cli_command_t cli_gen = {
    .name = "gen",
    .summary = "write a trace made by rule",
    .help = "usage: berm gen KIND [OPTION...]\n\n"
            "Writes a trace as event CSV (event_index,op,id,size_bytes,stream). KIND is\n"
            "  random    independent allocs (73 %) and frees of random blocks, as RMM's\n"
            "            random-allocations benchmark has them\n\n"
            "  --operations N     allocs and frees together; 1000\n"
            "  --max-size BYTES   the largest block (64M, 1G, ...); 4096M, or the cap\n"
            "  --live-cap BYTES   allocs that would exceed it become frees; 32G\n"
            "  --sizes uniform|log  every size alike, or every octave alike; uniform\n"
            "  --streams N        blocks take one of N streams at random; 1\n"
            "  --seed N           the same seed gives the same trace; 0\n"
            "  -o, --output FILE  where to write; packed if FILE ends in .gz; standard output\n"
            "  --json             says what was written as one JSON object; needs --output\n",
    .run = gen_run,
};
