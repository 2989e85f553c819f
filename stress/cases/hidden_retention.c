// SPDX-License-Identifier: Apache-2.0
// The first step's activations are never let go (a closure holds them); a thousand steps later a
// somewhat larger one fails.
#include "stress/cases/case.h"

int main(void) {
    case_push("weights");
    for (int i = 0; i < 10; i++)
        (void)case_alloc(4 * MIB);
    case_pop();
    case_push("activations");
    for (int i = 0; i < 12; i++)
        (void)case_alloc(7 * MIB);
    for (int step = 0; step < 1000; step++)
        case_step(12, 7 * MIB);
    (void)case_alloc(150 * MIB);
    return 0;
}
