// SPDX-License-Identifier: Apache-2.0
// A device most of which another process holds (run it with SIMCUDA_OUTSIDE=140M).
#include "stress/cases/case.h"

int main(void) {
    case_push("weights");
    for (int i = 0; i < 10; i++)
        (void)case_alloc(4 * MIB);
    case_pop();
    for (int step = 0; step < 50; step++)
        case_step(8, 3 * MIB);
    (void)case_alloc(90 * MIB);
    return 0;
}
