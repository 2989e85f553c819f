// SPDX-License-Identifier: Apache-2.0
// berm top: what the processes that use berm hold now, from their live pages (host/live.h). It asks
// nothing of them: a process that hangs, or was killed, shows what it held last.
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "cli/cli.h"
#include "host/live.h"

enum {
    OPTION_ONCE = 256,
    OPTION_JSON,
    OPTION_INTERVAL,
    OPTION_CLEAN,
    PROCESSES_MAX = 256,
};

static const struct option long_options[] = {
    {"once", no_argument, NULL, OPTION_ONCE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"interval", required_argument, NULL, OPTION_INTERVAL},
    {"clean", no_argument, NULL, OPTION_CLEAN},
    {NULL, 0, NULL, 0},
};

typedef struct top_arguments {
    bool is_once, is_json, cleans;
    uint64_t interval_ms;
    uint64_t pid; // 0: all
} top_arguments_t;

// The pages there are, by process number.
typedef struct top_view {
    size_t count;
    berm_live_page_t pages[PROCESSES_MAX];
} top_view_t;

static int parse_arguments(top_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm top --help", argv[optind - 1]);
        if (c == OPTION_INTERVAL && !cli_parse_u64(optarg, 50, 3600000, &a->interval_ms))
            return cli_fail(argv[0], "--interval '%s' is no number of milliseconds from 50",
                            optarg);
        a->is_once = a->is_once || c == OPTION_ONCE;
        a->is_json = a->is_json || c == OPTION_JSON;
        a->cleans = a->cleans || c == OPTION_CLEAN;
    }
    if (optind < argc && (!cli_parse_u64(argv[optind], 1, INT32_MAX, &a->pid) || optind + 1 < argc))
        return cli_fail(argv[0], "'%s' is no process number; see berm top --help", argv[argc - 1]);
    return CLI_OK;
}

// --- reading -------------------------------------------------------------------------------------

static int page_order(const void *a, const void *b) {
    const berm_live_page_t *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

static int view_read(const char *command, const top_arguments_t *a, top_view_t *view) {
    const char *folder = berm__live_folder();
    DIR *listing = opendir(folder);
    view->count = 0;
    if (listing == NULL)
        return cli_fail(command, "%s: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(listing)) != NULL && view->count < PROCESSES_MAX;) {
        char path[PATH_MAX];
        berm_live_page_t *page = &view->pages[view->count];
        if (strncmp(entry->d_name, BERM_LIVE_PREFIX, strlen(BERM_LIVE_PREFIX)) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!berm__live_read(path, page))
            continue;
        bool is_wanted = a->pid == 0 || page->pid == a->pid;
        if (is_wanted && a->cleans && !berm__live_is_running(page))
            (void)unlink(path);
        else
            view->count += is_wanted;
    }
    (void)closedir(listing);
    qsort(view->pages, view->count, sizeof view->pages[0], page_order);
    return CLI_OK;
}

static const berm_live_page_t *view_find(const top_view_t *view, const berm_live_page_t *page) {
    for (size_t i = 0; i < view->count; i++)
        if (view->pages[i].pid == page->pid && view->pages[i].started == page->started)
            return &view->pages[i];
    return NULL;
}

// --- showing -------------------------------------------------------------------------------------

static uint64_t age_ms(const berm_live_page_t *page) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return now_ns > page->updated_ns ? (now_ns - page->updated_ns) / 1000000 : 0;
}

static void print_device(berm_emit_t *emit, const berm_live_device_t *d) {
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"device", d->device},
        {"memory_bytes", d->memory_bytes},
        {"requested_bytes", d->requested_bytes},
        {"requested_peak_bytes", d->requested_peak_bytes},
        {"allocated_bytes", d->allocated_bytes},
        {"allocated_peak_bytes", d->allocated_peak_bytes},
        {"active_bytes", d->active_bytes},
        {"reserved_bytes", d->reserved_bytes},
        {"reserved_peak_bytes", d->reserved_peak_bytes},
        {"cached_bytes", d->cached_bytes},
        {"limit_bytes", d->limit_bytes},
        {"largest_free_bytes", d->largest_free_bytes},
        {"blocks", d->blocks},
        {"requests", d->requests},
        {"frees", d->frees},
        {"pools", d->pools},
        {"moved_bytes", d->moved_bytes},
        {"host_waits", d->host_waits},
        {"out_of_memory", d->out_of_memory},
        {"requests_per_s", d->requests_per_s},
        {"frees_per_s", d->frees_per_s},
    };
    berm__emit_object_begin(emit, NULL);
    for (size_t k = 0; k < BERM_ARRAY_LENGTH(fields); k++)
        if (fields[k].value == UINT64_MAX) // no limit
            berm__emit_null(emit, fields[k].name);
        else
            berm__emit_u64(emit, fields[k].name, fields[k].value);
    // The share of what is cached that is not in the largest free block.
    if (d->cached_bytes > 0)
        berm__emit_double(emit, "fragmentation",
                          1 - (double)berm__min_u64(d->largest_free_bytes, d->cached_bytes) /
                                  (double)d->cached_bytes,
                          4);
    else
        berm__emit_null(emit, "fragmentation");
    berm__emit_object_end(emit);
}

static void print_pool(berm_emit_t *emit, const berm_live_pool_t *pool) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_u64(emit, "device", pool->device);
    berm__emit_u64(emit, "id_high", pool->id_high);
    berm__emit_u64(emit, "id_low", pool->id_low);
    berm__emit_u64(emit, "blocks", pool->blocks);
    berm__emit_u64(emit, "requested_bytes", pool->requested_bytes);
    berm__emit_u64(emit, "allocated_bytes", pool->allocated_bytes);
    berm__emit_u64(emit, "awaited_bytes", pool->awaited_bytes);
    berm__emit_u64(emit, "reserved_bytes", pool->reserved_bytes);
    berm__emit_object_end(emit);
}

static void print_json(const top_view_t *view) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_array_begin(&emit, "processes");
    for (size_t i = 0; i < view->count; i++) {
        const berm_live_page_t *page = &view->pages[i];
        berm__emit_object_begin(&emit, NULL);
        berm__emit_u64(&emit, "pid", page->pid);
        berm__emit_string(&emit, "command", page->command);
        berm__emit_bool(&emit, "running", berm__live_is_running(page));
        berm__emit_u64(&emit, "age_ms", age_ms(page));
        berm__emit_u64(&emit, "driver_calls", page->driver_calls);
        berm__emit_array_begin(&emit, "devices");
        for (uint32_t j = 0; j < page->device_count; j++)
            print_device(&emit, &page->devices[j]);
        berm__emit_array_end(&emit);
        berm__emit_array_begin(&emit, "pools");
        for (uint32_t j = 0; j < page->pool_count; j++)
            print_pool(&emit, &page->pools[j]);
        berm__emit_array_end(&emit);
        berm__emit_u64(&emit, "pools_left_out", page->pools_left_out);
        berm__emit_object_end(&emit);
    }
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

// Requests a second since the last look; "-" at the first.
static void rate_cell(cli_table_t *table, const berm_live_page_t *page,
                      const berm_live_page_t *before, uint32_t row) {
    if (before == NULL || row >= before->device_count || page->updated_ns <= before->updated_ns) {
        cli_table_cell(table, "-");
        return;
    }
    double seconds = (double)(page->updated_ns - before->updated_ns) / 1e9;
    cli_table_cell(table, "%.0f",
                   (double)(page->devices[row].requests - before->devices[row].requests) / seconds);
}

static void print_table(const top_view_t *view, const top_view_t *before) {
    static const char *const names[] = {"pid",
                                        "GPU",
                                        "live\nMiB",
                                        "reserved\nMiB",
                                        "peak\nMiB",
                                        "cached\nMiB",
                                        "largest\nfree MiB",
                                        "blocks",
                                        "requests\n/s",
                                        "waits",
                                        "failed",
                                        "command"};
    static cli_table_t table;
    memset(&table, 0, sizeof table);
    table.columns = BERM_ARRAY_LENGTH(names);
    cli_table_head(&table, names, BERM_ARRAY_LENGTH(names));
    for (size_t i = 0; i < view->count; i++) {
        const berm_live_page_t *page = &view->pages[i];
        const berm_live_page_t *earlier = view_find(before, page);
        const char *state = berm__live_is_running(page) ? "" : "(ended) ";
        for (uint32_t j = 0; j < page->device_count; j++) {
            const berm_live_device_t *d = &page->devices[j];
            cli_table_row(&table);
            cli_table_cell(&table, "%" PRIu64, page->pid);
            cli_table_cell(&table, "%" PRIu64, d->device);
            cli_table_cell(&table, "%.1f", cli_mib(d->requested_bytes));
            cli_table_cell(&table, "%.0f", cli_mib(d->reserved_bytes));
            cli_table_cell(&table, "%.0f", cli_mib(d->reserved_peak_bytes));
            cli_table_cell(&table, "%.1f", cli_mib(d->cached_bytes));
            cli_table_cell(&table, "%.1f", cli_mib(d->largest_free_bytes));
            cli_table_cell(&table, "%" PRIu64, d->blocks);
            rate_cell(&table, page, earlier, j);
            cli_table_cell(&table, "%" PRIu64, d->host_waits);
            cli_table_cell(&table, "%" PRIu64, d->out_of_memory);
            cli_table_cell(&table, "%s%s", state, page->command);
        }
    }
    cli_table_print(&table, stdout);
    if (view->count == 0)
        (void)puts("no process publishes statistics: they are shown of programs that berm run "
                   "starts, or that have BERM_CONF=live_page:on");
}

static int top_run(int argc, char **argv) {
    static top_view_t views[2];
    top_arguments_t a = {.interval_ms = 1000};
    int status = parse_arguments(&a, argc, argv);
    a.is_once = a.is_once || a.is_json || isatty(STDOUT_FILENO) != 1;
    for (unsigned round = 0; status == CLI_OK; round++) {
        top_view_t *view = &views[round % 2];
        status = view_read(argv[0], &a, view);
        if (status != CLI_OK)
            break;
        if (a.pid != 0 && view->count == 0)
            return cli_fail(argv[0], "process %" PRIu64 " publishes no statistics", a.pid);
        if (a.is_json)
            print_json(view);
        else if (!a.is_once)
            (void)fputs("\033[H\033[2J", stdout);
        if (!a.is_json)
            print_table(view, &views[(round + 1) % 2]);
        if (a.is_once || fflush(stdout) != 0)
            break;
        (void)usleep((useconds_t)(a.interval_ms * 1000));
    }
    return status;
}

const cli_command_t cli_top = {
    .name = "top",
    .summary = "show what the processes that use berm hold now",
    .help = "usage: berm top [OPTION...] [PID]\n\n"
            "Shows the processes on this machine that publish statistics, or one of them: those\n"
            "that berm run has started, and those with live_page:on in BERM_CONF. On a terminal\n"
            "until it is interrupted. The pages are files in /dev/shm, or in BERM_LIVE_DIR; a\n"
            "process that was killed leaves its last one.\n\n"
            "  --once          once, and end; so it is where the output is no terminal\n"
            "  --json          one JSON object on standard output, once\n"
            "  --interval MS   between two looks; 1000\n"
            "  --clean         remove the pages of processes that have ended\n\n"
            "With --json each device has its rates since a fifth of a second and its\n"
            "fragmentation (what of the cached bytes is not in the largest free block), and each\n"
            "pool has a row.\n\n"
            "live: bytes asked for. largest free: without what threads have cached. requests/s:\n"
            "since the last look. waits, failed: since the start.\n",
    .run = top_run,
};
