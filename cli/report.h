// SPDX-License-Identifier: Apache-2.0
// The parts of `berm report`.
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "cli/cli.h"
#include "record/record.h"

// What a call site of the recording is: "case_alloc at case.h:21 (inlined by) main at leak.c:23" by
// addr2line, where it is installed and the program has debug information, or the file and offset.
void cli_site_text(const berm_record_t *record, uint64_t address, char *text, size_t capacity);

// Prints where live blocks of the device were asked for; nothing where call sites were not noted.
void cli_report_sites(const berm_record_t *record, const berm_record_device_t *device);

// Asks a process of this user's for a recording, and reads it. NULL with a line in `error`.
berm_record_t *cli_report_live(uint64_t pid, char *error, size_t error_capacity);

// berm report of several recordings, one for each process of a job. Returns the exit status.
int cli_report_ranks(const char *command, char *const *paths, size_t count, bool is_json);

#endif
