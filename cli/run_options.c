// SPDX-License-Identifier: Apache-2.0
// Parses the options of `berm replay` and `berm fit`, reads the traces, opens the device: see
// run_options.h. All input is read before anything runs, so that bad input costs nothing.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_options.h"
#include "cli/switches.h"
#include "stress/child.h"
#include "stress/trace/deal.h"
#include "stress/trace/select.h"

enum {
    OPTION_ALLOCATOR = 256,
    OPTION_DEVICE,
    OPTION_CAPACITY,
    OPTION_LATENCY,
    OPTION_LIMIT,
    OPTION_HEADROOM,
    OPTION_CONF,
    OPTION_REPEAT,
    OPTION_CHECK,
    OPTION_AUDIT_EVERY,
    OPTION_STRICT,
    OPTION_WORK,
    OPTION_HOST,
    OPTION_LAG,
    OPTION_EVENT_LAG,
    OPTION_STREAMS,
    OPTION_REQUESTS_UP_TO,
    OPTION_WITH_FAILED,
    OPTION_SCALE,
    OPTION_SOURCE_DEVICE,
    OPTION_SEED,
    OPTION_SERIES,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"allocator", required_argument, NULL, OPTION_ALLOCATOR},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"capacity", required_argument, NULL, OPTION_CAPACITY},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"headroom", required_argument, NULL, OPTION_HEADROOM},
    {"conf", required_argument, NULL, OPTION_CONF},
    {"repeat", required_argument, NULL, OPTION_REPEAT},
    {"check", required_argument, NULL, OPTION_CHECK},
    {"audit-every", required_argument, NULL, OPTION_AUDIT_EVERY},
    {"strict", no_argument, NULL, OPTION_STRICT},
    {"work-us", required_argument, NULL, OPTION_WORK},
    {"host-us", required_argument, NULL, OPTION_HOST},
    {"lag-us", required_argument, NULL, OPTION_LAG},
    {"event-lag", required_argument, NULL, OPTION_EVENT_LAG},
    {"streams", required_argument, NULL, OPTION_STREAMS},
    {"requests-up-to", required_argument, NULL, OPTION_REQUESTS_UP_TO},
    {"with-failed", no_argument, NULL, OPTION_WITH_FAILED},
    CLI_SWITCH_OPTIONS,
    {"scale", required_argument, NULL, OPTION_SCALE},
    {"source-device", required_argument, NULL, OPTION_SOURCE_DEVICE},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"series", required_argument, NULL, OPTION_SERIES},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

bool cli_parse_allocators(const char *command, const char *text, bool is_once,
                          const stress_allocator_ops_t **allocators, size_t capacity,
                          size_t *count) {
    char name[CLI_NAME_CAPACITY];
    *count = 0;
    for (const char *at = text; at == text || *at != '\0';) {
        if (!cli_list_next(&at, name) || *count == capacity) {
            (void)cli_fail(command, "--allocator '%s' is no list of names", text);
            return false;
        }
        const stress_allocator_ops_t *ops = stress_allocator_find(name);
        for (size_t i = 0; i < *count && is_once; i++)
            if (allocators[i] == ops)
                ops = NULL;
        if (ops == NULL) {
            (void)cli_fail(command, "no allocator '%s'%s; --help lists them", name,
                           is_once ? ", or named twice" : "");
            return false;
        }
        allocators[(*count)++] = ops;
    }
    return true;
}

// Whether a text of the form key:value,key:value has the key.
static bool conf_names(const char *conf, const char *key) {
    for (const char *at = conf; *at != '\0'; at += strcspn(at, ",\n")) {
        at += strspn(at, ", \t\r\n");
        size_t length = strcspn(at, ": \t,\n");
        if (length == strlen(key) && strncmp(at, key, length) == 0)
            return true;
    }
    return false;
}

bool cli_run_conf_check(const char *command, const char *conf, double headroom_pct,
                        bool has_limit) {
    const char *twice = NULL;
    if (headroom_pct >= 0 && conf_names(conf, "headroom"))
        twice = "headroom";
    else if (has_limit && conf_names(conf, "limit"))
        twice = "limit";
    if (twice != NULL)
        (void)cli_fail(command, "--%s and --conf %s:... both set it: give one", twice, twice);
    return twice == NULL;
}

void cli_run_headroom_warn(const char *command, double headroom_pct,
                           const stress_allocator_ops_t *const *allocators, size_t count) {
    bool is_taken = headroom_pct < 0;
    for (size_t i = 0; i < count; i++)
        is_taken = is_taken || allocators[i]->takes_headroom;
    if (!is_taken)
        cli_warn(command, "--headroom means nothing to the allocators chosen");
}

static bool parse_check(cli_run_options_t *o, const char *text) {
    static const char *const names[] = {"none", "audit", "full"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            o->replay.check = (stress_check_t)i;
            return true;
        }
    }
    return false;
}

static bool parse_us(const char *text, uint64_t *ns) {
    double us;
    if (!cli_parse_double(text, 0, 1e9, &us))
        return false;
    *ns = (uint64_t)(us * 1000 + 0.5);
    return true;
}

// The options with numbers.
static bool parse_number(cli_run_options_t *o, int option, const char *text) {
    uint64_t number = 0;
    bool is_good = false;
    switch (option) {
    case OPTION_REPEAT:
        is_good = cli_parse_u64(text, 1, 10000, &number);
        o->replay.repeats = (uint32_t)number;
        return is_good;
    case OPTION_WORK:
        return parse_us(text, &o->replay.work.work_ns);
    case OPTION_HOST:
        return parse_us(text, &o->replay.work.host_ns);
    case OPTION_LAG:
        return parse_us(text, &o->replay.work.lag_ns);
    case OPTION_EVENT_LAG:
        return parse_us(text, &o->replay.work.event_lag_ns);
    case OPTION_STREAMS:
        return cli_parse_u64(text, 1, TRACE_DEAL_STREAMS_MAX, &o->streams);
    case OPTION_AUDIT_EVERY:
        return cli_parse_u64(text, 1, UINT64_MAX, &o->replay.audit_every);
    case OPTION_SCALE:
        return cli_parse_u64(text, 1, UINT64_C(1) << 40, &o->read.scale);
    case OPTION_SOURCE_DEVICE:
        is_good = cli_parse_u64(text, 0, 1023, &number);
        o->read.device = (int)number;
        return is_good;
    case OPTION_HEADROOM:
        return cli_parse_double(text, 0, 100000, &o->replay.headroom_pct);
    case OPTION_SEED:
        return cli_parse_u64(text, 0, UINT64_MAX, &o->replay.work.seed);
    default:
        return cli_switch_is(option) && cli_switch_parse(&o->device, option, text);
    }
}

static bool parse_option(cli_run_options_t *o, int option, const char *text) {
    switch (option) {
    case OPTION_DEVICE:
        o->device.name = text;
        return true;
    case OPTION_LATENCY:
        o->device.latency = text;
        return true;
    case OPTION_CONF:
        o->replay.conf = text;
        return true;
    case OPTION_STRICT:
        o->replay.stops_at_hazard = true;
        return true;
    case OPTION_JSON:
        o->is_json = true;
        return true;
    case OPTION_SERIES:
        o->series_path = text;
        return true;
    case OPTION_CAPACITY:
        return cli_parse_bytes(text, &o->device.capacity_bytes);
    case OPTION_LIMIT:
        return cli_parse_bytes(text, &o->replay.limit_bytes);
    case OPTION_WITH_FAILED:
        o->with_failed = true;
        return true;
    case OPTION_REQUESTS_UP_TO:
        return cli_parse_bytes(text, &o->requests_up_to_bytes);
    case OPTION_CHECK:
        return parse_check(o, text);
    default:
        return parse_number(o, option, text);
    }
}

static int parse_arguments(cli_run_options_t *o, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    int index = 0;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, &index)) != -1;) {
        if (c == ':')
            return cli_fail(o->command, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(o->command, "no option '%s'; see berm %s --help", argv[optind - 1],
                            o->command);
        if (c == OPTION_ALLOCATOR) {
            if (!cli_parse_allocators(o->command, optarg, false, o->allocators, CLI_ALLOCATORS_MAX,
                                      &o->allocator_count))
                return CLI_BAD;
        } else if (!parse_option(o, c, optarg)) {
            return cli_fail(o->command, "--%s does not take '%s'; see berm %s --help",
                            long_options[index].name, optarg, o->command);
        }
    }
    if (!cli_run_conf_check(o->command, o->replay.conf, o->replay.headroom_pct,
                            o->replay.limit_bytes != UINT64_MAX))
        return CLI_BAD;
    o->paths = argv + optind;
    o->path_count = (size_t)(argc - optind);
    if (o->path_count == 0)
        return cli_fail(o->command, "no TRACE given; see berm %s --help", o->command);
    if (o->path_count > CLI_TRACES_MAX)
        return cli_fail(o->command, "more than %d traces", CLI_TRACES_MAX);
    return CLI_OK;
}

// A trace as it is to be replayed: as recorded, or in part, or dealt over other streams.
static trace_t *trace_open(const cli_run_options_t *o, const char *path, char *error,
                           size_t error_capacity) {
    trace_t *trace = trace_read(path, &o->read, error, error_capacity), *whole = trace;
    if (trace != NULL && o->with_failed) {
        trace = trace_select_failed(whole, error, error_capacity);
        trace_destroy(whole);
        whole = trace;
    }
    if (trace != NULL && o->requests_up_to_bytes != 0) {
        trace = trace_select_small(whole, o->requests_up_to_bytes, error, error_capacity);
        trace_destroy(whole);
        whole = trace;
    }
    if (trace != NULL && o->streams != 0) {
        trace = trace_deal(whole, o->streams, o->replay.work.seed, error, error_capacity);
        trace_destroy(whole);
    }
    return trace;
}

static int series_open(cli_run_options_t *o) {
    if (o->series_path == NULL)
        return CLI_OK;
    if (strcmp(o->command, "replay") != 0 || o->path_count != 1 || o->allocator_count != 1)
        return cli_fail(o->command, "--series is for a replay of one trace by one allocator");
    o->replay.series = fopen(o->series_path, "w");
    if (o->replay.series == NULL)
        return cli_fail(o->command, "%s: %s", o->series_path, strerror(errno));
    return CLI_OK;
}

// Whether this process is to do without a trace: it was started for one replay of another.
static bool is_left_out(const cli_run_options_t *o, size_t number) {
    stress_child_order_t order;
    if (!stress_child_order(&order))
        return false;
    for (size_t i = 0; i < number; i++)
        if (o->traces[i] != NULL)
            return true; // the same path twice
    return strcmp(order.trace, o->paths[number]) != 0;
}

// This process was started for one replay (stress/child.h): it makes it and ends.
static BERM_NORETURN void child_run(cli_run_options_t *o, const stress_child_order_t *order) {
    char error[512] = "no such trace", what[128];
    stress_replay_result_t result;
    int status = -1;
    (void)snprintf(what, sizeof what, "%s", order->allocator);
    o->replay.ops = stress_allocator_find(order->allocator);
    o->replay.capacity_bytes = order->capacity_bytes;
    o->replay.progress = cli_show_progress;
    o->replay.progress_context = what;
    for (size_t i = 0; i < o->path_count && o->replay.ops != NULL; i++)
        if (o->traces[i] != NULL)
            status = stress_replay(o->traces[i], &o->replay, &result, error, sizeof error);
    cli_progress_end();
    bool is_written = o->replay.series == NULL || fflush(o->replay.series) == 0;
    if (!is_written)
        (void)cli_fail(o->command, "%s: %s", o->series_path, strerror(errno));
    // What the allocator left in the process is not taken down: the end of the process does it.
    bool is_answered = stress_child_answer(status, &result, error) == 0;
    _exit(is_written && is_answered ? CLI_OK : CLI_BAD);
}

void cli_run_print_trace(const trace_t *trace) {
    (void)printf("%s: %s, %zu events, %zu allocs, %zu streams, peak live %.1f MiB", trace->path,
                 trace->format, trace->event_count, trace->alloc_count, trace->stream_count,
                 cli_mib(trace->peak_live_bytes));
    if (trace->source_reserved_peak_bytes > 0)
        (void)printf(", reserved when recorded %.0f MiB",
                     cli_mib(trace->source_reserved_peak_bytes));
    (void)printf("\n\n");
}

int cli_run_open(cli_run_options_t *options, const char *command, int argc, char **argv) {
    cli_environment_forget();
    memset(options, 0, sizeof *options);
    options->command = command;
    options->allocators[0] = stress_allocators[0];
    options->allocator_count = 1;
    options->read.scale = 1;
    options->read.device = -1;
    stress_replay_options_default(&options->replay);
    int status = parse_arguments(options, argc, argv);
    if (status != CLI_OK)
        return status;
    char error[512] = "";
    for (size_t i = 0; i < options->path_count; i++) {
        if (is_left_out(options, i))
            continue;
        cli_progress(options->paths[i], i, options->path_count);
        options->traces[i] = trace_open(options, options->paths[i], error, sizeof error);
        if (options->traces[i] == NULL)
            return cli_fail(command, "%s", error);
    }
    cli_progress_end();
    if (stress_device_open(&options->device, error, sizeof error) != 0)
        return cli_fail(command, "%s", error);
    status = series_open(options);
    stress_child_order_t order;
    if (status == CLI_OK && stress_child_order(&order))
        child_run(options, &order);
    if (status == CLI_OK)
        cli_run_headroom_warn(command, options->replay.headroom_pct, options->allocators,
                              options->allocator_count);
    return status;
}

int cli_run_close(cli_run_options_t *options) {
    int status = CLI_OK;
    for (size_t i = 0; i < options->path_count && i < CLI_TRACES_MAX; i++)
        if (options->traces[i] != NULL)
            trace_destroy(options->traces[i]);
    if (options->replay.series != NULL && fclose(options->replay.series) != 0)
        status = cli_fail(options->command, "%s: %s", options->series_path, strerror(errno));
    stress_device_close();
    cli_progress_end();
    return status;
}

void cli_run_help_allocators(void) {
    (void)fputs("\nAllocators:\n", stdout);
    for (size_t i = 0; stress_allocators[i] != NULL; i++)
        (void)printf("  %-16s %s\n", stress_allocators[i]->name, stress_allocators[i]->summary);
    (void)printf("  %-16s %s\n", "lib:FILE",
                 "a library with my_malloc(size, device, stream) and my_free(ptr, size,\n"
                 "                   device, stream); lib:FILE:ALLOC:FREE names others");
}
