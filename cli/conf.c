// SPDX-License-Identifier: Apache-2.0
// berm conf: every option of berm, from the library's own table, and the values that the
// environment gives. For these berm is started, on the simulated device, so that no GPU is needed
// nor touched. The option `driver` is overruled by that: its value is read from the text here.
#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "berm_introspect.h"
#include "cli/cli.h"
#include "stress/device.h"

enum {
    OPTION_JSON = 256,
    VALUE_CAPACITY = 512,
    FILE_CAPACITY = (1 << 14) + 1, // larger ones the library refuses
    TEXT_WIDTH = 72,
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

// The last driver:VALUE of a text of options; false where there is none.
static bool driver_of(const char *text, char *value) {
    bool is_found = false;
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ",\n");
        const char *end = text + length, *at = text;
        while (at < end && isspace((unsigned char)*at))
            at++;
        const char *colon = at < end ? memchr(at, ':', (size_t)(end - at)) : NULL;
        if (colon != NULL && strncmp(at, "driver", 6) == 0 &&
            strspn(at + 6, " \t") == (size_t)(colon - at) - 6) {
            at = colon + 1 + strspn(colon + 1, " \t");
            while (end > at && isspace((unsigned char)end[-1]))
                end--;
            is_found = true;
            (void)snprintf(value, VALUE_CAPACITY, "%.*s", (int)(end - at), at);
        }
        text += length + (text[length] != '\0');
    }
    return is_found;
}

static void driver_read(char *value) {
    char path[VALUE_CAPACITY] = "", text[FILE_CAPACITY];
    if (driver_of(getenv("BERM_CONF"), value))
        return;
    const char *named = getenv("BERM_CONF_FILE");
    if (berm_option_get("conf_file", path, sizeof path) == BERM_OK && path[0] == '\0')
        (void)snprintf(path, sizeof path, "%s", named != NULL ? named : "");
    FILE *file = path[0] != '\0' ? fopen(path, "r") : NULL;
    if (file == NULL)
        return;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    (void)driver_of(text, value);
}

// An option's value now; false where it is not known.
static bool value_read(const berm_option_info_t *info, char value[VALUE_CAPACITY]) {
    if (strcmp(info->name, "driver") != 0)
        return berm_option_get(info->name, value, VALUE_CAPACITY) == BERM_OK;
    (void)snprintf(value, VALUE_CAPACITY, "%s", info->default_value);
    driver_read(value);
    return true;
}

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
        if (value_read(info, value))
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
        if (value_read(info, value) && strcmp(value, info->default_value) != 0)
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
    char error[512] = "";
    const stress_device_options_t device = {.name = "sim"};
    if (stress_device_open(&device, error, sizeof error) != 0)
        return cli_fail(argv[0], "%s", error);
    int status = CLI_OK;
    berm_status_t started = berm_init("driver:libcuda.so.1");
    if (started == BERM_ERROR_OPTION_UNKNOWN || started == BERM_ERROR_OPTION_VALUE)
        status = cli_fail(argv[0], "%s", ""); // logged by the library
    else if (started != BERM_OK)
        status = cli_fail(argv[0], "%s", berm_error_message());
    else if (is_json)
        print_json();
    else
        print_table();
    (void)berm_shutdown(NULL);
    stress_device_close();
    return status;
}

const cli_command_t cli_conf = {
    .name = "conf",
    .summary = "list every option of berm",
    .help = "usage: berm conf [--json]\n\n"
            "Lists every option that BERM_CONF=\"key:value,key:value\" and berm_init take: kind,\n"
            "range, default, what it does, and the value that the environment (BERM_CONF,\n"
            "BERM_CONF_FILE) gives it now. No GPU is needed. Exit status 2: the environment has\n"
            "a bad value.\n\n"
            "  --json  one JSON object on standard output\n",
    .run = conf_run,
};
