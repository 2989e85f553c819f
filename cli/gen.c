// SPDX-License-Identifier: Apache-2.0
// berm gen: writes a trace made by rule, as event CSV. The rules are stress/trace/generate.c.
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/defs.h"
#include "cli/cli.h"
#include "stress/trace/generate.h"

enum {
    OPTION_OUTPUT = 256,
    OPTION_JSON,
    OPTION_GENERATE, // and on: by its place in `generate_options`
};

typedef enum value_kind {
    VALUE_NUMBER,
    VALUE_BYTES,
    VALUE_FLAG,
    VALUE_SIZES,
    VALUE_KV,
} value_kind_t;

// Options that go to the generator as they are.
typedef struct generate_option {
    const char *name;
    value_kind_t kind;
    size_t offset; // in trace_generate_options_t
    uint64_t least, most;
} generate_option_t;

#define AT(member) offsetof(trace_generate_options_t, member)

static const generate_option_t generate_options[] = {
    {"operations", VALUE_NUMBER, AT(operations), 1, UINT64_C(100000000)},
    {"max-size", VALUE_BYTES, AT(max_size_bytes), 0, 0},
    {"live-cap", VALUE_BYTES, AT(live_cap_bytes), 0, 0},
    {"sizes", VALUE_SIZES, AT(sizes), 0, 0},
    {"streams", VALUE_NUMBER, AT(streams), 1, 4096},
    {"seed", VALUE_NUMBER, AT(seed), 0, UINT64_MAX},
    {"iterations", VALUE_NUMBER, AT(iterations), 1, 100000},
    {"change", VALUE_NUMBER, AT(change_pct), 0, 100},
    {"lag", VALUE_NUMBER, AT(lag_events), 1, 100000},
    {"layers", VALUE_NUMBER, AT(layers), 1, 1000},
    {"hidden", VALUE_NUMBER, AT(hidden), 128, 65536},
    {"micro-batches", VALUE_NUMBER, AT(micro_batches), 1, 10000},
    {"stages", VALUE_NUMBER, AT(stages), 1, 1000},
    {"moe", VALUE_NUMBER, AT(moe_pct), 0, 100},
    {"recompute", VALUE_FLAG, AT(recompute), 0, 0},
    {"offload", VALUE_FLAG, AT(offload), 0, 0},
    {"requests", VALUE_NUMBER, AT(requests), 1, 1000000},
    {"kv", VALUE_KV, AT(kv), 0, 0},
    {"chunk", VALUE_NUMBER, AT(chunk_tokens), 1, 1000000},
    {"answer", VALUE_NUMBER, AT(answer_tokens), 16, 2048},
    {"steps", VALUE_NUMBER, AT(steps), 1, 10000},
    {"no-prefix", VALUE_FLAG, AT(no_prefix), 0, 0},
};

typedef struct gen_arguments {
    trace_generate_options_t generate;
    const char *kind, *output;
    bool is_json;
} gen_arguments_t;

// One of two words, of which the first is 0.
static bool parse_choice(const char *text, const char *zero, const char *one, uint64_t *value) {
    *value = strcmp(text, one) == 0;
    return *value == 1 || strcmp(text, zero) == 0;
}

static bool parse_generate(gen_arguments_t *a, const generate_option_t *option, const char *text) {
    void *at = (char *)&a->generate + option->offset;
    switch (option->kind) {
    case VALUE_NUMBER:
        return cli_parse_u64(text, option->least, option->most, at);
    case VALUE_BYTES:
        return cli_parse_bytes(text, at);
    case VALUE_SIZES:
        return parse_choice(text, "uniform", "log", at);
    case VALUE_KV:
        return parse_choice(text, "grow", "blocks", at);
    case VALUE_FLAG:
        *(bool *)at = true;
        return true;
    }
    return false;
}

static bool parse_option(gen_arguments_t *a, int option, const char *text) {
    switch (option) {
    case OPTION_OUTPUT:
    case 'o':
        a->output = text;
        return *text != '\0';
    case OPTION_JSON:
        a->is_json = true;
        return true;
    default:
        return parse_generate(a, &generate_options[option - OPTION_GENERATE], text);
    }
}

static void long_options_make(struct option *options) {
    size_t count = BERM_ARRAY_LENGTH(generate_options);
    memset(options, 0, (count + 3) * sizeof *options);
    for (size_t i = 0; i < count; i++)
        options[i] = (struct option){generate_options[i].name,
                                     generate_options[i].kind == VALUE_FLAG ? no_argument
                                                                            : required_argument,
                                     NULL, OPTION_GENERATE + (int)i};
    options[count] = (struct option){"output", required_argument, NULL, OPTION_OUTPUT};
    options[count + 1] = (struct option){"json", no_argument, NULL, OPTION_JSON};
}

static int parse_arguments(gen_arguments_t *a, int argc, char **argv) {
    struct option long_options[BERM_ARRAY_LENGTH(generate_options) + 3];
    long_options_make(long_options);
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
    berm__emit_u64(&emit, "live_end_bytes", trace_live_end_bytes(trace));
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

static void print_kinds(void) {
    size_t count;
    const trace_kind_t *kinds = trace_kinds(&count);
    (void)printf("\nKinds, and what they give with nothing but a kind:\n"
                 "               events  peak live MiB  live at the end\n");
    for (size_t i = 0; i < count; i++)
        (void)printf("  %-12s %6" PRIu64 "  %13.1f  %15.1f  %s\n", kinds[i].name, kinds[i].events,
                     cli_mib(kinds[i].peak_live_bytes), cli_mib(kinds[i].live_end_bytes),
                     kinds[i].summary);
}

const cli_command_t cli_gen = {
    .name = "gen",
    .summary = "write a trace made by rule",
    .help =
        "usage: berm gen KIND [OPTION...]\n\n"
        "Writes a trace as event CSV (event_index,op,id,size_bytes,stream). KINDs are at the end.\n"
        "\n"
        "  --streams N        streams of the program; 1\n"
        "  --seed N           the same seed gives the same trace; 0\n"
        "  -o, --output FILE  where to write; packed if FILE ends in .gz; standard output\n"
        "  --json             says what was written as one JSON object; needs --output\n"
        "random:\n"
        "  --operations N     allocs and frees together; 1000\n"
        "  --max-size BYTES   the largest block (64M, 1G, ...); 4096M, or the cap\n"
        "  --live-cap BYTES   allocs that would exceed it become frees; 32G\n"
        "  --sizes uniform|log  every size alike, or every octave alike; uniform\n"
        "  --lag N            a quarter of freed blocks is used by another stream, and done 1 to "
        "N\n"
        "                     events later; nothing lags\n"
        "all others:\n"
        "  --iterations N     times the same work is done; 3 for gpt-train, 1\n"
        "  --change PCT       of the requests of an iteration have another size each time, 75 to\n"
        "                     125 % of their own; 0\n"
        "  --lag N            a block that another stream uses when it is freed is done 1 to N\n"
        "                     events later; 100\n"
        "gpt-train:\n"
        "  --layers N, --hidden N  of the transformer; 24, 2048 (1.3 billion parameters)\n"
        "  --micro-batches N  of an iteration; 8\n"
        "  --stages N         of the pipeline, of which this is the first; 1\n"
        "  --moe PCT          8 experts instead of dense layers, whose loads differ from the mean\n"
        "                     by up to so much; 0: dense\n"
        "  --recompute        keep a layer's output only, and run its forward pass again\n"
        "  --offload          activations go to the host and come back\n"
        "llm-serve:\n"
        "  --requests N       sequences; 250\n"
        "  --live-cap BYTES   sequences wait or start over to stay below; 26G\n"
        "  --kv grow|blocks   caches are made anew to grow, or are blocks of 16 tokens; grow\n"
        "  --chunk N          tokens of a prompt that a step processes; 1024\n"
        "  --answer N         tokens of the longest answer, 16 to 2048; 2048\n"
        "  --no-prefix        no prompt begins with another's\n"
        "diffusion:\n"
        "  --requests N       of 1 to 4 images each; 20\n"
        "  --steps N          of each; 8 to 12\n"
        "multi-model:\n"
        "  --requests N       calls of a model; 300\n"
        "  --live-cap BYTES   models are unloaded to stay below; 40G\n",
    .help_more = print_kinds,
    .run = gen_run,
};
