// SPDX-License-Identifier: Apache-2.0
// policy/stream.h: tickets pass in order and never early; one event serves many; a full ring; the
// whole context as a stream, with and without cuCtxRecordEvent; and what happens when an event
// cannot be had.
#include <criterion/criterion.h>

#include "policy/stream.h"
#include "tests/support/heap_inside.h"

static gpu_fixture_t fixture;
static uint64_t host_waits;
static berm_stream_ref_t stream;

static void stream_begin(const heap_fixture_options_t *options, bool is_context) {
    gpu_fixture_begin(&fixture, options);
    host_waits = 0;
    berm__stream_init(&stream, &fixture.gpu, is_context ? BERM_STREAM_NONE : heap_stream_create(),
                      &host_waits);
}

static void stream_end(void) {
    berm__stream_destroy(&stream);
    gpu_fixture_end(&fixture);
}

// Work that ends when the returned gate is opened.
static uint64_t gate_queue(void) {
    uint64_t gate = 0;
    void *on = stream.handle == BERM_STREAM_NONE ? NULL : stream.handle;
    cr_assert(simcuda_gate(on, NULL, 0, &gate) == 0);
    return gate;
}

Test(stream, a_new_stream_has_passed_everything_before_it) {
    stream_begin(NULL, false);
    cr_assert(berm__stream_has_passed(&stream, BERM_TICKET_NONE));
    cr_assert(!berm__stream_has_passed(&stream, stream.open_ticket));
    stream_end();
}

Test(stream, sealing_what_nobody_holds_makes_no_call) {
    stream_begin(NULL, false);
    uint64_t calls = simcuda_calls(NULL);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(simcuda_calls(NULL) == calls);
    cr_assert(stream.sealed_count == 0);
    stream_end();
}

Test(stream, one_event_serves_any_number_of_frees) {
    stream_begin(NULL, false);
    uint64_t ticket = berm__stream_ticket(&stream), calls = simcuda_calls("cuEventRecord");
    for (int i = 0; i < 100; i++)
        cr_assert(berm__stream_ticket(&stream) == ticket);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(simcuda_calls("cuEventRecord") == calls + 1);
    cr_assert(berm__stream_ticket(&stream) == ticket + 1);
    stream_end();
}

Test(stream, a_ticket_passes_when_its_work_is_done_and_not_before) {
    stream_begin(NULL, false);
    uint64_t gate = gate_queue(), ticket = berm__stream_ticket(&stream);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(!berm__stream_has_passed(&stream, ticket));
    cr_assert(simcuda_gate_open(gate) == 0);
    simcuda_advance_ns(1000);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, ticket));
    cr_assert(stream.sealed_count == 0 && fixture.gpu.event_count == 1, "the event is kept");
    cr_assert(host_waits == 0);
    stream_end();
}

Test(stream, tickets_pass_in_order) {
    stream_begin(NULL, false);
    uint64_t gates[3], tickets[3];
    for (int i = 0; i < 3; i++) {
        gates[i] = gate_queue();
        tickets[i] = berm__stream_ticket(&stream);
        cr_assert(berm__stream_seal(&stream) == BERM_OK);
    }
    cr_assert(simcuda_gate_open(gates[1]) == 0); // behind the first: nothing ends
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(!berm__stream_has_passed(&stream, tickets[0]));
    cr_assert(simcuda_gate_open(gates[0]) == 0);
    simcuda_advance_ns(1000);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, tickets[1]));
    cr_assert(!berm__stream_has_passed(&stream, tickets[2]));
    cr_assert(simcuda_gate_open(gates[2]) == 0);
    stream_end();
}

Test(stream, a_full_ring_records_its_newest_event_anew) {
    stream_begin(NULL, false);
    uint64_t tickets[BERM_STREAM_SEALED_MAX + 1], gate = gate_queue(), last_gate = 0;
    for (int i = 0; i < BERM_STREAM_SEALED_MAX + 1; i++) {
        if (i == BERM_STREAM_SEALED_MAX)
            last_gate = gate_queue();
        tickets[i] = berm__stream_ticket(&stream);
        cr_assert(berm__stream_seal(&stream) == BERM_OK);
    }
    cr_assert(stream.sealed_count == BERM_STREAM_SEALED_MAX);
    cr_assert(stream.open_ticket == tickets[BERM_STREAM_SEALED_MAX] + 1);
    cr_assert(simcuda_gate_open(gate) == 0);
    simcuda_advance_ns(1000);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    // The 16th ticket lost its event to the 17th, and passes with it: late, never early.
    cr_assert(berm__stream_has_passed(&stream, tickets[BERM_STREAM_SEALED_MAX - 2]));
    cr_assert(!berm__stream_has_passed(&stream, tickets[BERM_STREAM_SEALED_MAX - 1]));
    cr_assert(simcuda_gate_open(last_gate) == 0);
    simcuda_advance_ns(1000);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, tickets[BERM_STREAM_SEALED_MAX]));
    cr_assert(stream.sealed_count == 0 && host_waits == 0);
    stream_end();
}

Test(stream, waiting_for_the_open_ticket_seals_it) {
    stream_begin(NULL, false);
    cr_assert(simcuda_launch(stream.handle, 5000000, NULL, 0) == 0);
    uint64_t ticket = berm__stream_ticket(&stream), before_ns = simcuda_now_ns();
    cr_assert(berm__stream_wait(&stream, ticket) == BERM_OK);
    cr_assert(simcuda_now_ns() >= before_ns + 5000000);
    cr_assert(berm__stream_has_passed(&stream, ticket));
    cr_assert(host_waits == 1);
    cr_assert(berm__stream_wait(&stream, ticket) == BERM_OK);
    cr_assert(host_waits == 1, "what has passed is not waited for");
    stream_end();
}

// Of three sealed tickets the middle one is waited for: the third is still to come.
Test(stream, waiting_takes_the_first_event_that_covers) {
    stream_begin(NULL, false);
    uint64_t tickets[3];
    for (int i = 0; i < 3; i++) {
        cr_assert(simcuda_launch(stream.handle, 1000000, NULL, 0) == 0);
        tickets[i] = berm__stream_ticket(&stream);
        cr_assert(berm__stream_seal(&stream) == BERM_OK);
    }
    cr_assert(berm__stream_wait(&stream, tickets[1]) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, tickets[1]));
    cr_assert(!berm__stream_has_passed(&stream, tickets[2]));
    cr_assert(stream.sealed_count == 1 && host_waits == 1);
    stream_end();
}

Test(stream, the_context_has_an_event_of_all_streams) {
    stream_begin(NULL, true);
    void *other = heap_stream_create();
    cr_assert(simcuda_launch(other, 1000000, NULL, 0) == 0);
    uint64_t ticket = berm__stream_ticket(&stream);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(simcuda_calls("cuCtxRecordEvent") == 1);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(!berm__stream_has_passed(&stream, ticket));
    simcuda_advance_ns(2000000);
    cr_assert(berm__stream_poll(&stream) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, ticket));
    cr_assert(host_waits == 0);
    stream_end();
}

Test(stream, the_context_of_an_old_driver_is_synchronised) {
    stream_begin(&(heap_fixture_options_t){.lacks_ctx_event = 1}, true);
    void *other = heap_stream_create();
    uint64_t before_ns = simcuda_now_ns();
    cr_assert(!fixture.gpu.has_ctx_event);
    cr_assert(simcuda_launch(other, 1000000, NULL, 0) == 0);
    uint64_t ticket = berm__stream_ticket(&stream);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, ticket), "sealing waited");
    cr_assert(simcuda_now_ns() >= before_ns + 1000000);
    cr_assert(host_waits == 1 && stream.sealed_count == 0);
    cr_assert(stream.open_ticket == ticket + 1);
    stream_end();
}

// Without an event, sealing waits for everything; with that refused too, the ticket waits for
// the next seal.
static void seal_without(const char *call) {
    stream_begin(NULL, false);
    cr_assert(simcuda_launch(stream.handle, 1000000, NULL, 0) == 0);
    uint64_t ticket = berm__stream_ticket(&stream);
    cr_assert(simcuda_fault_nth(call, 1, 0, BERM_CU_UNKNOWN) == 0);
    cr_assert(simcuda_fault_nth("cuCtxSynchronize", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__stream_seal(&stream) == BERM_ERROR_DRIVER);
    cr_assert(!berm__stream_has_passed(&stream, ticket) && stream.is_open_used);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, ticket));
    cr_assert(host_waits == 2 && stream.sealed_count == 0);
    simcuda_faults_clear();
    stream_end();
}

Test(stream, no_event_to_be_made) {
    seal_without("cuEventCreate");
}

Test(stream, no_event_to_be_recorded) {
    seal_without("cuEventRecord");
}

// In a full ring too: everything passes at once.
Test(stream, no_event_to_be_recorded_in_a_full_ring) {
    stream_begin(NULL, false);
    for (int i = 0; i < BERM_STREAM_SEALED_MAX; i++) {
        (void)berm__stream_ticket(&stream);
        cr_assert(berm__stream_seal(&stream) == BERM_OK);
    }
    uint64_t ticket = berm__stream_ticket(&stream);
    cr_assert(simcuda_fault_nth("cuEventRecord", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(stream.sealed_count == 0 && berm__stream_has_passed(&stream, ticket));
    stream_end();
}

Test(stream, a_query_that_fails_passes_nothing) {
    stream_begin(NULL, false);
    uint64_t ticket = berm__stream_ticket(&stream);
    cr_assert(berm__stream_seal(&stream) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuEventQuery", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__stream_poll(&stream) == BERM_ERROR_DRIVER);
    cr_assert(!berm__stream_has_passed(&stream, ticket) && stream.sealed_count == 1);
    cr_assert(simcuda_fault_nth("cuEventSynchronize", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__stream_wait(&stream, ticket) == BERM_ERROR_DRIVER);
    cr_assert(!berm__stream_has_passed(&stream, ticket));
    cr_assert(berm__stream_wait(&stream, ticket) == BERM_OK);
    stream_end();
}

// No driver call may name a stream that its owner destroyed.
Test(stream, a_retired_stream_is_not_named) {
    stream_begin(NULL, false);
    uint64_t ticket = berm__stream_ticket(&stream), calls = simcuda_calls("cuEventRecord");
    heap_stream_destroy(stream.handle);
    stream.is_retired = true;
    cr_assert(berm__stream_wait(&stream, ticket) == BERM_OK);
    cr_assert(berm__stream_has_passed(&stream, ticket));
    cr_assert(simcuda_calls("cuEventRecord") == calls);
    stream_end();
}
