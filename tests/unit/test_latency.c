// SPDX-License-Identifier: Apache-2.0
// Latency files: what they set, and that each mistake is refused with its line.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stress/latency.h"

static simcuda_costs_t costs;
static char error[512];

static int preset(const char *name, simcuda_costs_t *out) {
    static const char *const names[] = {"fast", "typical", "slow"};
    for (uint64_t i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            memset(out, 0, sizeof *out);
            out->map.base_ns = 10 + i;
            return 0;
        }
    }
    return -1;
}

static int read_text(const char *text) {
    char path[] = "/tmp/berm-latency-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
    error[0] = '\0';
    int status = stress_latency_read(path, preset, &costs, error, sizeof error);
    (void)unlink(path);
    return status;
}

Test(latency, takes_presets) {
    cr_assert(stress_latency_read("slow", preset, &costs, error, sizeof error) == 0);
    cr_assert(costs.map.base_ns == 12);
}

Test(latency, takes_files) {
    cr_assert(read_text("# measured\n\npreset = slow\n create.base_ns=193000 # each\r\n"
                        "free.ns_per_mib=7\nset_access.per_mapping_ns=0") == 0);
    cr_assert(costs.map.base_ns == 12);
    cr_assert(costs.create.base_ns == 193000);
    cr_assert(costs.free_.ns_per_mib == 7);
    cr_assert(read_text("") == 0);
    cr_assert(costs.map.base_ns == 11, "typical is what a file starts from");
}

Test(latency, refuses_mistakes_with_their_line) {
    static const char *const bad[] = {
        "create.base_ns",
        "create.base=1",
        "created.base_ns=1",
        "create.base_ns=",
        "create.base_ns=-1",
        "create.base_ns=1.5",
        "create.base_ns=1000000000001",
        "create.base_ns=99999999999999999999",
        "preset=faster",
        "=",
        "base_ns=1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, "\n%s\n", bad[i]);
        cr_assert(read_text(text) == -1, "%s", bad[i]);
        cr_assert(strstr(error, ":2: ") != NULL, "%s: %s", bad[i], error);
    }
    char text[600];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    cr_assert(read_text(text) == -1);
    cr_assert(strstr(error, ":1: line longer") != NULL);
}

Test(latency, refuses_missing_files) {
    cr_assert(stress_latency_read("/nonexistent/x", preset, &costs, error, sizeof error) == -1);
    cr_assert(strstr(error, "/nonexistent/x") != NULL);
}
