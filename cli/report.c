// SPDX-License-Identifier: Apache-2.0
// berm report: why a request failed, from a recording. The rules are allocator/record/verdict.c;
// docs/debugging.md goes from each verdict to its remedy.
#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report.h"
#include "record/history.h"
#include "record/verdict.h"
#include "stress/trace/recording.h"

enum {
    HOLDERS_MAX = 6
};

typedef struct arguments {
    const char *input;
    char path[64]; // of a process
    uint64_t pid;  // that is to be asked; 0: none
    size_t count;  // of FILEs
    bool is_json, has_address;
    uint64_t address;
} arguments_t;

static const struct option long_options[] = {
    {"address", required_argument, NULL, 'a'},
    {"json", no_argument, NULL, 'j'},
    {NULL, 0, NULL, 0},
};

// A number of a process means the file that `berm record` leaves of it, or else what the process
// itself says when it is asked.
static void input_set(arguments_t *a, const char *text) {
    a->input = text;
    if (text[strspn(text, "0123456789")] == '\0' && access(text, F_OK) != 0 &&
        strlen(text) < sizeof a->path - 16) {
        (void)snprintf(a->path, sizeof a->path, "berm.%s.json", text);
        a->input = a->path;
        a->pid = access(a->path, F_OK) != 0 ? strtoull(text, NULL, 10) : 0;
    }
}

static int parse_arguments(arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":a:j", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm report --help", argv[optind - 1]);
        if (c == 'j') {
            a->is_json = true;
            continue;
        }
        char *end;
        a->address = strtoull(optarg, &end, 0);
        a->has_address = true;
        if (!isdigit((unsigned char)*optarg) || *end != '\0')
            return cli_fail(argv[0], "--address '%s' is no address", optarg);
    }
    if (argc == optind)
        return cli_fail(argv[0], "no FILE given; see berm report --help");
    a->count = (size_t)(argc - optind);
    if (a->count > 1 && a->has_address)
        return cli_fail(argv[0], "--address takes one FILE; see berm report --help");
    input_set(a, argv[optind]);
    return CLI_OK;
}

// --- holders -------------------------------------------------------------------------------------

// The kinds of blocks that hold most, most first; how many.
static unsigned holders_find(const berm_history_t *history, uint64_t kinds[HOLDERS_MAX]) {
    unsigned count = 0;
    for (uint64_t i = 0; i < history->kind_count; i++) {
        uint64_t bytes = history->kinds[i].live_bytes;
        unsigned at = count;
        while (at > 0 && history->kinds[kinds[at - 1]].live_bytes < bytes)
            at--;
        if (bytes == 0 || at == HOLDERS_MAX)
            continue;
        count += count < HOLDERS_MAX;
        memmove(&kinds[at + 1], &kinds[at], (count - 1 - at) * sizeof *kinds);
        kinds[at] = i;
    }
    return count;
}

static const berm_record_device_t *device_of(const berm_record_t *record, int ordinal) {
    for (unsigned i = 0; i < record->device_count; i++)
        if (record->devices[i].ordinal == ordinal)
            return &record->devices[i];
    return record->device_count > 0 ? &record->devices[0] : NULL;
}

static void holders_print(const berm_record_t *record, const berm_history_t *history) {
    uint64_t kinds[HOLDERS_MAX];
    unsigned count = holders_find(history, kinds);
    if (count > 0)
        (void)printf("holders:\n");
    for (unsigned i = 0; i < count; i++) {
        const berm_history_kind_t *kind = &history->kinds[kinds[i]];
        const char *tag = record->tags[berm__history_tag(kinds[i])];
        (void)printf("  %8.1f MiB in %" PRIu64 " block%s of at most %.3g MiB%s%s%s\n",
                     cli_mib(kind->live_bytes), kind->live_blocks, BERM_PLURAL(kind->live_blocks),
                     cli_mib(berm__history_size(kinds[i])), *tag != '\0' ? ", tag '" : "", tag,
                     *tag != '\0' ? "'" : "");
    }
}

static void figures_print(const berm_record_device_t *device) {
    const berm_record_figures_t *f = &device->figures;
    uint64_t known = f->reserved + f->driver_free;
    (void)printf("device %d: %.1f MiB, free %.1f, held outside berm %.1f; berm: reserved %.1f, "
                 "live %.1f, cached %.1f",
                 device->ordinal, cli_mib(f->memory), cli_mib(f->driver_free),
                 cli_mib(f->memory > known ? f->memory - known : 0), cli_mib(f->reserved),
                 cli_mib(f->requested), cli_mib(f->cached));
    if (f->limit != UINT64_MAX)
        (void)printf(", limit %.1f", cli_mib(f->limit));
    (void)printf("\nevents: %" PRIu64 "%s\n", device->event_count,
                 device->has_lost ? ", those before them are lost" : "");
}

// --- output --------------------------------------------------------------------------------------

static void print_text(const berm_verdict_t *verdict) {
    (void)printf("verdict: %s (confidence: %s)\n", berm__verdict_name(verdict->kind),
                 verdict->is_high ? "high" : "medium");
    for (unsigned i = 0; i < verdict->line_count; i++)
        (void)printf("  %s\n", verdict->lines[i]);
    (void)printf("next: %s\n", verdict->next);
    for (unsigned i = 0; i < BERM_VERDICT_COUNT; i++)
        if (verdict->may_be[i])
            (void)printf("less likely: %s\n", berm__verdict_name((berm_verdict_kind_t)i));
}

static void print_json(const berm_verdict_t *verdict) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_string(&emit, "verdict", berm__verdict_name(verdict->kind));
    berm__emit_string(&emit, "confidence", verdict->is_high ? "high" : "medium");
    berm__emit_u64(&emit, "device", (uint64_t)verdict->device);
    berm__emit_u64(&emit, "wanted_bytes", verdict->wanted_bytes);
    berm__emit_array_begin(&emit, "evidence");
    for (unsigned i = 0; i < verdict->line_count; i++)
        berm__emit_string(&emit, NULL, verdict->lines[i]);
    berm__emit_array_end(&emit);
    berm__emit_string(&emit, "next", verdict->next);
    berm__emit_array_begin(&emit, "less_likely");
    for (unsigned i = 0; i < BERM_VERDICT_COUNT; i++)
        if (verdict->may_be[i])
            berm__emit_string(&emit, NULL, berm__verdict_name((berm_verdict_kind_t)i));
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

static int report_print(const arguments_t *a, const berm_record_t *record,
                        const berm_verdict_t *verdict) {
    if (a->is_json) {
        print_json(verdict);
    } else {
        print_text(verdict);
        const berm_record_device_t *device = device_of(record, verdict->device);
        berm_history_t history;
        if (device != NULL && berm__history_make(&history, device)) {
            figures_print(device);
            holders_print(record, &history);
            cli_report_sites(record, device);
            berm__history_destroy(&history);
        }
    }
    return verdict->kind == BERM_VERDICT_NONE ? CLI_OK : CLI_FINDING;
}

static int report_run(int argc, char **argv) {
    arguments_t a = {0};
    char error[512] = "";
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    if (a.count > 1)
        return cli_report_ranks(argv[0], argv + optind, a.count, a.is_json);
    berm_record_t *record = a.pid != 0 ? cli_report_live(a.pid, error, sizeof error)
                                       : recording_load(a.input, error, sizeof error);
    if (record == NULL)
        return cli_fail(argv[0], "%s", error);
    berm_verdict_t verdict;
    bool is_good = true;
    if (a.has_address)
        berm__verdict_address(record, a.address, &verdict);
    else
        is_good = berm__verdict_find(record, &verdict);
    status = is_good ? report_print(&a, record, &verdict) : cli_fail(argv[0], "no memory");
    recording_free(record);
    return status;
}

const cli_command_t cli_report = {
    .name = "report",
    .summary = "say why a request failed, from a recording",
    .help =
        "usage: berm report FILE|PID [--address ADDRESS] [--json]\n"
        "       berm report FILE FILE... [--json]\n\n"
        "FILE is a recording that berm wrote when a request failed (berm record, or the option\n"
        "recording); PID stands for berm.PID.json or, where that is not there, for the process,\n"
        "which is asked for a recording: one of yours that berm run has started, or that has\n"
        "live_page:on in BERM_CONF. The first line names the kind of failure:\n"
        "real shortage, peak, leak, hidden retention, fragmentation, cache held elsewhere,\n"
        "outside, mislabelled; then come the evidence, what to do, and who holds the memory.\n"
        "docs/debugging.md has a page on each.\n\n"
        "Several FILEs are those of the processes of one job, written with %r in the name\n"
        "(recording:rank%r.json): it says which rank failed first, by the hosts' clocks, why,\n"
        "and which ranks hold a fifth more or less than most.\n\n"
        "  -a, --address ADDRESS  instead: whose an address was that a kernel used (illegal\n"
        "                         access): in which block, freed when and by whom\n"
        "  -j, --json             one JSON object\n\n"
        "Exit status: 0 where nothing failed; 1 with a verdict; 2 on bad usage or bad input.\n",
    .run = report_run,
};
