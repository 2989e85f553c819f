// SPDX-License-Identifier: Apache-2.0
// `berm stress KIND`: hard use of libberm with checking on. KIND is contents, of which this reads
// arguments and prints (stress/contents verifies every byte), adversary (stress_adversary.c) or
// traces (stress_traces.c).
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/stress.h"
#include "cli/switches.h"
#include "stress/contents/contents.h"
#include "stress/device.h"

// So little, and in so small pieces, that pages move all the time.
#define CAPACITY_DEFAULT (UINT64_C(64) << 20)
#define GRANULE_DEFAULT  (UINT64_C(256) << 10)

enum {
    OPTION_OPERATIONS = 256,
    OPTION_SEED,
    OPTION_CONF,
    OPTION_CAPACITY,
    OPTION_LATENCY,
    OPTION_AUDIT_EVERY,
    OPTION_MISTAKE,
    OPTION_EXPECT_HAZARD,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"operations", required_argument, NULL, OPTION_OPERATIONS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"conf", required_argument, NULL, OPTION_CONF},
    {"capacity", required_argument, NULL, OPTION_CAPACITY},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"audit-every", required_argument, NULL, OPTION_AUDIT_EVERY},
    CLI_SWITCH_OPTIONS,
    {"mistake", required_argument, NULL, OPTION_MISTAKE},
    {"expect-hazard", no_argument, NULL, OPTION_EXPECT_HAZARD},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

typedef struct stress_arguments {
    stress_device_options_t device;
    stress_contents_options_t contents;
    bool expects_hazard, is_json;
} stress_arguments_t;

static bool parse_mistake(const char *text, stress_contents_mistake_t *mistake) {
    bool is_byte = strcmp(text, "byte") == 0;
    *mistake = is_byte ? STRESS_CONTENTS_WRONG_BYTE : STRESS_CONTENTS_WRONG_ORDER;
    return is_byte || strcmp(text, "order") == 0;
}

// False when the option does not take the value.
static bool parse_option(stress_arguments_t *a, int option, const char *text) {
    switch (option) {
    case OPTION_OPERATIONS:
        return cli_parse_u64(text, 1, UINT64_C(1000000000000), &a->contents.operations);
    case OPTION_SEED:
        return cli_parse_u64(text, 0, UINT64_MAX, &a->contents.seed);
    case OPTION_AUDIT_EVERY:
        return cli_parse_u64(text, 0, UINT64_MAX, &a->contents.audit_every);
    case OPTION_CAPACITY:
        return cli_parse_bytes(text, &a->device.capacity_bytes);
    case OPTION_MISTAKE:
        return parse_mistake(text, &a->contents.mistake);
    case OPTION_CONF:
        a->contents.conf = text;
        return true;
    case OPTION_LATENCY:
        a->device.latency = text;
        return true;
    case OPTION_EXPECT_HAZARD:
        a->expects_hazard = true;
        return true;
    case OPTION_JSON:
        a->is_json = true;
        return true;
    default:
        return cli_switch_is(option) && cli_switch_parse(&a->device, option, text);
    }
}

static int parse_arguments(stress_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    int index = -1;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, &index)) != -1; index = -1) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm stress --help", argv[optind - 1]);
        if (!parse_option(a, c, optarg))
            return cli_fail(argv[0], "--%s does not take '%s'; see berm stress --help",
                            long_options[index].name, optarg);
    }
    if (argc - optind != 1)
        return cli_fail(argv[0], "%s",
                        argc == optind ? "no KIND given; see berm stress --help"
                                       : "more than one KIND given; see berm stress --help");
    if (strcmp(argv[optind], "contents") != 0)
        return cli_fail(argv[0], "no kind '%s'; see berm stress --help", argv[optind]);
    return CLI_OK;
}

static void print_text(const stress_contents_result_t *r) {
    (void)printf("%" PRIu64 " operations: %" PRIu64 " blocks, %" PRIu64
                 " requests refused, %" PRIu64 " frees on another stream, %" PRIu64
                 " on none, %" PRIu64 " streams recorded, %" PRIu64 " trims\n",
                 r->operations, r->allocs, r->refused, r->frees_elsewhere, r->frees_on_none,
                 r->recorded_streams, r->trims);
    (void)printf("%.0f MiB device, %.0f MiB live and %.0f reserved at most; %.1f ms on it\n",
                 cli_mib(r->capacity_bytes), cli_mib(r->live_peak_bytes),
                 cli_mib(r->reserved_peak_bytes), (double)r->device_ns / 1e6);
    (void)printf("%" PRIu64 " moves of %.0f MiB, %" PRIu64 " host waits, %" PRIu64 " audits\n",
                 r->moves, cli_mib(r->moved_bytes), r->host_waits, r->audits);
    (void)printf("%" PRIu64 " kernels wrote %.0f MiB and verified %.0f MiB: %" PRIu64
                 " wrong byte%s\n",
                 r->kernels, cli_mib(r->written_bytes), cli_mib(r->verified_bytes), r->wrong_bytes,
                 BERM_PLURAL(r->wrong_bytes));
    if (r->first_wrong[0] != '\0')
        (void)printf("WRONG: %s\n", r->first_wrong);
    (void)printf("%" PRIu64 " hazard%s\n", r->hazards, BERM_PLURAL(r->hazards));
    if (r->first_hazard[0] != '\0')
        (void)printf("HAZARD: %s\n", r->first_hazard);
    if (r->kernels_not_run > 0)
        (void)printf("NOT RUN: %" PRIu64 " kernels\n", r->kernels_not_run);
    if (r->leaked > 0)
        (void)printf("LEAKED: %" PRIu64 " reservations, handles and mappings\n", r->leaked);
    if (r->failure[0] != '\0')
        (void)printf("FAILED: %s\n", r->failure);
}

static void print_json(const stress_contents_result_t *result) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    stress_contents_emit(&emit, result);
    berm__emit_finish(&emit);
}

static int stress_run(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "adversary") == 0)
        return cli_stress_adversary(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "traces") == 0)
        return cli_stress_traces(argc - 1, argv + 1);
    stress_arguments_t a = {.device = {.name = "sim",
                                       .capacity_bytes = CAPACITY_DEFAULT,
                                       .granule_bytes = GRANULE_DEFAULT,
                                       .is_backed = true}};
    stress_contents_options_default(&a.contents);
    a.contents.progress = cli_show_progress;
    a.contents.progress_context = (void *)(uintptr_t) "stress";
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    cli_environment_forget();
    char error[512] = "";
    if (stress_device_open(&a.device, error, sizeof error) != 0)
        return cli_fail(argv[0], "%s", error);
    stress_contents_result_t result;
    status = stress_contents_run(&a.contents, &result, error, sizeof error);
    cli_progress_end();
    stress_device_close();
    if (status != 0)
        return cli_fail(argv[0], "%s", error);
    if (a.is_json)
        print_json(&result);
    else
        print_text(&result);
    bool is_good = a.expects_hazard ? result.hazards > 0 : stress_contents_is_good(&result);
    return is_good ? CLI_OK : CLI_FINDING;
}

static void help_more(void) {
    cli_stress_adversary_help();
    cli_stress_traces_help();
}

const cli_command_t cli_stress = {
    .name = "stress",
    .summary = "use the allocator hard, and verify it",
    .help = "usage: berm stress contents [OPTION...]\n\n"
            "contents: random operations over four streams on a simulated device that is nearly\n"
            "full and whose memory has contents. Kernels write patterns into blocks and verify\n"
            "them; frees overlap queued work, also on other streams and on none. Every block is\n"
            "verified before its free. Exit status 1: a wrong byte, a hazard, a kernel whose\n"
            "memory was gone, a leak, or a call that failed.\n\n"
            "  --operations N     20000\n"
            "  --seed N           the same seed gives the same run; 1\n"
            "  --conf STRING      libberm's options: key:value,key:value; BERM_CONF is not read\n"
            "  --capacity BYTES   memory of the device; 64M\n"
            "  --latency fast|typical|slow|FILE  what driver calls cost; FILE as in replay --help\n"
            "  --audit-every N    an audit of all invariants every N operations, 0 for none; "
            "1000\n" CLI_SWITCH_HELP(
                "256K") "  --mistake byte|order  does something wrong on purpose, which must be "
                        "found: one\n"
                        "                     byte is changed; streams use blocks without a word "
                        "to berm\n"
                        "  --expect-hazard    exit status 0 if the device saw a hazard, else 1\n"
                        "  --json             one JSON object on standard output\n",
    .help_more = help_more,
    .run = stress_run,
};
