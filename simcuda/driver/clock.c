// SPDX-License-Identifier: Apache-2.0
// The host's virtual clock and what calls cost. Streams have times of their own (queue.c).
//
// Bound: O(1). The clock only moves forward; it stops at 2^63 ns (292 years). Locks: the state's.
//
// The presets. Each figure, its source and how sure it is: docs/simcuda.md.
#include <string.h>

#include "sim.h"

#define CLOCK_MAX_NS (UINT64_C(1) << 63)

typedef struct preset {
    const char *name;
    simcuda_costs_t costs;
} preset_t;

// base_ns, per_mapping_ns, ns_per_mib
#define PRESET_EVENTS                                                                              \
    .free_ = {14000, 0, 0}, .event_record = {500, 0, 0}, .event_query = {400, 0, 0},               \
    .stream_wait = {3000, 0, 0}, .synchronize = {1000, 0, 0}, .mem_info = {10000, 0, 0},           \
    .other = {200, 0, 0}

static const preset_t presets[] = {
    {"fast",
     {.reserve = {2000, 0, 0},
      .address_free = {1000, 0, 0},
      .create = {27800, 0, 600},
      .release = {23000, 0, 0},
      .map = {2000, 0, 0},
      .set_access = {8000, 30000, 0},
      .unmap = {4000, 30000, 0},
      .malloc_ = {33800, 0, 600},
      PRESET_EVENTS}},
    {"typical",
     {.reserve = {19000, 0, 0},
      .address_free = {1000, 0, 0},
      .create = {191800, 0, 600},
      .release = {23000, 0, 0},
      .map = {1500, 0, 0},
      .set_access = {6000, 30000, 0},
      .unmap = {5600, 20000, 0},
      .malloc_ = {33800, 0, 600},
      PRESET_EVENTS}},
    {"slow",
     {.reserve = {19000, 0, 0},
      .address_free = {35000, 0, 0},
      .create = {398800, 0, 600},
      .release = {23000, 0, 0},
      .map = {10000, 0, 0},
      .set_access = {10000, 150000, 0},
      .unmap = {41000, 350000, 0},
      .malloc_ = {57800, 0, 600},
      PRESET_EVENTS}},
};

int simcuda_costs_preset(const char *name, simcuda_costs_t *costs) {
    for (size_t i = 0; name != NULL && i < BERM_ARRAY_LENGTH(presets); i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *costs = presets[i].costs;
            return 0;
        }
    }
    return -1;
}

static uint64_t clock_add(uint64_t ns, unsigned __int128 more) {
    return more >= CLOCK_MAX_NS - ns ? CLOCK_MAX_NS : ns + (uint64_t)more;
}

uint64_t sim_time_add(uint64_t ns, uint64_t more) {
    return clock_add(berm__min_u64(ns, CLOCK_MAX_NS), more);
}

void sim_charge(const simcuda_cost_t *cost, uint64_t mappings, uint64_t bytes) {
    unsigned __int128 ns = cost->base_ns;
    ns += (unsigned __int128)cost->per_mapping_ns * mappings;
    ns += ((unsigned __int128)cost->ns_per_mib * bytes) >> 20;
    uint64_t after = clock_add(sim.now_ns, ns);
    sim.driver_ns += after - sim.now_ns;
    sim.now_ns = after;
}

void sim_wait_until(uint64_t ns) {
    if (ns > CLOCK_MAX_NS)
        ns = CLOCK_MAX_NS;
    if (ns <= sim.now_ns)
        return;
    sim.wait_ns += ns - sim.now_ns;
    sim.now_ns = ns;
}

uint64_t simcuda_now_ns(void) {
    if (!sim_lock())
        return 0;
    uint64_t ns = sim.now_ns;
    sim_unlock();
    return ns;
}

void simcuda_advance_ns(uint64_t ns) {
    if (!sim_lock())
        return;
    sim.now_ns = clock_add(sim.now_ns, ns);
    (void)sim_leave(BERM_CU_SUCCESS);
}

uint64_t simcuda_driver_ns(void) {
    if (!sim_lock())
        return 0;
    uint64_t ns = sim.driver_ns;
    sim_unlock();
    return ns;
}

uint64_t simcuda_wait_ns(void) {
    if (!sim_lock())
        return 0;
    uint64_t ns = sim.wait_ns;
    sim_unlock();
    return ns;
}
