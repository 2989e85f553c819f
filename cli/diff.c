// SPDX-License-Identifier: Apache-2.0
// berm diff: what lives in one recording and did not in an earlier one of the same process, by tag
// and size.
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "stress/trace/recording.h"

// Blocks of one device, tag and size.
typedef struct group {
    int device;
    const char *tag; // of the second recording
    uint64_t each_bytes, blocks;
    uint64_t gone; // of the first that are not in the second
} group_t;

typedef struct groups {
    group_t *at;
    size_t count, capacity;
    uint64_t grown_bytes, gone_bytes;
} groups_t;

static int compare_blocks(const void *one, const void *other) {
    const berm_record_block_t *a = one, *b = other;
    if (a->addr != b->addr)
        return a->addr < b->addr ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

// Live blocks first, sorted by address; how many.
static uint64_t live_sort(berm_record_device_t *device) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_LIVE)
            device->blocks[count++] = device->blocks[i];
    if (count > 0)
        qsort(device->blocks, count, sizeof *device->blocks, compare_blocks);
    return count;
}

static group_t *group_of(groups_t *groups, int device, const char *tag, uint64_t each_bytes) {
    for (size_t i = 0; i < groups->count; i++) {
        group_t *group = &groups->at[i];
        if (group->device == device && group->each_bytes == each_bytes &&
            strcmp(group->tag, tag) == 0)
            return group;
    }
    if (groups->count == groups->capacity) {
        size_t capacity = groups->capacity == 0 ? 64 : 2 * groups->capacity;
        group_t *moved = realloc(groups->at, capacity * sizeof *moved);
        if (moved == NULL)
            return NULL;
        groups->at = moved;
        groups->capacity = capacity;
    }
    groups->at[groups->count] = (group_t){device, tag, each_bytes, 0, 0};
    return &groups->at[groups->count++];
}

static bool block_count(groups_t *groups, int device, const char *tag,
                        const berm_record_block_t *block, bool is_new) {
    group_t *group = group_of(groups, device, tag, block->requested_bytes);
    if (group == NULL)
        return false;
    *(is_new ? &group->blocks : &group->gone) += 1;
    *(is_new ? &groups->grown_bytes : &groups->gone_bytes) += block->requested_bytes;
    return true;
}

// A block is the same if it has the same address and request number.
static bool device_diff(groups_t *groups, const berm_record_t *first, berm_record_device_t *before,
                        const berm_record_t *second, berm_record_device_t *after) {
    uint64_t i = 0, j = 0;
    uint64_t old_count = before != NULL ? live_sort(before) : 0, new_count = live_sort(after);
    while (i < old_count || j < new_count) {
        int order = i == old_count   ? 1
                    : j == new_count ? -1
                                     : compare_blocks(&before->blocks[i], &after->blocks[j]);
        const berm_record_block_t *block = order < 0 ? &before->blocks[i] : &after->blocks[j];
        const char *tag = (order < 0 ? first : second)->tags[block->tag];
        if (order != 0 && !block_count(groups, after->ordinal, tag, block, order > 0))
            return false;
        i += order <= 0;
        j += order >= 0;
    }
    return true;
}

static bool groups_make(groups_t *groups, berm_record_t *first, berm_record_t *second) {
    for (unsigned i = 0; i < second->device_count; i++) {
        berm_record_device_t *after = &second->devices[i], *before = NULL;
        for (unsigned at = 0; at < first->device_count; at++)
            if (first->devices[at].ordinal == after->ordinal)
                before = &first->devices[at];
        if (!device_diff(groups, first, before, second, after))
            return false;
    }
    return true;
}

static int compare_groups(const void *one, const void *other) {
    const group_t *a = one, *b = other;
    uint64_t a_bytes = a->blocks * a->each_bytes, b_bytes = b->blocks * b->each_bytes;
    return a_bytes > b_bytes ? -1 : a_bytes < b_bytes;
}

static void print_text(const groups_t *groups) {
    (void)printf("came and live: %.1f MiB; gone: %.1f MiB; %+.1f MiB in all\n",
                 cli_mib(groups->grown_bytes), cli_mib(groups->gone_bytes),
                 cli_mib(groups->grown_bytes) - cli_mib(groups->gone_bytes));
    for (size_t i = 0; i < groups->count; i++) {
        const group_t *group = &groups->at[i];
        if (group->blocks > 0)
            (void)printf("  %8.1f MiB: device %d, %" PRIu64 " block%s of %" PRIu64
                         " bytes%s%s%s (%" PRIu64 " such are gone)\n",
                         cli_mib(group->blocks * group->each_bytes), group->device, group->blocks,
                         BERM_PLURAL(group->blocks), group->each_bytes,
                         *group->tag != '\0' ? ", tag '" : "", group->tag,
                         *group->tag != '\0' ? "'" : "", group->gone);
    }
}

static void print_json(const groups_t *groups) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_u64(&emit, "grown_bytes", groups->grown_bytes);
    berm__emit_u64(&emit, "gone_bytes", groups->gone_bytes);
    berm__emit_array_begin(&emit, "groups");
    for (size_t i = 0; i < groups->count; i++) {
        const group_t *group = &groups->at[i];
        berm__emit_object_begin(&emit, NULL);
        berm__emit_u64(&emit, "device", (uint64_t)group->device);
        berm__emit_string(&emit, "tag", group->tag);
        berm__emit_u64(&emit, "each_bytes", group->each_bytes);
        berm__emit_u64(&emit, "came", group->blocks);
        berm__emit_u64(&emit, "gone", group->gone);
        berm__emit_object_end(&emit);
    }
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

static int diff_files(const char *command, char **paths, bool is_json) {
    char error[512] = "";
    groups_t groups = {0};
    berm_record_t *first = recording_load(paths[0], error, sizeof error);
    berm_record_t *second = first != NULL ? recording_load(paths[1], error, sizeof error) : NULL;
    int status = CLI_OK;
    if (second == NULL)
        status = cli_fail(command, "%s", error);
    else if (first->pid != second->pid)
        status = cli_fail(command,
                          "%s is of process %llu, %s of %llu: their blocks have nothing "
                          "to do with each other",
                          paths[0], (unsigned long long)first->pid, paths[1],
                          (unsigned long long)second->pid);
    else if (!groups_make(&groups, first, second))
        status = cli_fail(command, "no memory");
    if (status == CLI_OK) {
        if (groups.count > 0)
            qsort(groups.at, groups.count, sizeof *groups.at, compare_groups);
        (is_json ? print_json : print_text)(&groups);
        status = groups.grown_bytes > groups.gone_bytes ? CLI_FINDING : CLI_OK;
    }
    free(groups.at);
    recording_free(first);
    recording_free(second);
    return status;
}

static int diff_run(int argc, char **argv) {
    static const struct option long_options[] = {{"json", no_argument, NULL, 'j'},
                                                 {NULL, 0, NULL, 0}};
    bool is_json = false;
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":j", long_options, NULL)) != -1;) {
        if (c != 'j')
            return cli_fail(argv[0], "no option '%s'; see berm diff --help", argv[optind - 1]);
        is_json = true;
    }
    if (argc - optind != 2)
        return cli_fail(argv[0], "two recordings are compared; see berm diff --help");
    return diff_files(argv[0], argv + optind, is_json);
}

const cli_command_t cli_diff = {
    .name = "diff",
    .summary = "say what lives in one recording and did not in an earlier one",
    .help = "usage: berm diff A B [--json]\n\n"
            "A and B are recordings of one process (berm_trace_write, option recording), A the\n"
            "earlier. Says by tag and size which blocks came and live, and how many of their like\n"
            "are gone.\n\n"
            "  -j, --json  one JSON object\n\n"
            "Exit status: 1 where more came than went; 0 where not; 2 on bad usage or bad input.\n",
    .run = diff_run,
};
