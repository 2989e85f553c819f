// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the allocator models: one allocator on a strict simulated device with
// modelled work on two streams. The test defines BASELINE_OPS before it includes this.
#ifndef TESTS_UNIT_BASELINE_HELPERS_H
#define TESTS_UNIT_BASELINE_HELPERS_H

#include <criterion/criterion.h>

#include "base/defs.h"
#include "stress/baselines/baselines.h"
#include "stress/work.h"

static const stress_allocator_ops_t *const ops = &BASELINE_OPS;
static stress_allocator_t *a;
static stress_work_t *work;
static char error[512];

static inline void open_modelled(uint64_t capacity_bytes, double headroom_pct, const char *conf,
                                 const stress_work_options_t *modelled) {
    const stress_device_options_t device = {
        .name = "sim", .capacity_bytes = capacity_bytes, .is_strict = true};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    work = stress_work_create(2, modelled, error, sizeof error);
    cr_assert(work != NULL, "%s", error);
    const stress_allocator_options_t options = {
        .conf = conf, .headroom_pct = headroom_pct, .limit_bytes = UINT64_MAX};
    a = ops->create(&options, error, sizeof error);
    cr_assert(a != NULL, "%s", error);
}

static inline void open_device(uint64_t capacity_bytes, const char *conf) {
    const stress_work_options_t modelled = {.work_ns = 5000, .host_ns = 4000, .lag_ns = 200000};
    open_modelled(capacity_bytes, -1, conf, &modelled);
}

static inline stress_figures_t figures(void) {
    stress_figures_t f;
    ops->figures(a, &f);
    return f;
}

static inline simcuda_ledger_t ledger_read(void) {
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    return ledger;
}

// The audit, and what the allocator and the device say must agree.
static inline void check(void) {
    cr_assert(ops->audit(a, error, sizeof error) == 0, "%s", error);
    cr_assert(figures().reserved_bytes == ledger_read().used_bytes);
}

// Checks, frees everything, and looks whether the device is empty.
static inline void close_device(void) {
    check();
    uint64_t live_blocks = 0;
    ops->destroy(a, &live_blocks);
    stress_work_destroy(work);
    const simcuda_ledger_t ledger = ledger_read();
    cr_assert(ledger.used_bytes == 0 && ledger.allocations == 0);
    cr_assert(ledger.handles == 0 && ledger.mappings == 0 && ledger.reservations == 0);
    cr_assert(ledger.events == 0 && ledger.streams == 0);
    cr_assert(stress_simcuda()->hazard_count() == 0);
    stress_device_close();
}

// Writes the block, so that the device sees who uses what.
static inline stress_result_t try_alloc(uint64_t size_bytes, uint32_t stream, uint64_t *addr) {
    stress_result_t result = ops->alloc(a, size_bytes, stress_work_stream(work, stream), addr);
    if (result == STRESS_OK) {
        cr_assert(*addr % (ops->alignment_bytes != 0 ? ops->alignment_bytes : 512) == 0);
        cr_assert(stress_work_use(work, stream, *addr, size_bytes, true) == 0);
    }
    check();
    return result;
}

static inline uint64_t alloc_on(uint64_t size_bytes, uint32_t stream) {
    uint64_t addr = 0;
    cr_assert(try_alloc(size_bytes, stream, &addr) == STRESS_OK);
    return addr;
}

static inline uint64_t alloc(uint64_t size_bytes) {
    return alloc_on(size_bytes, 0);
}

static inline void release(uint64_t addr) {
    cr_assert(ops->free(a, addr, 0, NULL) == STRESS_OK);
    check();
}

#endif
