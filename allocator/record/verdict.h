// SPDX-License-Identifier: Apache-2.0
// Why a request failed, from a recording that was taken then: one kind, the evidence for it, and
// what to do next (docs/debugging.md). The rules look at the last device on which a request failed.
//
//   1  it was not device memory that was short                        mislabelled
//   2  what lives and what is wanted fit into what berm may have:
//        other pools have it free, and it may not leave them          cache held elsewhere
//        else it is free in pieces                                    fragmentation
//   3  they do not fit:
//        blocks of one kind live on while others come and go          leak
//        blocks live on from long ago whose like come and go          hidden retention
//        what others hold would be enough                             outside
//        a moment before it would have fitted                         peak
//        none of that                                                 real shortage
// Asked about an address instead: whose it was                        illegal access
#ifndef BERM_RECORD_VERDICT_H
#define BERM_RECORD_VERDICT_H

#include "record/record.h"

typedef enum berm_verdict_kind {
    BERM_VERDICT_NONE, // nothing failed
    BERM_VERDICT_REAL_SHORTAGE,
    BERM_VERDICT_PEAK,
    BERM_VERDICT_LEAK,
    BERM_VERDICT_HIDDEN_RETENTION,
    BERM_VERDICT_FRAGMENTATION,
    BERM_VERDICT_CACHE_ELSEWHERE,
    BERM_VERDICT_OUTSIDE,
    BERM_VERDICT_MISLABELLED,
    BERM_VERDICT_ILLEGAL_ACCESS,
    BERM_VERDICT_COUNT
} berm_verdict_kind_t;

enum {
    BERM_VERDICT_LINES = 8,
    BERM_VERDICT_LINE_BYTES = 240,
};

typedef struct berm_verdict {
    berm_verdict_kind_t kind;
    bool is_high; // confidence: no other kind fits as well
    int device;
    uint64_t wanted_bytes; // of the request that failed
    unsigned line_count;
    char lines[BERM_VERDICT_LINES][BERM_VERDICT_LINE_BYTES]; // evidence
    char next[2 * BERM_VERDICT_LINE_BYTES];                  // what to do
    bool may_be[BERM_VERDICT_COUNT];                         // what fits too, less well
} berm_verdict_t;

const char *berm__verdict_name(berm_verdict_kind_t kind); // "hidden retention"

// False without host memory.
bool berm__verdict_find(const berm_record_t *record, berm_verdict_t *verdict);
// What lies, or lay, at an address that a kernel used.
void berm__verdict_address(const berm_record_t *record, uint64_t addr, berm_verdict_t *verdict);

#endif
