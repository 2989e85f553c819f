// SPDX-License-Identifier: Apache-2.0
// `berm plot`: a picture of a series, a snapshot, a trace or curves. Reading and drawing are
// stress/plot.
#include <getopt.h>

#include "cli/report.h"
#include "stress/plot/plot.h"

typedef struct plot_arguments {
    const char *input, *output;
    trace_read_options_t read;
} plot_arguments_t;

enum {
    OPTION_SCALE = 256,
    OPTION_SOURCE_DEVICE,
};

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'},
    {"scale", required_argument, NULL, OPTION_SCALE},
    {"source-device", required_argument, NULL, OPTION_SOURCE_DEVICE},
    {NULL, 0, NULL, 0},
};

static int parse_arguments(plot_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    uint64_t number;
    for (int c; (c = getopt_long(argc, argv, ":o:", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm plot --help", argv[optind - 1]);
        if (c == 'o')
            a->output = optarg;
        else if (c == OPTION_SCALE && !cli_parse_u64(optarg, 1, UINT32_MAX, &a->read.scale))
            return cli_fail(argv[0], "--scale '%s' is no number from 1 to 4294967295", optarg);
        else if (c == OPTION_SOURCE_DEVICE) {
            if (!cli_parse_u64(optarg, 0, 1023, &number))
                return cli_fail(argv[0], "--source-device '%s' is no device number", optarg);
            a->read.device = (int)number;
        }
    }
    if (argc - optind != 1)
        return cli_fail(argv[0], "%s",
                        argc == optind ? "no FILE given; see berm plot --help"
                                       : "more than one FILE given; see berm plot --help");
    a->input = argv[optind];
    if (a->output == NULL)
        return cli_fail(argv[0], "no output given; add -o OUT.svg or -o OUT.html");
    if (!plot_path_is_known(a->output))
        return cli_fail(argv[0], "%s: pictures are written to FILE.svg or FILE.html", a->output);
    return CLI_OK;
}

static int plot_run(int argc, char **argv) {
    plot_arguments_t a = {.read = {.scale = 1, .device = -1}};
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    char error[512] = "";
    if (plot_file(a.input, &a.read, cli_site_text, a.output, error, sizeof error) != 0)
        return cli_fail(argv[0], "%s", error);
    return CLI_OK;
}

const cli_command_t cli_plot = {
    .name = "plot",
    .summary = "draw memory over time, a segment map, curves, or a comparison",
    .help = "usage: berm plot FILE -o OUT.svg|OUT.html [OPTION...]\n\n"
            "Draws FILE, whose kind is found by content, as one file that needs no other:\n"
            "  a series of `berm replay --series`   live, allocated and reserved over events\n"
            "                                       below, bytes moved and time in driver calls\n"
            "  a trace (see berm replay --help)     live bytes over events; nothing is replayed\n"
            "  a recording (berm record)            a page, HTML only: what failed, memory over\n"
            "                                       time, who holds it, a map of the segments\n"
            "  a snapshot of berm_snapshot_write    a map of each segment: blocks, free and\n"
            "                                       unmapped memory, where handles meet\n"
            "  CSV of `berm bench fragmentation`    reserved against moved, moved and driver time\n"
            "                                       against the cap, a row for each trace\n"
            "  JSON of `berm shadow --compare`      what each allocator needs\n\n"
            "  -o, --output FILE  where to write: SVG or HTML by its end\n"
            "  --scale N          bytes per unit of size in lifetimes CSV; 1\n"
            "  --source-device N  which device's events of a PyTorch snapshot; the one with most\n",
    .run = plot_run,
};
