// SPDX-License-Identifier: Apache-2.0
// berm conf: every option of berm, from the library's own table.
#include <getopt.h>
#include <string.h>

#include "berm_introspect.h"
#include "cli/cli.h"

enum {
    OPTION_JSON = 256,
    VALUE_CAPACITY = 512,
    TEXT_WIDTH = 72,
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

static void print_json(void) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_array_begin(&emit, "options");
    const berm_option_info_t *info;
    for (size_t i = 0; (info = berm_option_info(i)) != NULL; i++) {
        char value[VALUE_CAPACITY];
        berm__emit_object_begin(&emit, NULL);
        berm__emit_string(&emit, "name", info->name);
        berm__emit_string(&emit, "kind", info->kind);
        berm__emit_string(&emit, "default", info->default_value);
        berm__emit_string(&emit, "range", info->range);
        berm__emit_bool(&emit, "runtime", info->is_runtime != 0);
        berm__emit_string(&emit, "text", info->text);
        if (berm_option_get(info->name, value, sizeof value) == BERM_OK)
            berm__emit_string(&emit, "value", value);
        else
            berm__emit_null(&emit, "value");
        berm__emit_object_end(&emit);
    }
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

// Breaks the sentence between words.
static void print_text(const char *text) {
    while (*text != '\0') {
        size_t length = strlen(text);
        if (length > TEXT_WIDTH) {
            length = TEXT_WIDTH;
            while (length > 0 && text[length] != ' ')
                length--;
            if (length == 0)
                length = TEXT_WIDTH;
        }
        (void)printf("    %.*s\n", (int)length, text);
        text += length;
        text += strspn(text, " ");
    }
}

static void print_table(void) {
    const berm_option_info_t *info;
    for (size_t i = 0; (info = berm_option_info(i)) != NULL; i++) {
        char value[VALUE_CAPACITY];
        (void)printf("%s  (%s, %s; default %s%s)\n", info->name, info->kind, info->range,
                     *info->default_value != '\0' ? info->default_value : "empty",
                     info->is_runtime ? "; can change at run time" : "");
        print_text(info->text);
        if (berm_option_get(info->name, value, sizeof value) == BERM_OK &&
            strcmp(value, info->default_value) != 0)
            (void)printf("    now: %s\n", value);
    }
}

static int conf_run(int argc, char **argv) {
    bool is_json = false;
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        if (c != OPTION_JSON)
            return cli_fail(argv[0], "no option '%s'; see berm conf --help", argv[optind - 1]);
        is_json = true;
    }
    if (optind < argc)
        return cli_fail(argv[0], "no argument '%s'; see berm conf --help", argv[optind]);
    if (is_json)
        print_json();
    else
        print_table();
    return CLI_OK;
}

const cli_command_t cli_conf = {
    .name = "conf",
    .summary = "list every option of berm",
    .help = "usage: berm conf [--json]\n\n"
            "Lists every option that BERM_CONF=\"key:value,key:value\" and berm_init take: kind,\n"
            "range, default, what it does, and the value that the environment gives it now.\n\n"
            "  --json  one JSON object on standard output\n",
    .run = conf_run,
};
