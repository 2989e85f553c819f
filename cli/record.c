// SPDX-License-Identifier: Apache-2.0
// berm record: runs a program that uses berm with the option recording. This process becomes the
// program: its exit status is the program's.
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'},
    {NULL, 0, NULL, 0},
};

// Adds the option to what BERM_CONF has; the last of equal keys wins.
static bool conf_add(const char *path) {
    const char *before = getenv("BERM_CONF");
    char text[8192];
    int length = snprintf(text, sizeof text, "%s%srecording:%s", before != NULL ? before : "",
                          before != NULL && *before != '\0' ? "," : "", path);
    return length > 0 && (size_t)length < sizeof text && setenv("BERM_CONF", text, 1) == 0;
}

static int record_run(int argc, char **argv) {
    const char *output = "berm.%p.json";
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "+:o:", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm record --help", argv[optind - 1]);
        output = optarg;
    }
    if (optind == argc)
        return cli_fail(argv[0], "no program given; see berm record --help");
    if (strpbrk(output, ",\n") != NULL || !conf_add(output))
        return cli_fail(argv[0], "--output '%s': has a comma, or is too long", output);
    (void)execvp(argv[optind], argv + optind);
    return cli_fail(argv[0], "%s: %s", argv[optind], strerror(errno));
}

const cli_command_t cli_record = {
    .name = "record",
    .summary = "run a program and keep the last events of its device memory",
    .help = "usage: berm record [-o FILE] -- PROGRAM [ARGUMENT...]\n\n"
            "Runs a program that uses berm, and has berm write a recording when a request fails\n"
            "and when the program ends: the last events of each device (option event_ring) and\n"
            "the blocks at their end. berm export, report and diff read it, and so do replay,\n"
            "fit and plot.\n\n"
            "  -o, --output FILE  where to; %p is the process's number. berm.%p.json\n\n"
            "Exit status: the program's; 2 when it could not be started.\n",
    .run = record_run,
};
