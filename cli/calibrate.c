// SPDX-License-Identifier: Apache-2.0
// berm calibrate: measures what driver calls cost, writes it as a latency file, and says whether
// the driver obeys the rules berm relies on. Both are done by stress/calibrate; this reads
// arguments and prints. libberm itself is not used: what is asked is the driver.
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "stress/calibrate/calibrate.h"
#include "stress/child.h"
#include "stress/device.h"

enum {
    OPTION_DEVICE = 256,
    OPTION_CAPACITY,
    OPTION_LATENCY,
    OPTION_REPEATS,
    OPTION_OUT,
    OPTION_JSON,
    REPEATS_DEFAULT = 100,
};

static const struct option long_options[] = {
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"capacity", required_argument, NULL, OPTION_CAPACITY},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"repeats", required_argument, NULL, OPTION_REPEATS},
    {"out", required_argument, NULL, OPTION_OUT},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

typedef struct calibrate_arguments {
    stress_device_options_t device;
    uint64_t repeats;
    const char *out;
    bool is_json;
} calibrate_arguments_t;

typedef struct calibrate_result {
    stress_calibrate_driver_t driver;
    stress_calibrate_timing_t timing;
    stress_rule_result_t rules[STRESS_CALIBRATE_RULES_MAX];
    size_t rule_count, broken;
    stress_alias_verdict_t alias;
} calibrate_result_t;

static int parse_option(calibrate_arguments_t *a, const char *command, int c) {
    switch (c) {
    case OPTION_DEVICE:
        a->device.name = optarg;
        return CLI_OK;
    case OPTION_LATENCY:
        a->device.latency = optarg;
        return CLI_OK;
    case OPTION_OUT:
        a->out = optarg;
        return CLI_OK;
    case OPTION_JSON:
        a->is_json = true;
        return CLI_OK;
    case OPTION_CAPACITY:
        if (cli_parse_bytes(optarg, &a->device.capacity_bytes))
            return CLI_OK;
        return cli_fail(command, "--capacity '%s' is no size", optarg);
    case OPTION_REPEATS:
        if (cli_parse_u64(optarg, 1, STRESS_CALIBRATE_REPEATS_MAX, &a->repeats))
            return CLI_OK;
        return cli_fail(command, "--repeats '%s' is no number from 1 to %d", optarg,
                        STRESS_CALIBRATE_REPEATS_MAX);
    default:
        return CLI_OK;
    }
}

static int parse_arguments(calibrate_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm calibrate --help", argv[optind - 1]);
        int status = parse_option(a, argv[0], c);
        if (status != CLI_OK)
            return status;
    }
    if (optind < argc)
        return cli_fail(argv[0], "no argument '%s'; see berm calibrate --help", argv[optind]);
    if (strcmp(a->device.name, "sim") != 0 &&
        (a->device.capacity_bytes != 0 || a->device.latency != NULL))
        return cli_fail(argv[0], "--capacity and --latency are for --device sim only");
    return CLI_OK;
}

// --- output ----------------------------------------------------------------------------------

static int preset_write(calibrate_result_t *r, const char *command, const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return cli_fail(command, "%s: %s", path, strerror(errno));
    stress_calibrate_write(file, &r->driver, &r->timing, &r->alias);
    bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad)
        return cli_fail(command, "%s: cannot be written: %s", path, strerror(errno));
    return CLI_OK;
}

static void cell_unless_zero(cli_table_t *table, double value) {
    if (value > 0)
        cli_table_cell(table, "%.0f", value);
    else
        cli_table_cell(table, "%s", "");
}

static void print_timing(calibrate_result_t *r) {
    static cli_table_t table;
    static const char *const names[] = {"call", "mappings", "MiB", "median us", "p99 us"};
    static const char *const costs[] = {"fitted (ns)", "base", "per mapping", "per MiB"};
    memset(&table, 0, sizeof table);
    cli_table_head(&table, names, BERM_ARRAY_LENGTH(names));
    for (size_t i = 0; i < r->timing.count; i++) {
        const stress_calibrate_point_t *p = &r->timing.points[i];
        cli_table_row(&table);
        cli_table_cell(&table, "%s", p->function);
        cell_unless_zero(&table, (double)p->mappings);
        cell_unless_zero(&table, cli_mib(p->bytes));
        cli_table_cell(&table, "%.2f", (double)p->median_ns / 1000);
        cli_table_cell(&table, "%.2f", (double)p->p99_ns / 1000);
    }
    cli_table_print(&table, stdout);
    (void)printf("\n");
    memset(&table, 0, sizeof table);
    cli_table_head(&table, costs, BERM_ARRAY_LENGTH(costs));
    for (int i = 0; i < STRESS_CALIBRATE_CALLS; i++) {
        const simcuda_cost_t *cost = stress_calibrate_cost(&r->timing.costs, i);
        cli_table_row(&table);
        cli_table_cell(&table, "%s", stress_calibrate_call_name(i));
        cli_table_cell(&table, "%llu", (unsigned long long)cost->base_ns);
        cli_table_cell(&table, "%llu", (unsigned long long)cost->per_mapping_ns);
        cli_table_cell(&table, "%llu", (unsigned long long)cost->ns_per_mib);
    }
    cli_table_print(&table, stdout);
}

static void print_rule(const stress_rule_result_t *rule) {
    (void)printf("%-10s  %s: %s", stress_verdict_name(rule->verdict), rule->name, rule->text);
    if (rule->verdict == STRESS_VERDICT_DIFFERS)
        (void)printf("; CUresult %d, wanted %d%s", rule->result, rule->wanted,
                     rule->is_needed ? "; BERM NEEDS THIS" : "");
    if (rule->detail[0] != '\0')
        (void)printf(" (%s)", rule->detail);
    (void)printf("\n");
}

static void print_text(calibrate_result_t *r, const calibrate_arguments_t *a) {
    (void)printf("%s%s, CUDA driver %d.%d, granules of %.1f MiB, %u repeats\n\n", r->driver.name,
                 stress_device_is_simulated() ? " (simulated)" : "", r->driver.version / 1000,
                 r->driver.version % 1000 / 10, cli_mib(r->driver.granule_bytes),
                 r->timing.repeats);
    print_timing(r);
    (void)printf("\n");
    for (size_t i = 0; i < r->rule_count; i++)
        print_rule(&r->rules[i]);
    (void)printf("\nremap:alias: %s: %s\n", stress_alias_name(r->alias.verdict), r->alias.why);
    if (r->broken == 0)
        (void)printf("every rule that berm needs holds\n");
    else
        (void)printf("%zu of the rules that berm needs are broken or could not be tested\n",
                     r->broken);
    if (a->out != NULL)
        (void)printf("latency file: %s\n", a->out);
}

static void emit_timing(berm_emit_t *emit, calibrate_result_t *r) {
    berm__emit_array_begin(emit, "timings");
    for (size_t i = 0; i < r->timing.count; i++) {
        const stress_calibrate_point_t *p = &r->timing.points[i];
        berm__emit_object_begin(emit, NULL);
        berm__emit_string(emit, "call", p->call);
        berm__emit_string(emit, "function", p->function);
        berm__emit_u64(emit, "mappings", p->mappings);
        berm__emit_u64(emit, "bytes", p->bytes);
        berm__emit_u64(emit, "median_ns", p->median_ns);
        berm__emit_u64(emit, "p99_ns", p->p99_ns);
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
    berm__emit_object_begin(emit, "costs");
    for (int i = 0; i < STRESS_CALIBRATE_CALLS; i++) {
        const simcuda_cost_t *cost = stress_calibrate_cost(&r->timing.costs, i);
        berm__emit_object_begin(emit, stress_calibrate_call_name(i));
        berm__emit_u64(emit, "base_ns", cost->base_ns);
        berm__emit_u64(emit, "per_mapping_ns", cost->per_mapping_ns);
        berm__emit_u64(emit, "ns_per_mib", cost->ns_per_mib);
        berm__emit_object_end(emit);
    }
    berm__emit_object_end(emit);
}

static void emit_rules(berm_emit_t *emit, const calibrate_result_t *r) {
    berm__emit_array_begin(emit, "rules");
    for (size_t i = 0; i < r->rule_count; i++) {
        const stress_rule_result_t *rule = &r->rules[i];
        bool is_run = rule->verdict != STRESS_VERDICT_NOT_TESTED;
        berm__emit_object_begin(emit, NULL);
        berm__emit_string(emit, "name", rule->name);
        berm__emit_string(emit, "text", rule->text);
        berm__emit_bool(emit, "needed", rule->is_needed);
        berm__emit_string(emit, "verdict", stress_verdict_name(rule->verdict));
        berm__emit_i64(emit, "wanted", rule->wanted);
        if (is_run)
            berm__emit_i64(emit, "result", rule->result);
        else
            berm__emit_null(emit, "result");
        berm__emit_string(emit, "detail", rule->detail);
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
    berm__emit_u64(emit, "broken", r->broken);
    berm__emit_string(emit, "alias", stress_alias_name(r->alias.verdict));
    berm__emit_string(emit, "alias_why", r->alias.why);
}

static void print_json(calibrate_result_t *r, const calibrate_arguments_t *a) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_i64(&emit, "device", stress_device_ordinal());
    berm__emit_string(&emit, "name", r->driver.name);
    berm__emit_bool(&emit, "simulated", stress_device_is_simulated());
    berm__emit_i64(&emit, "driver_version", r->driver.version);
    berm__emit_u64(&emit, "granule_bytes", r->driver.granule_bytes);
    berm__emit_u64(&emit, "repeats", r->timing.repeats);
    if (a->out != NULL)
        berm__emit_string(&emit, "latency_file", a->out);
    else
        berm__emit_null(&emit, "latency_file");
    emit_timing(&emit, r);
    emit_rules(&emit, r);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

// --- the command -----------------------------------------------------------------------------

static void show_progress(uint64_t done, uint64_t total) {
    cli_progress("calibrate", done, total);
}

static int calibrate_on_device(calibrate_result_t *r, const calibrate_arguments_t *a,
                               const char *command) {
    char error[512] = "";
    if (stress_calibrate_open(&r->driver, error, sizeof error) != 0 ||
        stress_calibrate_measure(&r->driver, (unsigned)a->repeats, show_progress, &r->timing, error,
                                 sizeof error) != 0)
        return cli_fail(command, "%s", error);
    cli_progress_end();
    if (stress_calibrate_back(&r->driver, error, sizeof error) != 0)
        return cli_fail(command, "%s", error);
    r->rule_count = stress_calibrate_rules(&r->driver, r->rules);
    r->broken = stress_calibrate_broken(r->rules, r->rule_count);
    stress_calibrate_alias(r->rules, r->rule_count, &r->alias);
    if (a->out != NULL && preset_write(r, command, a->out) != CLI_OK)
        return CLI_BAD;
    if (a->is_json)
        print_json(r, a);
    else
        print_text(r, a);
    return r->broken == 0 ? CLI_OK : CLI_FINDING;
}

static int calibrate_run(int argc, char **argv) {
    static calibrate_result_t result;
    calibrate_arguments_t a = {.device = {.name = "cuda"}, .repeats = REPEATS_DEFAULT};
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    char error[512] = "";
    if (stress_device_open(&a.device, error, sizeof error) != 0)
        return cli_fail(argv[0], "%s", error);
    const char *question = stress_child_question();
    if (question != NULL)
        return stress_calibrate_answer(question);
    status = calibrate_on_device(&result, &a, argv[0]);
    stress_device_close();
    return status;
}

const cli_command_t cli_calibrate = {
    .name = "calibrate",
    .summary = "measure a driver's costs and check its rules",
    .help =
        "usage: berm calibrate [OPTION...]\n\n"
        "Measures what each driver call that berm uses costs, per call, per mapping and per\n"
        "MiB, and checks the rules of the driver that berm relies on, and those that\n"
        "remap:alias stands on. What could end a context, as unmapping under a running kernel,\n"
        "is tried in processes of its own. The device should be idle and have 544 MiB free.\n"
        "Exit status 1: a rule that berm needs is broken or could not be tested.\n\n"
        "  --device cuda[:N]|sim  the system's device (default), or the simulated one\n"
        "  --out FILE             write the costs there, for --latency of other commands\n"
        "  --repeats N            times each call is measured, 1 to 10000 (100)\n"
        "  --capacity BYTES       memory of the simulated device\n"
        "  --latency fast|typical|slow|FILE\n"
        "                         what calls cost on the simulated device\n"
        "  --json                 one JSON object on standard output\n",
    .run = calibrate_run,
};
