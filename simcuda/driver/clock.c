// SPDX-License-Identifier: Apache-2.0
// The host's virtual clock and what calls cost. Streams have times of their own (queue.c).
//
// With is_realtime the host's clock is at least the real time since the device was made, and where
// a call has moved it ahead (a cost, a wait) the call sleeps before it returns; costs of less than
// REAL_SLACK_NS add up first.
//
// Bound: O(1). The clock only moves forward; it stops at 2^63 ns (292 years). Locks: the state's.
//
// The presets. Each figure, its source and how sure it is: docs/simcuda.md.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "sim.h"

enum {
    REAL_SLACK_NS = 200000,
};

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

// --- the real clock ------------------------------------------------------------------------------

static uint64_t real_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_real_start(void) {
    if (sim.config.is_realtime)
        sim.real_start_ns = real_ns();
}

void sim_real_follow(void) {
    if (BERM_LIKELY(!sim.config.is_realtime))
        return;
    sim.now_ns = berm__max_u64(sim.now_ns, real_ns() - sim.real_start_ns);
}

uint64_t sim_real_target(void) {
    if (BERM_LIKELY(!sim.config.is_realtime))
        return 0;
    uint64_t target_ns = sim_time_add(sim.now_ns, sim.real_start_ns);
    return target_ns > real_ns() + REAL_SLACK_NS ? target_ns : 0;
}

void sim_real_sleep(uint64_t target_ns) {
    struct timespec until = {(time_t)(target_ns / 1000000000u), (long)(target_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

// --- simcuda.h -----------------------------------------------------------------------------------

uint64_t simcuda_now_ns(void) {
    if (!sim_lock())
        return 0;
    sim_real_follow();
    uint64_t ns = sim.now_ns;
    if (sim.config.is_realtime)
        (void)sim_leave(BERM_CU_SUCCESS); // asking has moved the clock
    else
        sim_unlock();
    return ns;
}

void simcuda_advance_ns(uint64_t ns) {
    if (!sim_lock())
        return;
    sim_real_follow();
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
