// SPDX-License-Identifier: Apache-2.0
// A kernel would write beyond the end of a block: prints the address that it would fault at.
#include "stress/cases/case.h"

int main(void) {
    berm_addr_t block = case_alloc(6 * MIB);
    (void)printf("0x%llx\n", (unsigned long long)block + 6 * MIB + 100);
    return 0;
}
