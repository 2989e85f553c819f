// SPDX-License-Identifier: Apache-2.0
// berm export: a recording in the forms of other tools. The writers are allocator/record.
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "stress/trace/recording.h"

typedef struct form {
    const char *name;
    void (*write)(const berm_record_t *record, berm_emit_write_fn write, void *context);
    void (*write_device)(const berm_record_t *record, const berm_record_device_t *device,
                         berm_emit_write_fn write, void *context);
} form_t;

static const form_t forms[] = {
    {"pytorch", berm__record_write_pytorch, NULL}, {"rmm", NULL, berm__record_write_rmm},
    {"replay", NULL, berm__record_write_replay},   {"csv", berm__record_write_csv, NULL},
    {"chrome", berm__record_write_chrome, NULL},   {"recording", berm__record_write_json, NULL},
};

typedef struct arguments {
    const form_t *form;
    const char *input, *output;
    int device; // -1: the only one
} arguments_t;

static const struct option long_options[] = {
    {"format", required_argument, NULL, 'f'},
    {"output", required_argument, NULL, 'o'},
    {"device", required_argument, NULL, 'd'},
    {NULL, 0, NULL, 0},
};

static bool parse_value(arguments_t *a, int option, const char *text) {
    uint64_t number;
    if (option == 'o') {
        a->output = text;
        return true;
    }
    if (option == 'd') {
        if (!cli_parse_u64(text, 0, BERM_RECORD_DEVICES_MAX - 1, &number))
            return cli_fail("export", "--device '%s' is no device number", text) == CLI_OK;
        a->device = (int)number;
        return true;
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(forms); i++)
        if (strcmp(forms[i].name, text) == 0)
            a->form = &forms[i];
    return (a->form != NULL && strcmp(a->form->name, text) == 0) ||
           cli_fail("export", "no format '%s'; see berm export --help", text) == CLI_OK;
}

static int parse_arguments(arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":f:o:d:", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm export --help", argv[optind - 1]);
        if (!parse_value(a, c, optarg))
            return CLI_BAD;
    }
    if (argc - optind != 1)
        return cli_fail(argv[0], "%s",
                        argc == optind ? "no FILE given; see berm export --help"
                                       : "more than one FILE given; see berm export --help");
    a->input = argv[optind];
    return a->form != NULL ? CLI_OK
                           : cli_fail(argv[0], "no --format given; see berm export --help");
}

// The device asked for, or the only one; NULL after a line.
static const berm_record_device_t *device_find(const arguments_t *a, const berm_record_t *record) {
    for (unsigned i = 0; i < record->device_count; i++)
        if (a->device == record->devices[i].ordinal || (a->device < 0 && record->device_count == 1))
            return &record->devices[i];
    (void)cli_fail("export",
                   a->device < 0 ? "%s: has %u devices, and this format one: add --device"
                                 : "%s: has nothing of that device, but of %u",
                   a->input, record->device_count);
    return NULL;
}

static int write_form(const arguments_t *a, const berm_record_t *record, FILE *file) {
    const berm_record_device_t *device = NULL;
    if (a->form->write_device != NULL) {
        device = device_find(a, record);
        if (device == NULL)
            return CLI_BAD;
        a->form->write_device(record, device, berm__emit_write_file, file);
    } else {
        a->form->write(record, berm__emit_write_file, file);
    }
    return CLI_OK;
}

static int export_run(int argc, char **argv) {
    arguments_t a = {.device = -1};
    char error[512] = "";
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    berm_record_t *record = recording_load(a.input, error, sizeof error);
    if (record == NULL)
        return cli_fail(argv[0], "%s", error);
    FILE *file = a.output != NULL ? fopen(a.output, "wb") : stdout;
    if (file == NULL) {
        status = cli_fail(argv[0], "%s: %s", a.output, strerror(errno));
    } else {
        status = write_form(&a, record, file);
        if (file != stdout && (ferror(file) != 0) + (fclose(file) != 0) != 0)
            status = cli_fail(argv[0], "%s: %s", a.output, strerror(errno));
    }
    recording_free(record);
    return status;
}

const cli_command_t cli_export = {
    .name = "export",
    .summary = "write a recording in the form of another tool",
    .help =
        "usage: berm export FILE --format FORMAT [-o OUT] [--device N]\n\n"
        "FILE is a recording of berm's (option recording, berm record, berm_trace_write), gzip or\n"
        "not. It has the last events of each device and the blocks at their end.\n\n"
        "  -f, --format FORMAT\n"
        "        pytorch    a memory snapshot: for torch.cuda._memory_viz and PyTorch's viewer\n"
        "        rmm        the log of RMM's logging adaptor, of one device\n"
        "        replay     event CSV, of one device: for berm replay, fit and plot\n"
        "        csv        a line for each event with all that is known of it\n"
        "        chrome     JSON for Perfetto: live and mapped bytes over time, failures, marks\n"
        "        recording  the same form again\n"
        "  -o, --output OUT  where to write; standard output\n"
        "  -d, --device N    which device, where the format has one; needed if FILE has several\n",
    .run = export_run,
};
