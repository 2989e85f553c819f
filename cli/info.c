// SPDX-License-Identifier: Apache-2.0
// berm info: devices and their capabilities, as libberm sees them through its public API.
// Without a driver it says so and ends with 0: that is an answer.
#include <getopt.h>
#include <string.h>

#include "berm_introspect.h"
#include "cli/cli.h"
#include "stress/device.h"

enum {
    OPTION_DEVICE = 256,
    OPTION_CAPACITY,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"capacity", required_argument, NULL, OPTION_CAPACITY},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

typedef struct info_arguments {
    stress_device_options_t device;
    int ordinal; // -1: all
    bool is_json, is_simulated;
} info_arguments_t;

static bool parse_device(info_arguments_t *a, const char *text) {
    uint64_t number = 0;
    a->device.name = text;
    a->is_simulated = strcmp(text, "sim") == 0;
    a->ordinal = -1;
    if (a->is_simulated || strcmp(text, "cuda") == 0)
        return true;
    if (strncmp(text, "cuda:", 5) != 0 || !cli_parse_u64(text + 5, 0, 1023, &number))
        return false;
    a->ordinal = (int)number;
    return true;
}

static int parse_arguments(info_arguments_t *a, int argc, char **argv) {
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        if (c == ':')
            return cli_fail(argv[0], "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_fail(argv[0], "no option '%s'; see berm info --help", argv[optind - 1]);
        if (c == OPTION_JSON)
            a->is_json = true;
        else if (c == OPTION_DEVICE && !parse_device(a, optarg))
            return cli_fail(argv[0], "--device '%s' is not sim, cuda or cuda:N", optarg);
        else if (c == OPTION_CAPACITY && !cli_parse_bytes(optarg, &a->device.capacity_bytes))
            return cli_fail(argv[0], "--capacity '%s' is no size", optarg);
    }
    if (optind < argc)
        return cli_fail(argv[0], "no argument '%s'; see berm info --help", argv[optind]);
    return CLI_OK;
}

static void print_device(berm_emit_t *emit, const berm_device_info_t *info) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_i64(emit, "device", info->device);
    berm__emit_string(emit, "name", info->name);
    berm__emit_bool(emit, "simulated", info->is_simulated != 0);
    berm__emit_u64(emit, "memory_bytes", info->memory_bytes);
    berm__emit_u64(emit, "free_bytes", info->free_bytes);
    berm__emit_bool(emit, "vmm", info->has_vmm != 0);
    berm__emit_u64(emit, "granule_bytes", info->granule_bytes);
    berm__emit_bool(emit, "ctx_event", info->has_ctx_event != 0);
    berm__emit_bool(emit, "rdma", info->has_rdma != 0);
    berm__emit_object_end(emit);
}

static void print_devices_text(const berm_device_info_t *infos, int count) {
    (void)printf("berm %s", berm_version());
    if (count > 0)
        (void)printf(", CUDA driver %d.%d", infos[0].driver_version / 1000,
                     infos[0].driver_version % 1000 / 10);
    (void)printf("\n%s", count == 0 ? "no device\n" : "");
    for (int i = 0; i < count; i++) {
        const berm_device_info_t *info = &infos[i];
        (void)printf("\ndevice %d: %s%s\n", info->device, info->name,
                     info->is_simulated ? " (simulated)" : "");
        (void)printf("  memory     %.0f MiB, ", cli_mib(info->memory_bytes));
        if (info->free_bytes != 0)
            (void)printf("%.0f MiB of it free\n", cli_mib(info->free_bytes));
        else
            (void)printf("what is free of it is not known: no NVML, and no context\n");
        if (info->has_vmm)
            (void)printf("  vmm        yes: virtual memory management, granules of %.1f MiB\n",
                         cli_mib(info->granule_bytes));
        else
            (void)printf("  vmm        no virtual memory management: berm cannot use it\n");
        (void)printf("  ctx_event  %s: cuCtxRecordEvent\n", info->has_ctx_event ? "yes" : "no");
        (void)printf("  rdma       %s: memory for direct access by other devices\n",
                     info->has_rdma ? "yes" : "no");
    }
}

static int fail_status(const char *command, berm_status_t status) {
    if (status == BERM_ERROR_OPTION_UNKNOWN || status == BERM_ERROR_OPTION_VALUE)
        return cli_fail(command, "%s", ""); // logged by the library
    const char *message = berm_error_message();
    return cli_fail(command, "%s", *message != '\0' ? message : berm_status_text(status));
}

static int print_no_driver(const info_arguments_t *a) {
    if (!a->is_json) {
        static const char known[] = "no CUDA driver: ";
        const char *why = berm_error_message();
        if (strncmp(why, known, sizeof known - 1) == 0)
            why += sizeof known - 1;
        (void)printf("no CUDA driver\n%s; `berm info --device sim` shows the simulated one\n", why);
        return CLI_OK;
    }
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_string(&emit, "berm_version", berm_version());
    berm__emit_null(&emit, "driver_version");
    berm__emit_array_begin(&emit, "devices");
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
    return CLI_OK;
}

static int print_devices(const info_arguments_t *a, const char *command, int count) {
    enum {
        DEVICES_MAX = 64
    };
    static berm_device_info_t infos[DEVICES_MAX];
    int first = a->ordinal < 0 ? 0 : a->ordinal;
    int end = a->ordinal < 0 ? count : a->ordinal + 1;
    if (first >= count && count > 0)
        return cli_fail(command, "no device %d; there are %d", first, count);
    end = end < first + DEVICES_MAX ? end : first + DEVICES_MAX;
    for (int i = first; i < end; i++) {
        infos[i - first] = (berm_device_info_t){.size = sizeof infos[0]};
        berm_status_t status = berm_device_info_read(i, &infos[i - first]);
        if (status != BERM_OK)
            return fail_status(command, status);
    }
    if (!a->is_json) {
        print_devices_text(infos, end - first);
        return CLI_OK;
    }
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_string(&emit, "berm_version", berm_version());
    if (end > first)
        berm__emit_i64(&emit, "driver_version", infos[0].driver_version);
    else
        berm__emit_null(&emit, "driver_version");
    berm__emit_array_begin(&emit, "devices");
    for (int i = first; i < end; i++)
        print_device(&emit, &infos[i - first]);
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
    return CLI_OK;
}

static int info_run(int argc, char **argv) {
    info_arguments_t a = {.device = {.name = "cuda"}, .ordinal = -1};
    int status = parse_arguments(&a, argc, argv);
    if (status != CLI_OK)
        return status;
    char error[512] = "";
    if (!a.is_simulated && a.device.capacity_bytes != 0)
        return cli_fail(argv[0], "--capacity is for --device sim only");
    if (a.is_simulated && stress_device_open(&a.device, error, sizeof error) != 0)
        return cli_fail(argv[0], "%s", error);
    int count = 0;
    berm_status_t result = berm_init(a.is_simulated ? "driver:libcuda.so.1" : NULL);
    if (result == BERM_OK)
        result = berm_device_count(&count);
    if (result == BERM_ERROR_NO_DRIVER)
        status = print_no_driver(&a);
    else if (result != BERM_OK)
        status = fail_status(argv[0], result);
    else
        status = print_devices(&a, argv[0], count);
    (void)berm_shutdown(NULL);
    if (a.is_simulated)
        stress_device_close();
    return status;
}

const cli_command_t cli_info = {
    .name = "info",
    .summary = "show devices and what they can do",
    .help = "usage: berm info [OPTION...]\n\n"
            "Shows the CUDA devices and what berm can use of them. Says \"no CUDA driver\" and\n"
            "ends with 0 where there is none.\n\n"
            "  --device cuda[:N]|sim  the system's devices (default), one of them, or the\n"
            "                         simulated one\n"
            "  --capacity BYTES       memory of the simulated device\n"
            "  --json                 one JSON object on standard output\n",
    .run = info_run,
};
