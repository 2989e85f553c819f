// SPDX-License-Identifier: Apache-2.0
// A service that keeps the output of every request.
#include "stress/cases/case.h"

int main(void) {
    case_push("weights");
    for (int i = 0; i < 10; i++)
        (void)case_alloc(4 * MIB);
    case_pop();
    for (;;) {
        case_push("activations");
        case_step(6, 3 * MIB);
        case_pop();
        case_push("outputs");
        (void)case_alloc(700 * KIB);
        case_pop();
    }
}
