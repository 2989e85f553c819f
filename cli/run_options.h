// SPDX-License-Identifier: Apache-2.0
// The options and the input that `berm replay` and `berm fit` have in common.
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include "cli/cli.h"
#include "cli/switches.h"
#include "stress/replay.h"

enum {
    CLI_ALLOCATORS_MAX = 16,
    CLI_TRACES_MAX = 64,
};

typedef struct cli_run_options {
    const char *command;
    const stress_allocator_ops_t *allocators[CLI_ALLOCATORS_MAX];
    size_t allocator_count;
    stress_device_options_t device;
    stress_replay_options_t replay; // .ops is set for each run
    trace_read_options_t read;
    uint64_t streams;              // to deal blocks over; 0: as recorded
    uint64_t requests_up_to_bytes; // larger ones are left out; 0: none is
    bool with_failed;              // the last request that failed is made too
    bool is_json;
    const char *series_path; // NULL for none
    char **paths;            // the TRACE arguments
    size_t path_count;
    trace_t *traces[CLI_TRACES_MAX];
} cli_run_options_t;

// Parses, reads all traces and opens the device. CLI_OK, or CLI_BAD after one line on standard
// error; to be closed in either case.
int cli_run_open(cli_run_options_t *options, const char *command, int argc, char **argv);
// CLI_BAD, after a line, when a file that was written could not be finished.
int cli_run_close(cli_run_options_t *options);
void cli_run_help_allocators(void); // a line for each
// What a trace is, as the line above its table.
void cli_run_print_trace(const trace_t *trace);

// The value of --allocator: a comma list of names; with `is_once` each may be there once. False
// after a line on standard error.
bool cli_parse_allocators(const char *command, const char *text, bool is_once,
                          const stress_allocator_ops_t **allocators, size_t capacity,
                          size_t *count);

// False, after a line on standard error, when --conf names what an option of the command sets too:
// headroom (< 0: it was not given), limit.
bool cli_run_conf_check(const char *command, const char *conf, double headroom_pct, bool has_limit);
// A line on standard error when --headroom was given and no allocator has such a thing.
void cli_run_headroom_warn(const char *command, double headroom_pct,
                           const stress_allocator_ops_t *const *allocators, size_t count);

// The part of --help about these options. DEVICE, CAPACITY and SERIES are a command's own lines.
#define CLI_RUN_HELP(DEVICE, CAPACITY, SERIES)                                                     \
    "  --allocator NAME[,NAME...]  berm by default; several are compared side by side; their\n"    \
    "                       names are below\n" DEVICE CAPACITY                                     \
    "  --latency fast|typical|slow|FILE  what driver calls cost there; FILE has lines\n"           \
    "                       CALL.FIELD=NUMBER over preset=fast|typical|slow: the FIELD base_ns,\n" \
    "                       per_mapping_ns or ns_per_mib of the CALL reserve, address_free,\n"     \
    "                       create, release, map, set_access, unmap, malloc, free,\n"              \
    "                       event_record, event_query, stream_wait, synchronize, mem_info or\n"    \
    "                       other, such as create.base_ns=193000; berm calibrate writes one\n"     \
    "  --limit BYTES        the most the allocator may hold reserved\n"                            \
    "  --headroom PCT       how far reserved may exceed live before pages move (berm, naive)\n"    \
    "  --conf STRING        the allocator's own options: key:value,key:value; BERM_CONF is not\n"  \
    "                       read here; headroom and limit are set in one place only\n"             \
    "  --repeat N           runs the trace N times in a row; what is live at its end is freed\n"   \
    "  --check none|audit|full  audit (default): overlap and alignment of blocks always, the\n"    \
    "                       allocator's audit and the device's ledger 20 times a repeat; full:\n"  \
    "                       all of it after every event\n"                                         \
    "  --audit-every K      with full: the audit only after every K-th event; 1\n"                 \
    "  --strict             stops at the first hazard\n"                                           \
    "  --work-us N          modelled kernels: one of N us writes a block after its alloc, one\n"   \
    "                       reads it before its free; 5\n"                                         \
    "  --host-us N          host time before each event; 4, a little less than a kernel, so\n"     \
    "                       that the device falls behind\n"                                        \
    "  --lag-us N           by this much at most; 200\n"                                           \
    "  --event-lag US       one kernel in four takes up to so much longer, drawn from --seed, "    \
    "so\n"                                                                                         \
    "                       that events come late and in any order, and the device may lag by "    \
    "so\n"                                                                                         \
    "                       much more; 0\n"                                                        \
    "  --streams N          deals the blocks over N streams, which take turns drawn from --seed; " \
    "a\n"                                                                                          \
    "                       quarter is used by another stream when it is freed; as "               \
    "recorded\n"                                                                                   \
    "  --requests-up-to BYTES  leaves larger requests out: what small blocks alone "               \
    "need\n"                                                                                       \
    "  --with-failed        makes the last request that failed, too, where the program was "       \
    "recorded:\n"                                                                                  \
    "                       it fails again where there is as little memory\n" CLI_SWITCH_HELP(     \
        "2M") "  --scale N            bytes per unit of size in lifetimes CSV; 1\n"                \
              "  --source-device N    which device's events of a PyTorch snapshot; the one with "  \
              "most\n"                                                                             \
              "  --seed N             of what --streams and --event-lag draw; 0\n" SERIES          \
              "  --json               one JSON object on standard output\n"

#endif
