// SPDX-License-Identifier: Apache-2.0
// Many requests of a usual length, and then one that is ten times as long.
#include "stress/cases/case.h"

int main(void) {
    case_push("weights");
    for (int i = 0; i < 20; i++)
        (void)case_alloc(2 * MIB);
    case_pop();
    case_push("activations");
    for (int request = 0; request < 60; request++)
        case_step(8, 3 * MIB);
    case_step(40, 6 * MIB);
    return 0;
}
