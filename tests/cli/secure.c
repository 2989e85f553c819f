// SPDX-License-Identifier: Apache-2.0
// Prints the status of starting berm, and whether the process has the rights of another user.
#include <stdio.h>
#include <sys/auxv.h>

#include "berm.h"

int main(void) {
    (void)printf("%s %s\n", getauxval(AT_SECURE) != 0 ? "secure" : "plain",
                 berm_status_name(berm_init(NULL)));
    return 0;
}
