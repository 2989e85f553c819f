// SPDX-License-Identifier: Apache-2.0
// berm run: a program with berm as PyTorch's allocator, on the device there is. This process
// becomes the program: its exit status is the program's.
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/program.h"

enum {
    OPTION_CONF = 256,
};

static const struct option long_options[] = {
    {"conf", required_argument, NULL, OPTION_CONF},
    {NULL, 0, NULL, 0},
};

static int run_run(int argc, char **argv) {
    char package[PATH_MAX];
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "+:", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm run --help", argv[optind - 1]);
        if (setenv("BERM_CONF", optarg, 1) != 0)
            return cli_fail(argv[0], "no memory");
    }
    if (optind == argc)
        return cli_fail(argv[0], "no program given; see berm run --help");
    if (!cli_program_package(argv[0], package) || !cli_program_hook(argv[0], package))
        return CLI_BAD;
    if (setenv("BERM_RUN", "1", 1) != 0)
        return cli_fail(argv[0], "no memory");
    (void)execvp(argv[optind], argv + optind);
    return cli_fail(argv[0], "%s: %s", argv[optind], strerror(errno));
}

const cli_command_t cli_run = {
    .name = "run",
    .summary = "run a program with berm as PyTorch's allocator",
    .help = "usage: berm run [OPTION...] -- PROGRAM [ARGUMENT...]\n\n"
            "Runs a Python program, and what it starts, with berm in the place of PyTorch's CUDA\n"
            "allocator; the program is not changed. On first use berm is compiled against the\n"
            "torch that the program imports (under a minute, with g++). A program that is no\n"
            "Python, or does not import torch, runs as it is.\n\n"
            "  --conf STRING  berm's options, as BERM_CONF has them; berm conf lists them\n\n"
            "Exit status: the program's; 2 when it could not be started, or berm not installed.\n",
    .run = run_run,
};
