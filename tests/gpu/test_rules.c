// SPDX-License-Identifier: Apache-2.0
// The rules of the driver that berm relies on, and those that remap:alias stands on, checked on the
// system's CUDA driver by the code of `berm calibrate`. Rules with kernels run in processes of
// their own: this program, started again. remap:alias is opt-in, so that it fails is no failure
// here. Skipped where there is no driver or no device; a driver that is there and fails is a
// failure. Measures nothing.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "stress/calibrate/calibrate.h"
#include "stress/child.h"

enum {
    EXIT_SKIP = 77,
};

// The part of the error that says that there is nothing to test on, not that something is broken.
static bool is_absent(const char *error) {
    char no_device[64];
    (void)snprintf(no_device, sizeof no_device, "CUresult %d", BERM_CU_NO_DEVICE);
    return strncmp(error, "no CUDA driver", 14) == 0 || strstr(error, no_device) != NULL;
}

// The simulated device is tested elsewhere; here it would only look like hardware.
static bool is_simulated(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    bool is_found = library != NULL && dlsym(library, "simcuda_reset") != NULL;
    if (library != NULL)
        (void)dlclose(library);
    return is_found;
}

static int skip(const char *why) {
    (void)printf("SKIP: no CUDA device, no GPU: %s\n", why);
    return EXIT_SKIP;
}

static int check_rules(void) {
    char error[512] = "";
    stress_calibrate_driver_t driver;
    stress_rule_result_t results[STRESS_CALIBRATE_RULES_MAX];
    if (stress_calibrate_open(&driver, error, sizeof error) != 0) {
        (void)printf("FAIL: %s\n", error);
        return 1;
    }
    size_t count = stress_calibrate_rules(&driver, results);
    for (size_t i = 0; i < count; i++) {
        const stress_rule_result_t *r = &results[i];
        (void)printf("%s: %s%s (CUresult %d, wanted %d) %s\n", stress_verdict_name(r->verdict),
                     r->name, r->is_needed ? ", needed" : "", r->result, r->wanted, r->detail);
    }
    size_t broken = stress_calibrate_broken(results, count);
    (void)printf("%zu rules, %zu of the needed ones broken\n", count, broken);
    stress_alias_verdict_t alias;
    stress_calibrate_alias(results, count, &alias);
    (void)printf("remap:alias: %s: %s\n", stress_alias_name(alias.verdict), alias.why);
    return broken == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    (void)argc;
    stress_child_command_set(argv);
    char error[512] = "";
    const stress_device_options_t options = {.name = "cuda"};
    if (stress_device_open(&options, error, sizeof error) != 0) {
        if (is_absent(error))
            return skip(error);
        (void)printf("FAIL: %s\n", error);
        return 1;
    }
    const char *question = stress_child_question();
    if (question != NULL)
        return stress_calibrate_answer(question);
    int status = is_simulated() ? skip("libcuda.so.1 is the simulated one") : check_rules();
    stress_device_close();
    return status;
}
