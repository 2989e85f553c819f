// SPDX-License-Identifier: Apache-2.0
// A model that is larger than the device: layer after layer, and nothing to free.
#include "stress/cases/case.h"

int main(void) {
    case_push("weights");
    for (;;) {
        (void)case_alloc(6 * MIB);
        (void)case_alloc(24 * KIB);
    }
}
