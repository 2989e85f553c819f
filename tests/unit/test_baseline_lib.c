// SPDX-License-Identifier: Apache-2.0
// Allocators in libraries: names, what is missing, and a library that is made here.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defs.h"
#include "stress/baselines/lib.h"
#include "stress/device.h"

static char error[512];

// This program's own pair, found through the simulated driver, which has cuMemAlloc; the loader
// gives a library that is open already.
static const stress_allocator_ops_t *find(const char *symbols) {
    static char name[1024];
    const char *path = getenv("BERM_LIBCUDA_SIM");
    cr_assert(path != NULL, "the build sets BERM_LIBCUDA_SIM");
    (void)snprintf(name, sizeof name, "lib:%s%s", path, symbols);
    return stress_lib_find(name);
}

static stress_allocator_t *create(const stress_allocator_ops_t *ops, const char *conf) {
    const stress_allocator_options_t options = {.conf = conf, .limit_bytes = UINT64_MAX};
    error[0] = '\0';
    return ops->create(&options, error, sizeof error);
}

Test(baseline_lib, knows_its_names) {
    static const char *const bad[] = {"pytorch",    "lib",         "lib:",        "lib::a:b",
                                      "lib:x.so:a", "lib:x.so:a:", "lib:x.so::b", "lib:x.so:a:b:c"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++)
        cr_assert(stress_lib_find(bad[i]) == NULL, "%s", bad[i]);
    const stress_allocator_ops_t *ops = stress_lib_find("lib:./x.so");
    cr_assert(ops != NULL && strcmp(ops->name, "lib:./x.so") == 0);
    cr_assert(stress_lib_find("lib:./x.so") == ops && stress_allocator_find("lib:./x.so") == ops);
    for (char name[] = "lib:a"; name[4] < 'a' + STRESS_LIB_MAX - 1; name[4]++)
        cr_assert(stress_lib_find(name) != NULL);
    cr_assert(stress_lib_find("lib:one-too-many") == NULL);
}

Test(baseline_lib, says_what_is_missing) {
    const stress_device_options_t device = {.name = "sim"};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    cr_assert(create(stress_lib_find("lib:/nonexistent/x.so"), "") == NULL);
    cr_assert(strstr(error, "x.so") != NULL, "%s", error);
    cr_assert(create(find(""), "") == NULL && strstr(error, "no symbol my_malloc") != NULL, "%s",
              error);
    cr_assert(create(find(":cuInit:none"), "") == NULL && strstr(error, "no symbol none") != NULL,
              "%s", error);
    cr_assert(create(find(":cuInit:cuInit"), "x") == NULL && strstr(error, "no options") != NULL);
    stress_device_close();
}
