// SPDX-License-Identifier: Apache-2.0
// Small programs that fail, each in one way: what `berm report` says of it is compared with what it
// is (tests/cli/test_report.sh), and docs/debugging.md shows it. They use berm's public headers
// only. Run one as
//     SIMCUDA_MEMORY=256M BERM_CONF=driver:LIBCUDA,recording:FILE case_NAME; berm report FILE
// A program ends with status 1 when its request has failed, as it should.
#ifndef STRESS_CASES_CASE_H
#define STRESS_CASES_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "berm_diagnose.h"

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)

// Ends the program where a request fails.
static inline berm_addr_t case_alloc(uint64_t size_bytes) {
    berm_addr_t addr;
    if (berm_alloc(size_bytes, 0, NULL, &addr) == BERM_OK)
        return addr;
    (void)fprintf(stderr, "%s\n", berm_error_message());
    exit(1);
}

static inline void case_free(berm_addr_t addr) {
    if (berm_free(addr, 0, NULL) == BERM_OK)
        return;
    (void)fprintf(stderr, "%s\n", berm_error_message());
    exit(3);
}

static inline void case_push(const char *tag) {
    if (berm_tag_push(tag) != BERM_OK)
        exit(3);
}

static inline void case_pop(void) {
    if (berm_tag_pop() != BERM_OK)
        exit(3);
}

// One step of work: temporaries that come and go.
static inline void case_step(unsigned blocks, uint64_t size_bytes) {
    berm_addr_t addrs[64];
    for (unsigned i = 0; i < blocks && i < 64; i++)
        addrs[i] = case_alloc(size_bytes + i * 512);
    for (unsigned i = 0; i < blocks && i < 64; i++)
        case_free(addrs[i]);
}

#endif
