// SPDX-License-Identifier: Apache-2.0
// A process without jemalloc: the allocator of that name must say so.
#include <criterion/criterion.h>
#include <string.h>

#include "stress/baselines/baselines.h"

Test(baseline_jemalloc_absent, says_so) {
    char error[256] = "";
    const stress_allocator_options_t options = {.conf = "", .limit_bytes = UINT64_MAX};
    cr_assert(stress_jemalloc_ops.create(&options, error, sizeof error) == NULL);
    cr_assert(strstr(error, "does not carry jemalloc") != NULL, "%s", error);
}
