// SPDX-License-Identifier: Apache-2.0
// Assertions of three strengths. The failure printer allocates nothing.
//
//   BERM_INSIST       always compiled: a broken contract of the caller or of this code
//   BERM_ASSERT       BERM_CHECK_LEVEL >= 1 (debug): one comparison
//   BERM_AUDIT_ON     BERM_CHECK_LEVEL >= 3: whole-heap audits run after every operation
#ifndef BERM_BASE_INSIST_H
#define BERM_BASE_INSIST_H

#include "base/defs.h"

#ifndef BERM_CHECK_LEVEL
#define BERM_CHECK_LEVEL 0
#endif

// Prints "berm: FILE:LINE: EXPRESSION: MESSAGE" to standard error and aborts.
BERM_NORETURN void berm__insist_fail(const char *file, int line, const char *expression,
                                     const char *message);

#define BERM_INSIST(x, message)                                                                    \
    (BERM_LIKELY(x) ? (void)0 : berm__insist_fail(__FILE__, __LINE__, #x, message))

#if BERM_CHECK_LEVEL >= 1
#define BERM_ASSERT(x, message) BERM_INSIST(x, message)
#else
#define BERM_ASSERT(x, message) ((void)sizeof((x) ? 1 : 0))
#endif

#define BERM_AUDIT_ON (BERM_CHECK_LEVEL >= 3)

#endif
