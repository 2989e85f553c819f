// SPDX-License-Identifier: Apache-2.0
// The `berm` command: finds the subcommand. What each does is in the file of its name.
// Exit status: 0, 1 on a finding, 2 on bad usage or input, and when output cannot be written.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "berm.h"
#include "cli/cli.h"
#include "stress/child.h"

static const cli_command_t *const commands[] = {
    &cli_replay, &cli_fit,    &cli_gen,    &cli_stress, &cli_bench, &cli_calibrate,
    &cli_info,   &cli_conf,   &cli_plot,   &cli_shadow, &cli_run,   &cli_top,
    &cli_record, &cli_export, &cli_report, &cli_diff,
};

static void print_help(FILE *file) {
    (void)fputs("usage: berm COMMAND [OPTION...] [ARGUMENT...]\n\n"
                "Replays and measures memory traces of GPU programs, with berm and other\n"
                "allocators, on a simulated or real CUDA device.\n\n",
                file);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(commands); i++)
        (void)fprintf(file, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    (void)fputs("\n  --help     this text; berm COMMAND --help says more\n"
                "  --version  the version of the library\n\n"
                "Exit status: 0; 1 on a finding (out of memory, leak, hazard); 2 on bad usage or\n"
                "bad input.\n",
                file);
}

static int finish(int status) {
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "berm: standard output: %s\n", strerror(errno));
        return CLI_BAD;
    }
    return status;
}

static bool asks_for_help(int count, char **arguments) {
    for (int i = 0; i < count && strcmp(arguments[i], "--") != 0; i++)
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0)
            return true;
    return false;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return CLI_BAD;
    }
    stress_child_command_set(argv);
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return finish(CLI_OK);
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("berm %s\n", berm_version());
        return finish(CLI_OK);
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(commands); i++) {
        if (strcmp(commands[i]->name, name) != 0)
            continue;
        if (asks_for_help(argc - 2, argv + 2)) {
            (void)fputs(commands[i]->help, stdout);
            if (commands[i]->help_more != NULL)
                commands[i]->help_more();
            return finish(CLI_OK);
        }
        return finish(commands[i]->run(argc - 1, argv + 1));
    }
    (void)fprintf(stderr, "berm: no command '%s'; berm --help lists them\n", name);
    return CLI_BAD;
}
