// SPDX-License-Identifier: Apache-2.0
// A little of each page stays in use: results between temporaries.
#include "stress/cases/case.h"

enum {
    PAIRS = 110
};

int main(void) {
    berm_addr_t temporary[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        temporary[i] = case_alloc(2 * MIB - 128 * KIB);
        (void)case_alloc(128 * KIB);
    }
    for (int i = 0; i < PAIRS; i++)
        case_free(temporary[i]);
    (void)case_alloc(128 * MIB);
    return 0;
}
