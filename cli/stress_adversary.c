// SPDX-License-Identifier: Apache-2.0
// `berm stress adversary KIND`: adversaries against allocators, side by side. The games are
// stress/adversary. This reads arguments and prints.
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "cli/run_options.h"
#include "cli/stress.h"
#include "stress/adversary/adversary.h"

#define UNIT_DEFAULT (UINT64_C(2) << 20)
#define LIVE_UNITS   UINT64_C(2048) // by default

enum {
    ALLOCATORS_MAX = 8,
    KINDS_MAX = 8,
};

enum {
    OPTION_ALLOCATOR = 256,
    OPTION_UNIT,
    OPTION_LIVE,
    OPTION_CAPACITY,
    OPTION_HEADROOM,
    OPTION_CONF,
    OPTION_LATENCY,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"allocator", required_argument, NULL, OPTION_ALLOCATOR},
    {"unit", required_argument, NULL, OPTION_UNIT},
    {"live", required_argument, NULL, OPTION_LIVE},
    {"capacity", required_argument, NULL, OPTION_CAPACITY},
    {"headroom", required_argument, NULL, OPTION_HEADROOM},
    {"conf", required_argument, NULL, OPTION_CONF},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

typedef struct adversary_arguments {
    stress_adversary_options_t options;
    stress_device_options_t device;
    const stress_allocator_ops_t *allocators[ALLOCATORS_MAX];
    size_t allocator_count;
    bool is_json, has_failed_aloud; // a line was printed already
} adversary_arguments_t;

static bool parse_allocators(adversary_arguments_t *a, const char *text) {
    a->has_failed_aloud = !cli_parse_allocators("stress", text, true, a->allocators, ALLOCATORS_MAX,
                                                &a->allocator_count);
    return !a->has_failed_aloud;
}

static bool parse_option(adversary_arguments_t *a, int option, const char *text) {
    switch (option) {
    case OPTION_ALLOCATOR:
        return parse_allocators(a, text);
    case OPTION_UNIT:
        return cli_parse_bytes(text, &a->options.unit_bytes);
    case OPTION_LIVE:
        return cli_parse_bytes(text, &a->options.live_bytes);
    case OPTION_CAPACITY:
        return cli_parse_bytes(text, &a->options.capacity_bytes);
    case OPTION_HEADROOM:
        return cli_parse_double(text, 0, 1000, &a->options.headroom_pct);
    case OPTION_CONF:
        a->options.conf = text;
        return true;
    case OPTION_LATENCY:
        a->device.latency = text;
        return true;
    case OPTION_JSON:
        a->is_json = true;
        return true;
    default:
        return false;
    }
}

static bool is_kind(const char *text) {
    for (size_t i = 0; stress_adversary_name(i) != NULL; i++)
        if (strcmp(stress_adversary_name(i), text) == 0)
            return true;
    return strcmp(text, "all") == 0;
}

static int parse_arguments(adversary_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    int index = -1;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, &index)) != -1; index = -1) {
        if (c == ':')
            return cli_fail("stress", "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail("stress", "no option '%s'; see berm stress --help", argv[optind - 1]);
        if (!parse_option(a, c, optarg))
            return a->has_failed_aloud
                       ? CLI_BAD
                       : cli_fail("stress", "--%s does not take '%s'; see berm stress --help",
                                  long_options[index].name, optarg);
    }
    if (argc - optind != 1)
        return cli_fail("stress", argc == optind ? "no adversary given; see berm stress --help"
                                                 : "more than one adversary given");
    a->options.kind = argv[optind];
    if (!is_kind(a->options.kind))
        return cli_fail("stress", "no adversary '%s'; see berm stress --help", a->options.kind);
    if (a->options.live_bytes == 0)
        a->options.live_bytes = LIVE_UNITS * a->options.unit_bytes;
    return CLI_OK;
}

// --- output --------------------------------------------------------------------------------------

static void table_head(cli_table_t *table) {
    static const char *const names[] = {"adversary",     "allocator",       "peak\nlive\nMiB",
                                        "reserved\nMiB", "reserved\n/live", "pinned\nMiB",
                                        "bound\n/live",  "moved\nMiB",      "driver\nms",
                                        "host\nwaits",   "result"};
    cli_table_head(table, names, BERM_ARRAY_LENGTH(names));
}

static const char *result_words(const stress_adversary_result_t *r) {
    if (r->failure[0] != '\0')
        return "failed";
    if (r->is_refused)
        return "refused";
    if (r->hazards > 0 || r->leaked > 0)
        return "findings";
    return stress_adversary_is_good(r) ? "ok" : "above its bound";
}

static void table_result(cli_table_t *table, const stress_adversary_result_t *r) {
    double live = r->peak_live_bytes > 0 ? (double)r->peak_live_bytes : 1;
    cli_table_row(table);
    cli_table_cell(table, "%s", r->kind);
    cli_table_cell(table, "%s", r->allocator);
    cli_table_cell(table, "%.1f", cli_mib(r->peak_live_bytes));
    cli_table_cell(table, "%.0f", cli_mib(r->peak_reserved_bytes));
    cli_table_cell(table, "%.4f", r->reserved_over_live);
    cli_table_cell(table, "%.0f", cli_mib(r->peak_pinned_bytes));
    if (r->has_bound)
        cli_table_cell(table, "%.4f", (double)r->bound_bytes / live);
    else
        cli_table_cell(table, "-");
    cli_table_cell(table, "%.0f", cli_mib(r->moved_bytes));
    cli_table_cell(table, "%.1f", (double)r->driver_ns / 1e6);
    cli_table_cell(table, "%" PRIu64, r->host_waits);
    cli_table_cell(table, "%s", result_words(r));
}

static void print_finding(const stress_adversary_result_t *r) {
    if (r->failure[0] != '\0')
        (void)printf("%s, %s: %s\n", r->kind, r->allocator, r->failure);
    if (r->is_refused)
        (void)printf("%s, %s: refused %.1f MiB at %.1f MiB live, %.3f of the capacity\n", r->kind,
                     r->allocator, cli_mib(r->refused_size_bytes), cli_mib(r->refused_live_bytes),
                     (double)(r->refused_live_bytes + r->refused_size_bytes) /
                         (double)r->capacity_bytes);
    if (r->hazards > 0)
        (void)printf("%s, %s: %" PRIu64 " hazards, the first: %s\n", r->kind, r->allocator,
                     r->hazards, r->first_hazard);
    if (r->leaked > 0)
        (void)printf("%s, %s: %" PRIu64 " leaks\n", r->kind, r->allocator, r->leaked);
}

static void print_all(const adversary_arguments_t *a, const stress_adversary_result_t *results,
                      size_t count) {
    berm_emit_t emit;
    if (a->is_json) {
        cli_results_begin(&emit, count);
        for (size_t i = 0; i < count; i++)
            stress_adversary_emit(&emit, &results[i]);
        cli_results_end(&emit, count);
        return;
    }
    cli_table_t *table = calloc(1, sizeof *table);
    if (table == NULL)
        return;
    table_head(table);
    for (size_t i = 0; i < count; i++)
        table_result(table, &results[i]);
    cli_table_print(table, stdout);
    for (size_t i = 0; i < count; i++)
        print_finding(&results[i]);
    free(table);
}

// Every chosen adversary against every allocator; *done counts the results.
static int play_all(adversary_arguments_t *a, stress_adversary_result_t *results, size_t *done) {
    char error[512] = "";
    const char *chosen = a->options.kind;
    for (size_t i = 0; stress_adversary_name(i) != NULL; i++) {
        if (strcmp(chosen, "all") != 0 && strcmp(chosen, stress_adversary_name(i)) != 0)
            continue;
        a->options.kind = stress_adversary_name(i);
        for (size_t j = 0; j < a->allocator_count; j++) {
            cli_progress(a->options.kind, *done, KINDS_MAX * a->allocator_count);
            a->options.ops = a->allocators[j];
            if (stress_adversary_run(&a->options, &results[*done], error, sizeof error) != 0)
                return cli_fail("stress", "%s", error);
            (*done)++;
        }
    }
    return CLI_OK;
}

// Findings are berm's: others are there to compare with, and may be refused.
static int worst(const stress_adversary_result_t *results, size_t count, bool has_berm) {
    for (size_t i = 0; i < count; i++)
        if ((results[i].has_bound || !has_berm) && !stress_adversary_is_good(&results[i]))
            return CLI_FINDING;
    return CLI_OK;
}

int cli_stress_adversary(int argc, char **argv) {
    adversary_arguments_t a = {
        .options = {.conf = "", .headroom_pct = -1, .unit_bytes = UNIT_DEFAULT},
        .device = {.name = "sim"}};
    bool is_parsed = parse_allocators(&a, "berm,pytorch,expandable,naive");
    int status = is_parsed ? parse_arguments(&a, argc, argv) : CLI_BAD;
    if (status != CLI_OK)
        return status;
    cli_environment_forget();
    char error[512] = "";
    stress_adversary_result_t *results = calloc(KINDS_MAX * a.allocator_count, sizeof *results);
    if (results == NULL)
        return cli_fail("stress", "no memory");
    if (stress_device_open(&a.device, error, sizeof error) != 0) {
        free(results);
        return cli_fail("stress", "%s", error);
    }
    size_t done = 0;
    status = play_all(&a, results, &done);
    cli_progress_end();
    stress_device_close();
    if (status == CLI_OK) {
        print_all(&a, results, done);
        status = worst(results, done, strcmp(results[0].allocator, "berm") == 0);
    }
    free(results);
    return status;
}

void cli_stress_adversary_help(void) {
    (void)printf(
        "\nusage: berm stress adversary KIND|all [OPTION...]\n\n"
        "adversary: a program that sees where blocks lie and frees what is of least use, on a\n"
        "simulated device. Exit status 1: more reserved than berm's bound (docs/stress.md), a\n"
        "request refused, a hazard, a leak, a failed audit. KIND is\n");
    for (size_t i = 0; stress_adversary_name(i) != NULL; i++)
        (void)printf("  %-10s %s\n", stress_adversary_name(i), stress_adversary_summary(i));
    (void)printf(
        "\n"
        "  --allocator NAME,...  berm,pytorch,expandable,naive; where berm is the first, exit\n"
        "                     status 1 is about berm alone\n"
        "  --unit BYTES       the smallest block; all are multiples of it; 2M, a granule\n"
        "  --live BYTES       the most that is live at once; 2048 units\n"
        "  --capacity BYTES   memory of the device; 16 times --live\n"
        "  --headroom PCT, --conf STRING, --latency fast|typical|slow|FILE  as in replay --help\n"
        "  --json             one JSON object on standard output\n"
        "\nColumns: pinned is the most that granules with a live byte took at once; bound is what\n"
        "berm may have reserved, over live.\n");
}
