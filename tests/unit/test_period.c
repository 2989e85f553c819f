// SPDX-License-Identifier: Apache-2.0
// core/period.h: periods that are found, when, and with what is changed in them; what looks like a
// period and is none; forgetting; failures of host memory.
#include <criterion/criterion.h>

#include "base/rng.h"
#include "core/period.h"
#include "host/mem.h"

enum {
    SEQUENCE_MAX = 8192
};

typedef struct request {
    uint64_t size, live;
} request_t;

// One pass of a workload.
typedef struct sequence {
    request_t requests[SEQUENCE_MAX];
    uint32_t count;
} sequence_t;

static sequence_t sequence;

static void sequence_add(sequence_t *to, uint64_t size, uint64_t live) {
    cr_assert(to->count < SEQUENCE_MAX);
    to->requests[to->count++] = (request_t){size, live};
}

// `count` requests of few sizes; live bytes rise from `floor` to floor + 1000 and fall back.
static void sequence_plain(uint32_t count, uint64_t floor, uint64_t seed) {
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    sequence.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rise = 2000 * (uint64_t)(i < count / 2 ? i : count - 1 - i) / count;
        sequence_add(&sequence, 1 + berm__rng_below(&rng, 20), floor + rise);
    }
}

// When a pass was first offered: in thousandths of a pass since the start. 0: it was not.
typedef struct finding {
    uint32_t candidate_at, confirmed_at;
    uint32_t length;       // at the end
    uint32_t other_offers; // notes at which another length was offered
} finding_t;

// Feeds the sequence `passes` times, with so many thousandths of the requests changed.
static finding_t feed(berm_period_t *period, uint32_t passes, uint32_t replaced, uint32_t moved,
                      uint64_t seed) {
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    finding_t finding = {0};
    for (uint64_t i = 0; i < (uint64_t)passes * sequence.count; i++) {
        request_t request = sequence.requests[i % sequence.count];
        if (berm__rng_below(&rng, 1000) < replaced)
            request.size = 1000 + berm__rng_below(&rng, 1000);
        if (berm__rng_below(&rng, 1000) < moved) {
            if (berm__rng_below(&rng, 2) == 0)
                continue;
            (void)berm__period_note(period, 1000 + berm__rng_below(&rng, 1000), request.live);
        }
        berm_period_verdict_t verdict = berm__period_note(period, request.size, request.live);
        cr_assert(verdict == berm__period_verdict(period));
        finding.length = berm__period_length(period);
        cr_assert((verdict == BERM_PERIOD_NONE) == (finding.length == 0));
        uint32_t at = (uint32_t)((i + 1) * 1000 / sequence.count);
        uint32_t apart = finding.length > sequence.count ? finding.length - sequence.count
                                                         : sequence.count - finding.length;
        if (verdict != BERM_PERIOD_NONE && apart > sequence.count / 20) {
            finding.other_offers++;
            continue;
        }
        if (verdict >= BERM_PERIOD_CANDIDATE && finding.candidate_at == 0)
            finding.candidate_at = at;
        if (verdict == BERM_PERIOD_CONFIRMED && finding.confirmed_at == 0)
            finding.confirmed_at = at;
    }
    return finding;
}

static finding_t find(uint32_t passes, uint32_t replaced, uint32_t moved) {
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    finding_t finding = feed(period, passes, replaced, moved, 1);
    berm__period_destroy(period);
    return finding;
}

Test(period, an_exact_period_is_found_in_the_second_pass) {
    const uint32_t counts[] = {64, 150, 700, 3000, 8000};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(counts); i++) {
        sequence_plain(counts[i], 0, i);
        finding_t finding = find(3, 0, 0);
        cr_assert(finding.length == counts[i] && finding.other_offers == 0);
        // A look every few notes; nothing is certain before half and nine tenths.
        uint32_t slack = 32 * 1000 / counts[i];
        cr_assert(finding.candidate_at >= 1500 && finding.candidate_at <= 1500 + slack);
        cr_assert(finding.confirmed_at >= 1890 && finding.confirmed_at <= 1900 + slack);
    }
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}

// With memory that stays, a short period is only believed the third time.
Test(period, a_short_period_over_lasting_memory_takes_longer) {
    sequence_plain(200, 5000, 1);
    finding_t finding = find(6, 0, 0);
    cr_assert(finding.length == 200 && finding.candidate_at >= 4000 &&
              finding.candidate_at <= 4200);
    sequence_plain(600, 5000, 1);
    finding = find(3, 0, 0);
    cr_assert(finding.length == 600 && finding.candidate_at <= 1600);
}

Test(period, match_is_the_share_of_equal_requests) {
    sequence_plain(1000, 0, 1);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL && berm__period_match_permille(period) == 0);
    (void)feed(period, 3, 0, 0, 1);
    cr_assert(berm__period_match_permille(period) == 1000);
    (void)feed(period, 4, 50, 0, 1);
    cr_assert(berm__period_match_permille(period) > 850);
    cr_assert(berm__period_match_permille(period) < 950);
    cr_assert(berm__period_notes(period) == 7000);
    berm__period_destroy(period);
}

Test(period, changed_requests_are_tolerated) {
    for (uint64_t seed = 0; seed < 10; seed++) {
        sequence_plain(2000, 0, seed);
        finding_t finding = find(3, 50, 0);
        cr_assert(finding.length == 2000 && finding.other_offers == 0);
        cr_assert(finding.candidate_at <= 1600 && finding.confirmed_at <= 2000);
    }
}

// One request in a hundred is missing or has an extra one beside it.
Test(period, missing_and_extra_requests_are_tolerated) {
    for (uint64_t seed = 0; seed < 10; seed++) {
        sequence_plain(2000, 0, seed);
        finding_t finding = find(4, 0, 10);
        cr_assert(finding.candidate_at > 0 && finding.candidate_at <= 1800);
        cr_assert(finding.confirmed_at > 0 && finding.confirmed_at <= 2400);
        cr_assert(finding.other_offers == 0 && finding.length != 0);
    }
    for (uint64_t seed = 0; seed < 10; seed++) {
        sequence_plain(300, 0, seed);
        finding_t finding = find(4, 0, 10);
        cr_assert(finding.candidate_at > 0 && finding.candidate_at <= 1800, "%u",
                  finding.candidate_at);
        cr_assert(finding.confirmed_at > 0 && finding.confirmed_at <= 2400, "%u",
                  finding.confirmed_at);
        cr_assert(finding.other_offers == 0 && finding.length != 0, "%u", finding.other_offers);
    }
}

Test(period, what_does_not_repeat_is_no_period) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 1);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    for (int i = 0; i < 50000; i++)
        cr_assert(berm__period_note(period, berm__rng_below(&rng, 4), (uint64_t)i % 100) ==
                  BERM_PERIOD_NONE);
    berm__period_destroy(period);
}

Test(period, shorter_than_the_shortest_is_ignored) {
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    for (uint64_t i = 0; i < 5000; i++) {
        (void)berm__period_note(period, i % 10, i % 10);
        cr_assert(berm__period_length(period) % 10 == 0);
        cr_assert(berm__period_length(period) == 0 ||
                  berm__period_length(period) >= BERM_PERIOD_SHORTEST);
    }
    berm__period_destroy(period);
}

// 24 equal layers of 50 requests, between requests of their own; `keeps`: what a layer leaves live.
static void sequence_layers(uint64_t keeps, uint64_t peak_at_end) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 5);
    uint64_t live = 10000;
    sequence.count = 0;
    for (int i = 0; i < 100; i++)
        sequence_add(&sequence, 100 + berm__rng_below(&rng, 100), live + (uint64_t)i);
    for (int layer = 0; layer < 24; layer++, live += keeps)
        for (uint64_t i = 0; i < 50; i++)
            sequence_add(&sequence, 1 + i * i % 31, live + 20 * i);
    for (int layer = 0; layer < 24; layer++, live -= keeps)
        for (uint64_t i = 0; i < 50; i++)
            sequence_add(&sequence, 50 + i * i % 37, live + 20 * i);
    for (int i = 0; i < 100; i++)
        sequence_add(&sequence, 300 + berm__rng_below(&rng, 100), live + peak_at_end);
}

// Layers that keep activations are never taken for a period.
Test(period, layers_of_training_are_no_period) {
    sequence_layers(1000, 0);
    finding_t finding = find(4, 0, 0);
    cr_assert(finding.length == sequence.count && finding.other_offers == 0);
    cr_assert(finding.candidate_at <= 1550 && finding.confirmed_at <= 1950);
}

// Layers that keep nothing may be, in the first pass: they do repeat. Not again in later ones.
Test(period, layers_of_inference_are_believed_once) {
    sequence_layers(0, 3000);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    (void)feed(period, 1, 0, 0, 1);
    finding_t finding = feed(period, 4, 0, 0, 1);
    cr_assert(finding.length == sequence.count);
    cr_assert(finding.other_offers <= 64, "%u",
              finding.other_offers); // until the first is given up
    cr_assert(finding.candidate_at <= 550 && finding.confirmed_at <= 950);
    berm__period_destroy(period);
}

// Layers that reach the peak of all: they broke off before, and are not believed again.
Test(period, a_loop_that_broke_off_is_not_believed_again) {
    sequence_layers(0, 0);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    (void)feed(period, 1, 0, 0, 1);
    finding_t finding = feed(period, 3, 0, 0, 1);
    cr_assert(finding.length == sequence.count && finding.other_offers <= 64);
    berm__period_destroy(period);
}

// 600 requests twice, then something greater: once that was seen, the 600 are no period.
Test(period, what_lacks_the_peak_is_no_period) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 5);
    sequence.count = 0;
    for (uint32_t i = 0; i < 1200; i++)
        sequence_add(&sequence,
                     i < 600 ? 1 + berm__rng_below(&rng, 20) : sequence.requests[i - 600].size,
                     5000 + i % 600);
    for (uint64_t i = 0; i < 600; i++)
        sequence_add(&sequence, 1 + berm__rng_below(&rng, 20), 5000 + 5 * i);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    (void)feed(period, 1, 0, 0, 1);
    finding_t finding = feed(period, 3, 0, 0, 1);
    cr_assert(finding.length == 1800 && finding.other_offers <= 64, "%u", finding.other_offers);
    berm__period_destroy(period);
}

// A few turns of a loop, each time another one, amid much that does not repeat.
Test(period, a_loop_amid_much_else_is_no_period) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 5);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    for (int round = 0; round < 10; round++) {
        for (uint64_t i = 0; i < 1200; i++)
            cr_assert(berm__period_note(period, berm__rng_next(&rng), 5000 + i % 100) == 0);
        sequence_plain(100, 5000, (uint64_t)round);
        for (uint32_t i = 0; i < 500; i++)
            cr_assert(berm__period_note(period, sequence.requests[i % 100].size, 5000 + i % 100) ==
                      BERM_PERIOD_NONE);
    }
    berm__period_destroy(period);
}

// What is unlike anything else stands at the end only: by then the whole pass has matched.
Test(period, what_came_before_the_first_sign_counts) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 5);
    sequence.count = 0;
    for (int layer = 0; layer < 40; layer++)
        for (uint64_t i = 0; i < 50; i++)
            sequence_add(&sequence, 1 + i * i % 31, 100 * (uint64_t)layer);
    for (uint64_t i = 0; i < 600; i++)
        sequence_add(&sequence, 100 + berm__rng_below(&rng, 100), 6000 - 10 * i);
    finding_t finding = find(3, 0, 0);
    cr_assert(finding.length == sequence.count && finding.other_offers == 0);
    cr_assert(finding.confirmed_at <= 2000, "%u", finding.confirmed_at);
}

// Another workload takes over.
Test(period, a_period_that_ends_is_given_up) {
    sequence_plain(1000, 0, 1);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    cr_assert(feed(period, 3, 0, 0, 1).length == 1000);
    sequence_plain(1300, 0, 99);
    finding_t finding = feed(period, 1, 0, 0, 1);
    cr_assert(finding.length == 0 && finding.other_offers < 300, "%u", finding.other_offers);
    finding = feed(period, 2, 0, 0, 1);
    cr_assert(finding.length == 1300 && finding.confirmed_at <= 950);
    berm__period_destroy(period);
}

Test(period, reset_forgets) {
    sequence_plain(1000, 0, 1);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    finding_t first = feed(period, 3, 30, 5, 7);
    cr_assert(first.length != 0);
    berm__period_reset(period);
    cr_assert(berm__period_verdict(period) == BERM_PERIOD_NONE);
    cr_assert(berm__period_length(period) == 0 && berm__period_notes(period) == 0);
    finding_t again = feed(period, 3, 30, 5, 7);
    cr_assert(again.candidate_at == first.candidate_at && again.length == first.length);
    cr_assert(again.confirmed_at == first.confirmed_at);
    berm__period_destroy(period);
}

// With memory for 256 notes, over and over: a period of 100 is found, one of 200 is not.
Test(period, memory_is_bounded) {
    berm_period_t *period = berm__period_create(256);
    cr_assert(period != NULL);
    uint64_t reserved = berm__mem_reserved_bytes() + berm__mem_held_bytes();
    cr_assert(reserved < 16384, "%lu", (unsigned long)reserved);
    sequence_plain(100, 0, 1);
    cr_assert(feed(period, 300, 0, 0, 1).length == 100);
    cr_assert(berm__period_match_permille(period) == 1000);
    berm__period_reset(period);
    sequence_plain(200, 0, 1);
    finding_t finding = feed(period, 100, 0, 0, 1);
    cr_assert(finding.length == 0 && finding.candidate_at == 0);
    cr_assert(berm__mem_reserved_bytes() + berm__mem_held_bytes() == reserved);
    berm__period_destroy(period);
    const uint32_t refused[] = {1, 32, 100, UINT32_C(1) << 25};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(refused); i++)
        cr_assert(berm__period_create(refused[i]) == NULL);
}

Test(period, a_failure_of_host_memory_is_an_answer) {
    for (uint64_t nth = 1; nth <= 2; nth++) {
        berm__mem_fault_nth(nth, 1);
        cr_assert(berm__period_create(0) == NULL);
        cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
    }
    berm__mem_fault_nth(3, 1);
    berm_period_t *period = berm__period_create(0);
    cr_assert(period != NULL);
    sequence_plain(100, 0, 1);
    cr_assert(feed(period, 3, 0, 0, 1).length == 100);
    cr_assert(berm__mem_calls() == 2);
    berm__mem_fault_nth(0, 0);
    berm__period_destroy(period);
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}
