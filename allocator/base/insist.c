// SPDX-License-Identifier: Apache-2.0
// The printer of failed assertions. It uses a stack buffer and write(2) only, so that it works
// when the failing code is the process's own malloc.
#include "base/insist.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void berm__insist_fail(const char *file, int line, const char *expression, const char *message) {
    char text[512];
    int length =
        snprintf(text, sizeof text, "berm: %s:%d: %s: %s\n", file, line, expression, message);
    if (length > 0) {
        size_t n = (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
        ssize_t ignored = write(STDERR_FILENO, text, n);
        (void)ignored;
    }
    abort();
}
