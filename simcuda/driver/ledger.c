// SPDX-License-Identifier: Apache-2.0
// The device's own account, kept apart from any allocator's: one for each device, one for what
// belongs to none (memory of the host), and the peaks of all together.
//
// Counts are taken by adding the negative modulo 2^64. Invariant: the sum over devices of each
// current figure is that of ledger_all. Locks: the state's. Nothing can fail.
#include "sim.h"

simcuda_ledger_t *sim_ledger(int device) {
    return &sim.ledgers[device < 0 ? SIM_LEDGERS - 1 : device];
}

static void ledger_peaks(simcuda_ledger_t *ledger) {
    ledger->mappings_peak = berm__max_u64(ledger->mappings_peak, ledger->mappings);
    ledger->address_bytes_peak =
        berm__max_u64(ledger->address_bytes_peak, ledger->reserved_address_bytes);
    ledger->used_bytes_peak = berm__max_u64(ledger->used_bytes_peak, ledger->used_bytes);
}

#define LEDGER_ADD(device, field, amount)                                                          \
    (sim_ledger(device)->field += (amount), sim.ledger_all.field += (amount))

static void ledger_note(int device) {
    ledger_peaks(sim_ledger(device));
    ledger_peaks(&sim.ledger_all);
}

void sim_ledger_handle(int device, uint64_t count, uint64_t bytes) {
    LEDGER_ADD(device, handles, count);
    LEDGER_ADD(device, handle_bytes, bytes);
}

void sim_ledger_mapping(int device, uint64_t count, uint64_t bytes) {
    LEDGER_ADD(device, mappings, count);
    LEDGER_ADD(device, mapped_bytes, bytes);
    ledger_note(device);
}

void sim_ledger_reservation(int device, uint64_t count, uint64_t bytes) {
    LEDGER_ADD(device, reservations, count);
    LEDGER_ADD(device, reserved_address_bytes, bytes);
    ledger_note(device);
}

void sim_ledger_allocation(int device, uint64_t count, uint64_t bytes) {
    LEDGER_ADD(device, allocations, count);
    LEDGER_ADD(device, allocation_bytes, bytes);
}

void sim_ledger_import(int device, uint64_t count, uint64_t bytes) {
    LEDGER_ADD(device, imports, count);
    LEDGER_ADD(device, import_bytes, bytes);
}

void sim_ledger_pool(int device, uint64_t bytes) {
    LEDGER_ADD(device, pool_bytes, bytes);
}

void sim_ledger_used(int device, uint64_t bytes) {
    LEDGER_ADD(device, used_bytes, bytes);
    ledger_note(device);
}

// Streams, events and contexts are counted when asked for: they are few and never hot.
static void ledger_count_objects(int device, simcuda_ledger_t *ledger) {
    uint32_t index = 0;
    for (sim_stream_t *stream; (stream = sim_table_each(&sim.streams, &index)) != NULL;)
        ledger->streams += device < 0 || stream->context->device == device;
    index = 0;
    for (sim_event_t *event; (event = sim_table_each(&sim.events, &index)) != NULL;)
        ledger->events += device < 0 || event->context->device == device;
    for (int i = 0; i < sim.config.devices; i++) {
        if (device >= 0 && i != device)
            continue;
        ledger->contexts_retained += sim.devices[i].primary_refs;
        ledger->context_bytes += sim.devices[i].context_bytes;
    }
    index = 0;
    for (sim_context_t *context; (context = sim_table_each(&sim.contexts, &index)) != NULL;) {
        if (!context->is_primary)
            ledger->contexts_retained += device < 0 || context->device == device;
    }
}

void simcuda_ledger_read(int device, simcuda_ledger_t *ledger) {
    *ledger = (simcuda_ledger_t){0};
    if (device < -1 || device >= SIMCUDA_DEVICE_MAX || !sim_lock())
        return;
    *ledger = device < 0 ? sim.ledger_all : *sim_ledger(device);
    ledger_count_objects(device, ledger);
    sim_unlock();
}
