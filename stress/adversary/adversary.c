// SPDX-License-Identifier: Apache-2.0
// Plays one adversary against one allocator on a fresh device and checks the end: see adversary.h.
// The adversaries are kinds.c.
//
// The bound on what berm reserves, with headroom e and handles of h bytes beside those of a
// granule:
//     reserved <= max((1 + e) x peak live, most pinned bytes) + h
// docs/stress.md has the reason.
//
// Locks: none; one thread. May fail: the device cannot be made, the allocator not created.
#include "stress/adversary/adversary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "berm.h"
#include "stress/adversary/game.h"
#include "stress/baselines/baselines.h"

enum {
    CAPACITY_OF_LIVE = 16
};

static const adversary_kind_t *kind_find(const char *name) {
    for (const adversary_kind_t *kind = adversary_kinds; kind->name != NULL; kind++)
        if (strcmp(kind->name, name) == 0)
            return kind;
    return NULL;
}

const char *stress_adversary_name(size_t index) {
    return adversary_kinds[index].name;
}

const char *stress_adversary_summary(size_t index) {
    return adversary_kinds[index].summary;
}

static void note(game_t *g, const char *what) {
    if (g->result->failure[0] == '\0')
        (void)snprintf(g->result->failure, sizeof g->result->failure, "%.200s", what);
}

// --- the bound -----------------------------------------------------------------------------------

static uint64_t option_bytes(const char *name) {
    char text[64] = "";
    char *end = text;
    if (berm_option_get(name, text, sizeof text) != BERM_OK)
        return 0;
    double value = strtod(text, &end);
    const char *at = *end == '\0' ? NULL : strchr("KMGT", *end);
    return (uint64_t)(at == NULL ? value
                                 : value * (double)(UINT64_C(1) << (10 * (at - "KMGT" + 1))));
}

// With berm still running: its options are asked for.
static void bound_set(game_t *g) {
    stress_adversary_result_t *result = g->result;
    char text[64] = "";
    if (g->ops != &stress_berm_ops || berm_option_get("headroom", text, sizeof text) != BERM_OK)
        return;
    double within = (double)result->peak_live_bytes * (1.0 + strtod(text, NULL) / 100.0);
    uint64_t pinned_bytes = result->peak_pinned_bytes + result->peak_beside_bytes;
    result->has_bound = true;
    result->bound_bytes = berm__max_u64((uint64_t)within, pinned_bytes) + g->growth_bytes;
}

// --- the game ------------------------------------------------------------------------------------

static int game_begin(game_t *g, const stress_adversary_options_t *options, char *error,
                      size_t error_capacity) {
    static const stress_work_options_t work = {.work_ns = 5000, .host_ns = 4000, .lag_ns = 200000};
    const stress_allocator_options_t of_allocator = {.device = stress_device_ordinal(),
                                                     .conf = options->conf,
                                                     .headroom_pct = options->headroom_pct,
                                                     .limit_bytes = UINT64_MAX};
    if (stress_device_reset(g->result->capacity_bytes, error, error_capacity) != 0)
        return -1;
    simcuda_config_t config;
    stress_simcuda()->config_default(&config);
    g->granule_bytes = config.granule_bytes;
    g->work = stress_work_create(1, &work, error, error_capacity);
    if (g->work == NULL)
        return -1;
    stress_simcuda()->ledger_read(-1, &g->base);
    g->allocator = g->ops->create(&of_allocator, error, error_capacity);
    if (g->ops == &stress_berm_ops && g->allocator != NULL)
        g->growth_bytes = option_bytes("growth_handle");
    return g->allocator == NULL ? -1 : 0;
}

// Everything is freed; the allocator, its audit and the device agree.
static void game_settle(game_t *g) {
    stress_adversary_result_t *result = g->result;
    stress_figures_t figures;
    simcuda_ledger_t ledger;
    char error[200] = "";
    g->ops->figures(g->allocator, &figures);
    result->peak_reserved_bytes = figures.reserved_peak_bytes;
    result->moved_bytes = figures.moved_bytes;
    result->host_waits = figures.host_waits;
    result->driver_ns = stress_device_driver_ns() - stress_work_own(g->work).driver_ns;
    if (result->peak_live_bytes > 0)
        result->reserved_over_live =
            (double)result->peak_reserved_bytes / (double)result->peak_live_bytes;
    bound_set(g);
    g->is_over = false;
    while (g->count > 0 && !g->is_over)
        game_free(g, g->count - 1);
    if (g->ops->audit != NULL && g->ops->audit(g->allocator, error, sizeof error) != 0)
        note(g, error);
    g->ops->figures(g->allocator, &figures);
    stress_simcuda()->ledger_read(-1, &ledger);
    if (figures.reserved_bytes != ledger.used_bytes - g->base.used_bytes)
        note(g, "allocator and device do not agree on what is reserved");
    if (figures.allocated_bytes != 0)
        note(g, "something is allocated after everything was freed");
}

static void game_end_check(game_t *g) {
    const simcuda_ledger_t *base = &g->base;
    stress_adversary_result_t *result = g->result;
    simcuda_ledger_t now;
    simcuda_hazard_t hazard;
    uint64_t live_blocks = 0;
    g->ops->destroy(g->allocator, &live_blocks);
    stress_simcuda()->ledger_read(-1, &now);
    result->leaked = live_blocks + (now.reservations - base->reservations) +
                     (now.handles - base->handles) + (now.mappings - base->mappings) +
                     (now.allocations - base->allocations) + (now.events - base->events);
    result->hazards = stress_simcuda()->hazard_count();
    if (result->hazards > 0 && stress_simcuda()->hazard_read(0, &hazard) == 0)
        (void)snprintf(result->first_hazard, sizeof result->first_hazard, "%.240s", hazard.text);
}

static int options_check(const stress_adversary_options_t *options, char *error,
                         size_t error_capacity) {
    const char *what = NULL;
    if (kind_find(options->kind) == NULL)
        what = "no such adversary";
    else if (options->ops->is_per_process)
        what = "plays against models and berm, not against allocators in a process of their own";
    else if (stress_simcuda() == NULL)
        what = "plays on the simulated device only";
    else if (options->unit_bytes == 0 || options->unit_bytes % 512 != 0)
        what = "the unit (--unit) is no multiple of 512 bytes";
    else if (options->live_bytes % options->unit_bytes != 0 ||
             options->live_bytes / options->unit_bytes < 64)
        what = "the budget (--live) is no multiple of the unit (--unit), or less than 64 of them";
    if (what != NULL)
        (void)snprintf(error, error_capacity, "%s: %s", options->kind, what);
    return what == NULL ? 0 : -1;
}

int stress_adversary_run(const stress_adversary_options_t *options,
                         stress_adversary_result_t *result, char *error, size_t error_capacity) {
    if (options_check(options, error, error_capacity) != 0)
        return -1;
    uint64_t capacity_bytes = options->capacity_bytes;
    if (capacity_bytes == 0)
        capacity_bytes = CAPACITY_OF_LIVE * options->live_bytes;
    *result = (stress_adversary_result_t){.kind = options->kind,
                                          .allocator = options->ops->name,
                                          .unit_bytes = options->unit_bytes,
                                          .capacity_bytes = capacity_bytes};
    game_t game = {.ops = options->ops,
                   .result = result,
                   .unit_bytes = options->unit_bytes,
                   .budget_bytes = options->live_bytes};
    int status = game_begin(&game, options, error, error_capacity);
    if (status == 0) {
        kind_find(options->kind)->play(&game);
        game_settle(&game);
        game_end_check(&game);
    }
    if (game.work != NULL)
        stress_work_destroy(game.work);
    trace_u64_map_destroy(&game.pins);
    free(game.blocks);
    return status;
}

bool stress_adversary_is_good(const stress_adversary_result_t *r) {
    return r->hazards == 0 && r->leaked == 0 && r->failure[0] == '\0' && !r->is_refused &&
           (!r->has_bound || r->peak_reserved_bytes <= r->bound_bytes);
}

void stress_adversary_emit(berm_emit_t *emit, const stress_adversary_result_t *r) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "adversary", r->kind);
    berm__emit_string(emit, "allocator", r->allocator);
    berm__emit_u64(emit, "unit_bytes", r->unit_bytes);
    berm__emit_u64(emit, "capacity_bytes", r->capacity_bytes);
    berm__emit_u64(emit, "allocs", r->allocs);
    berm__emit_u64(emit, "frees", r->frees);
    berm__emit_u64(emit, "served_bytes", r->served_bytes);
    berm__emit_u64(emit, "peak_live_bytes", r->peak_live_bytes);
    berm__emit_u64(emit, "peak_reserved_bytes", r->peak_reserved_bytes);
    berm__emit_double(emit, "reserved_over_live", r->reserved_over_live, 4);
    berm__emit_u64(emit, "peak_pinned_bytes", r->peak_pinned_bytes);
    if (r->has_bound)
        berm__emit_u64(emit, "bound_bytes", r->bound_bytes);
    else
        berm__emit_null(emit, "bound_bytes");
    berm__emit_u64(emit, "moved_bytes", r->moved_bytes);
    berm__emit_u64(emit, "host_waits", r->host_waits);
    berm__emit_u64(emit, "driver_us", r->driver_ns / 1000);
    berm__emit_bool(emit, "refused", r->is_refused);
    berm__emit_u64(emit, "refused_live_bytes", r->refused_live_bytes);
    berm__emit_u64(emit, "refused_size_bytes", r->refused_size_bytes);
    berm__emit_u64(emit, "hazards", r->hazards);
    berm__emit_string(emit, "first_hazard", r->first_hazard);
    berm__emit_u64(emit, "leaked", r->leaked);
    berm__emit_string(emit, "failure", r->failure);
    berm__emit_bool(emit, "good", stress_adversary_is_good(r));
    berm__emit_object_end(emit);
}
