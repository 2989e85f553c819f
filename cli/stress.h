// SPDX-License-Identifier: Apache-2.0
// The kinds of `berm stress` that have a file of their own.
#ifndef CLI_STRESS_H
#define CLI_STRESS_H

// argv[0] is "adversary". An exit status of cli.h.
int cli_stress_adversary(int argc, char **argv);
void cli_stress_adversary_help(void);

// argv[0] is "traces".
int cli_stress_traces(int argc, char **argv);
void cli_stress_traces_help(void);

#endif
