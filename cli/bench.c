// SPDX-License-Identifier: Apache-2.0
// berm bench: allocators against each other. The benchmarks are stress/bench; output is
// bench_output.c, instruction counts by valgrind bench_valgrind.c. `berm bench fragmentation` is
// fragmentation.c.
#include "cli/bench.h"
#include "cli/fragmentation.h"
#include "cli/run_options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_ALLOCATOR = 256,
    OPTION_BENCHMARK,
    OPTION_ROUNDS,
    OPTION_QUICK,
    OPTION_INSTRUCTIONS,
    OPTION_BARE,
    OPTION_DEVICE,
    OPTION_CAPACITY,
    OPTION_LATENCY,
    OPTION_HEADROOM,
    OPTION_CONF,
    OPTION_SEED,
    OPTION_JSON,
};

// Room for a million live blocks in several allocators: the simulated device costs nothing for it.
#define CAPACITY_DEFAULT (UINT64_C(4) << 40)
#define ROUNDS_DEFAULT   7
#define ROUNDS_QUICK     3

static const struct option long_options[] = {
    {"allocator", required_argument, NULL, OPTION_ALLOCATOR},
    {"benchmark", required_argument, NULL, OPTION_BENCHMARK},
    {"rounds", required_argument, NULL, OPTION_ROUNDS},
    {"quick", no_argument, NULL, OPTION_QUICK},
    {"instructions", no_argument, NULL, OPTION_INSTRUCTIONS},
    {"bare", required_argument, NULL, OPTION_BARE},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"capacity", required_argument, NULL, OPTION_CAPACITY},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"headroom", required_argument, NULL, OPTION_HEADROOM},
    {"conf", required_argument, NULL, OPTION_CONF},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

static bool parse_allocators(cli_bench_t *bench, const char *text) {
    return cli_parse_allocators("bench", text, true, bench->options.allocators,
                                BENCH_ALLOCATORS_MAX, &bench->options.allocator_count);
}

static bool parse_cases(cli_bench_t *bench, const char *text) {
    char name[CLI_NAME_CAPACITY];
    bench->case_count = 0;
    for (const char *at = text; at == text || *at != '\0';) {
        if (!cli_list_next(&at, name) || bench->case_count == CLI_BENCH_CASES_MAX) {
            (void)cli_fail("bench", "--benchmark '%s' is no list of names", text);
            return false;
        }
        const bench_case_t *benchmark = bench_case_find(name);
        if (benchmark == NULL) {
            (void)cli_fail("bench", "no benchmark '%s'; --help lists them", name);
            return false;
        }
        bench->cases[bench->case_count++] = benchmark;
    }
    return true;
}

static bool parse_value(cli_bench_t *bench, int option, const char *text) {
    uint64_t number = 0;
    bool is_good = false;
    switch (option) {
    case OPTION_ROUNDS:
        is_good = cli_parse_u64(text, 1, BENCH_ROUNDS_MAX, &number);
        bench->options.rounds = (uint32_t)number;
        return is_good;
    case OPTION_BARE:
        bench->is_bare = true;
        return cli_parse_u64(text, 0, 10000000, &bench->bare_operations);
    case OPTION_CAPACITY:
        return cli_parse_bytes(text, &bench->device.capacity_bytes);
    case OPTION_HEADROOM:
        return cli_parse_double(text, 0, 100000, &bench->options.headroom_pct);
    case OPTION_SEED:
        return cli_parse_u64(text, 0, UINT64_MAX, &bench->options.seed);
    case OPTION_DEVICE:
        bench->device.name = text;
        return true;
    case OPTION_LATENCY:
        bench->device.latency = text;
        return true;
    default:
        bench->options.conf = text;
        return true;
    }
}

static bool parse_flag(cli_bench_t *bench, int option) {
    bench->options.is_quick = bench->options.is_quick || option == OPTION_QUICK;
    bench->wants_instructions = bench->wants_instructions || option == OPTION_INSTRUCTIONS;
    bench->is_json = bench->is_json || option == OPTION_JSON;
    return option == OPTION_QUICK || option == OPTION_INSTRUCTIONS || option == OPTION_JSON;
}

static int parse_arguments(cli_bench_t *bench) {
    optind = 0;
    opterr = 0;
    int index = 0;
    char **argv = bench->argv;
    for (int c; (c = getopt_long(bench->argc, argv, ":", long_options, &index)) != -1;) {
        if (c == ':')
            return cli_fail("bench", "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail("bench", "no option '%s'; see berm bench --help", argv[optind - 1]);
        if (parse_flag(bench, c))
            continue;
        if (c == OPTION_ALLOCATOR || c == OPTION_BENCHMARK) {
            if (!(c == OPTION_ALLOCATOR ? parse_allocators(bench, optarg)
                                        : parse_cases(bench, optarg)))
                return CLI_BAD;
        } else if (!parse_value(bench, c, optarg)) {
            return cli_fail("bench", "--%s does not take '%s'; see berm bench --help",
                            long_options[index].name, optarg);
        }
    }
    if (optind < bench->argc)
        return cli_fail("bench", "no argument '%s'; see berm bench --help", argv[optind]);
    if (bench->options.rounds == 0)
        bench->options.rounds = bench->options.is_quick ? ROUNDS_QUICK : ROUNDS_DEFAULT;
    bool is_real = bench->device.name != NULL && strcmp(bench->device.name, "sim") != 0;
    if (bench->device.capacity_bytes == 0 && !is_real)
        bench->device.capacity_bytes = CAPACITY_DEFAULT;
    if (!cli_run_conf_check("bench", bench->options.conf, bench->options.headroom_pct, false))
        return CLI_BAD;
    cli_run_headroom_warn("bench", bench->options.headroom_pct, bench->options.allocators,
                          bench->options.allocator_count);
    if (bench->is_bare && (bench->case_count != 1 || bench->options.allocator_count != 1))
        return cli_fail("bench", "--bare is for one --benchmark and one --allocator");
    return CLI_OK;
}

static bool has_kept(const cli_bench_t *bench) {
    bool has = false;
    for (size_t i = 0; i < bench->options.allocator_count; i++)
        has = has || bench->options.kept[i].allocator != NULL;
    return has;
}

static int bench_all(cli_bench_t *bench) {
    char error[512] = "";
    for (size_t i = 0; i < bench->case_count; i++) {
        const bench_case_t *benchmark = bench->cases[i];
        if (bench->options.is_quick && benchmark->operations_quick == 0)
            continue;
        cli_progress(benchmark->name, i, bench->case_count);
        // An allocator that stays between benchmarks keeps the device too.
        if ((!has_kept(bench) &&
             stress_device_reset(bench->device.capacity_bytes, error, sizeof error) != 0) ||
            bench_run(benchmark, &bench->options, bench->rows + bench->row_count, error,
                      sizeof error) != 0)
            return cli_fail("bench", "%s", error);
        bench->row_count += bench->options.allocator_count;
    }
    cli_progress_end();
    if (!bench->wants_instructions || bench_counts_instructions())
        return CLI_OK;
    return cli_bench_valgrind(bench);
}

static bool has_figures(const cli_bench_t *bench) {
    for (size_t i = 0; i < bench->row_count; i++)
        if (bench->rows[i].mean_ns >= 0)
            return true;
    return false;
}

static int bench_start(cli_bench_t *bench) {
    char error[512] = "";
    int status = parse_arguments(bench);
    if (status != CLI_OK)
        return status;
    if (stress_device_open(&bench->device, error, sizeof error) != 0)
        return cli_fail("bench", "%s", error);
    if (bench->is_bare)
        status = bench_run_bare(bench->cases[0], &bench->options, bench->bare_operations, error,
                                sizeof error) == 0
                     ? CLI_OK
                     : cli_fail("bench", "%s", error);
    else
        status = bench_all(bench);
    if (status == CLI_OK && !bench->is_bare) {
        if (bench->is_json)
            cli_bench_print_json(bench);
        else
            cli_bench_print_csv(bench);
        if (!has_figures(bench))
            status = cli_fail("bench", "nothing could be measured; the notes say why");
    }
    bench_end(&bench->options);
    stress_device_close();
    return status;
}

static int bench_command(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "fragmentation") == 0)
        return cli_fragmentation_run(argc, argv);
    cli_environment_forget();
    cli_bench_t *bench = calloc(1, sizeof *bench);
    if (bench == NULL)
        return cli_fail("bench", "no memory");
    bench->argc = argc;
    bench->argv = argv;
    bench->options.conf = "";
    bench->options.headroom_pct = -1;
    bench->options.seed = 1;
    for (size_t i = 0; i < bench_case_count; i++)
        bench->cases[bench->case_count++] = &bench_cases[i];
    bench->rows = calloc(CLI_BENCH_CASES_MAX * BENCH_ALLOCATORS_MAX, sizeof *bench->rows);
    int status = CLI_BAD;
    if (bench->rows == NULL)
        status = cli_fail("bench", "no memory");
    else if (parse_allocators(bench, "berm,pytorch"))
        status = bench_start(bench);
    cli_progress_end();
    free(bench->rows);
    free(bench);
    return status;
}

static void bench_help_more(void) {
    cli_fragmentation_help();
    cli_run_help_allocators();
}

const cli_command_t cli_bench = {
    .name = "bench",
    .summary = "measure how fast allocators are, side by side",
    .help =
        "usage: berm bench [OPTION...]\n"
        "       berm bench fragmentation [OPTION...] [TRACE...]  what memory costs; below\n\n"
        "Measures allocators in the same run, in turns, and prints CSV: the command, the machine,\n"
        "then a row for each benchmark and allocator. Figures are medians over rounds. On the\n"
        "simulated device driver calls cost only what simulating them does. An allocator that\n"
        "takes more than a minute for a benchmark is skipped there.\n\n"
        "  pair_512B, pair_64KiB, pair_1MiB, pair_64MiB  an allocation and its free\n"
        "  churn_100, churn_10000, churn_1000000  with so many blocks live, of 512 bytes to 4 MiB\n"
        "                       uniform in the logarithm, one is freed and another allocated\n"
        "  pair_512B_read, churn_10000_read  the same while another thread reads the statistics\n"
        "                       every millisecond (berm only; what hits count cannot be left out)\n"
        "  local_1_thread, local_2_threads  churn with 100 blocks in each thread, each on its own\n"
        "                       stream and processor; two beside one in the same round, and what\n"
        "                       two threads that share nothing do then\n"
        "  remote_free          one thread allocates 4 KiB, another frees it\n"
        "  miss_64_of_65536     blocks of 128 MiB where 128 GiB are reserved and every second\n"
        "                       granule is free: an allocator that moves pages moves 64\n\n"
        "  mean_ns              of an operation, in a batch; with threads wall time an operation\n"
        "  p50_ns, p99_ns, p999_ns  of operations timed one by one\n"
        "  per_mutex_pair       mean over that of an uncontended mutex lock and unlock\n"
        "  ratio                mean over that of the first allocator, round by round\n"
        "  instructions         an operation, in user mode\n"
        "  host_bytes_per_block host memory a live block takes: berm's own count; of others what\n"
        "                       jemalloc has given out, the simulated driver's records included\n\n"
        "  --allocator NAME[,NAME...]  berm,pytorch by default; their names are below\n"
        "  --benchmark NAME[,NAME...]  all by default\n"
        "  --rounds N           7; 3 with --quick\n"
        "  --quick              few operations, and not churn_1000000: to see that it works\n"
        "  --instructions       counts them by running this program under valgrind where the\n"
        "                       kernel does not permit it directly\n"
        "  --bare N             prepares one benchmark for one allocator, does N operations and\n"
        "                       prints nothing: for profilers\n"
        "  --device sim|cuda[:N]  where to run; the simulated device is the default\n"
        "  --capacity BYTES     of the simulated device; 4T\n"
        "  --latency fast|typical|slow|FILE  virtual costs there; no figure depends on them;\n"
        "                       FILE as in replay --help\n"
        "  --headroom PCT       how far reserved may exceed live (berm, naive)\n"
        "  --conf STRING        options of every allocator named; BERM_CONF is not read here\n"
        "  --seed N             of sizes and order; 1\n"
        "  --json               one JSON object instead of CSV\n\n"
        "Exit status 2: bad usage, or nothing could be measured.\n",
    .help_more = bench_help_more,
    .run = bench_command,
};
