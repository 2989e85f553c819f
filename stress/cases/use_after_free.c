// SPDX-License-Identifier: Apache-2.0
// A kernel would write a block that was freed: prints the address that it would fault at.
#include "stress/cases/case.h"

int main(void) {
    (void)case_alloc(3 * MIB);
    case_push("hidden state");
    berm_addr_t freed = case_alloc(5 * MIB);
    case_pop();
    case_free(freed);
    (void)printf("0x%llx\n", (unsigned long long)freed + 4096);
    return 0;
}
