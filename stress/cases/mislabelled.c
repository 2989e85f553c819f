// SPDX-License-Identifier: Apache-2.0
// The driver's number of handles is used up, which it calls a lack of memory (run it with
// SIMCUDA_HANDLES=40).
#include "stress/cases/case.h"

int main(void) {
    for (;;)
        (void)case_alloc(2 * MIB);
}
