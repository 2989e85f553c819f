// SPDX-License-Identifier: Apache-2.0
// stress/contents: the checker finds what it is for. That libberm passes is
// tests/cli/test_stress.sh.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "stress/contents/contents.h"
#include "stress/contents/kernels.h"
#include "stress/device.h"

enum {
    BYTES = 1003, // ends within a word
};

static unsigned char memory[BYTES];

Test(contents_pattern, every_byte_counts) {
    uint64_t seed = contents_seed(3, 1), first = 0;
    contents_write(memory, BYTES, seed);
    cr_assert(contents_wrong_bytes(memory, BYTES, seed, &first) == 0);
    for (uint64_t i = 0; i < BYTES; i++) {
        memory[i] ^= 0x10;
        cr_assert(contents_wrong_bytes(memory, BYTES, seed, &first) == 1, "byte %d", (int)i);
        cr_assert(first == i);
        memory[i] ^= 0x10;
    }
    memory[17] ^= 1;
    memory[BYTES - 1] ^= 1;
    cr_assert(contents_wrong_bytes(memory, BYTES, seed, &first) == 2 && first == 17);
}

Test(contents_pattern, depends_on_block_version_and_place) {
    uint64_t first = 0;
    contents_write(memory, BYTES, contents_seed(3, 1));
    cr_assert(contents_wrong_bytes(memory, BYTES, contents_seed(4, 1), &first) > BYTES / 2);
    cr_assert(contents_wrong_bytes(memory, BYTES, contents_seed(3, 2), &first) > BYTES / 2);
    cr_assert(contents_wrong_bytes(memory + 8, BYTES - 8, contents_seed(3, 1), &first) > BYTES / 2);
    memset(memory, 0, BYTES);
    cr_assert(contents_wrong_bytes(memory, BYTES, contents_seed(3, 1), &first) > BYTES / 2);
}

static stress_contents_result_t result;

static void run(const stress_contents_options_t *options) {
    char error[256] = "";
    const stress_device_options_t device = {.name = "sim",
                                            .capacity_bytes = BERM_MIB(32),
                                            .granule_bytes = BERM_KIB(256),
                                            .is_backed = true};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_contents_run(options, &result, error, sizeof error) == 0, "%s", error);
    stress_device_close();
}

static stress_contents_options_t some(uint64_t operations) {
    stress_contents_options_t options;
    stress_contents_options_default(&options);
    options.operations = operations;
    return options;
}

Test(contents, all_is_verified_and_pages_move) {
    stress_contents_options_t options = some(3000);
    run(&options);
    cr_assert(stress_contents_is_good(&result), "%s %s %s", result.failure, result.first_wrong,
              result.first_hazard);
    cr_assert(result.operations == 3000 && result.kernels > 2000 && result.audits == 3);
    cr_assert(result.frees == result.allocs);
    cr_assert(result.verified_bytes > result.written_bytes && result.moved_bytes > BERM_MIB(50));
    cr_assert(result.frees_elsewhere > 50 && result.frees_on_none > 50 && result.trims > 0);
}

Test(contents, the_same_seed_gives_the_same_run) {
    stress_contents_options_t options = some(1000);
    run(&options);
    stress_contents_result_t first = result;
    run(&options);
    cr_assert(memcmp(&first, &result, sizeof result) == 0);
    options.seed = 2;
    run(&options);
    cr_assert(first.written_bytes != result.written_bytes);
}

Test(contents, one_wrong_byte_is_found) {
    stress_contents_options_t options = some(1000);
    options.mistake = STRESS_CONTENTS_WRONG_BYTE;
    run(&options);
    cr_assert(result.wrong_bytes == 1 && result.hazards == 0 && result.failure[0] == '\0');
    cr_assert(result.first_wrong[0] != '\0' && !stress_contents_is_good(&result));
}

Test(contents, use_without_order_is_found) {
    stress_contents_options_t options = some(3000);
    options.mistake = STRESS_CONTENTS_WRONG_ORDER;
    run(&options);
    cr_assert(result.hazards > 0 && result.first_hazard[0] != '\0');
    cr_assert(!stress_contents_is_good(&result));
}

Test(contents, needs_a_device_with_contents) {
    char error[256] = "";
    stress_contents_options_t options = some(10);
    const stress_device_options_t device = {.name = "sim"};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_contents_run(&options, &result, error, sizeof error) == 0);
    cr_assert(result.failure[0] != '\0', "launches are refused");
    stress_device_close();
}
