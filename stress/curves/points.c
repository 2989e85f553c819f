// SPDX-License-Identifier: Apache-2.0
// The points of a trace: which there are, and their replays. The common capacity is common.c.
//
// A replay gets the peak of live times (1 + headroom), in whole granules, as its device, and the
// same headroom as its option: with a smaller one the allocator would not use what it may have.
// Locks: none. May fail: a device or an allocator cannot be made; running out of memory is a
// figure.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "stress/curves/inside.h"

const char *const curves_kind_names[] = {"uncapped", "capped", "common"};

static bool takes_headroom(const curves_variant_t *variant) {
    return variant->ops->takes_headroom;
}

size_t curves_berm_count(const curves_options_t *options) {
    size_t count = 0;
    for (size_t i = 0; i < options->variant_count; i++)
        count += curves_is_named(&options->variants[i], "berm");
    return count;
}

bool curves_is_named(const curves_variant_t *variant, const char *name) {
    return strcmp(variant->ops->name, name) == 0;
}

size_t curves_variant_find(const curves_options_t *options, const char *name) {
    size_t i = 0;
    while (i < options->variant_count && !curves_is_named(&options->variants[i], name))
        i++;
    return i;
}

static bool has_common(const curves_options_t *options) {
    return curves_variant_find(options, "expandable") < options->variant_count &&
           curves_berm_count(options) > 0;
}

size_t curves_point_count(const curves_options_t *options) {
    size_t count = 0;
    for (size_t i = 0; i < options->variant_count; i++)
        count += options->headroom_count +
                 (takes_headroom(&options->variants[i]) ? options->headroom_count : 1);
    if (has_common(options))
        count += 2 * curves_berm_count(options);
    return count * options->latency_count;
}

uint64_t curves_capacity_bytes(uint64_t peak_live_bytes, double headroom_pct,
                               uint64_t granule_bytes) {
    uint64_t bytes = (uint64_t)ceil((double)peak_live_bytes * (1 + headroom_pct / 100));
    return berm__max_u64(berm__align_up(bytes, granule_bytes), granule_bytes);
}

// The points of one latency that are not COMMON; returns behind the last.
static curves_point_t *fill_latency(const curves_options_t *options, const curves_point_t *like,
                                    curves_point_t *point) {
    for (uint32_t variant = 0; variant < options->variant_count; variant++) {
        bool takes = takes_headroom(&options->variants[variant]);
        for (size_t i = 0; i < (takes ? options->headroom_count : 1); i++) {
            *point = *like;
            point->kind = CURVES_UNCAPPED;
            point->variant = variant;
            point->headroom_pct = takes ? options->headrooms_pct[i] : -1;
            point++->capacity_bytes = CURVES_UNCAPPED_FACTOR * like->peak_live_bytes;
        }
        for (size_t i = 0; i < options->headroom_count; i++) {
            *point = *like;
            point->kind = CURVES_CAPPED;
            point->variant = variant;
            point++->headroom_pct = options->headrooms_pct[i];
        }
    }
    return point;
}

void curves_points_fill(const curves_options_t *options, const trace_t *trace, uint32_t number,
                        curves_point_t *points) {
    curves_point_t *point = points;
    for (uint32_t latency = 0; latency < options->latency_count; latency++) {
        const curves_point_t like = {.trace = number,
                                     .latency = latency,
                                     .peak_live_bytes = trace->peak_live_bytes,
                                     .headroom_pct = -1,
                                     .ratio = -1,
                                     .break_even = -1};
        point = fill_latency(options, &like, point);
        for (uint32_t variant = 0; has_common(options) && variant < options->variant_count;
             variant++) {
            if (!curves_is_named(&options->variants[variant], "berm"))
                continue;
            for (int i = 0; i < 2; i++, point++) {
                *point = like;
                point->kind = CURVES_COMMON;
                point->of_variant = variant;
                point->variant =
                    i == 0 ? variant : (uint32_t)curves_variant_find(options, "expandable");
            }
        }
    }
}

// --- running -------------------------------------------------------------------------------------

void curves_replay_options(const curves_options_t *options, const curves_point_t *point,
                           stress_replay_options_t *replay) {
    stress_replay_options_default(replay);
    const curves_variant_t *variant = &options->variants[point->variant];
    replay->ops = variant->ops;
    replay->conf = variant->conf;
    replay->headroom_pct = variant->ops->takes_headroom ? point->headroom_pct : -1;
    replay->capacity_bytes = point->capacity_bytes;
}

int curves_point_run(const curves_options_t *options, const trace_t *trace, curves_point_t *point,
                     char *error, size_t error_capacity) {
    stress_replay_options_t replay;
    stress_replay_result_t r;
    curves_replay_options(options, point, &replay);
    if (stress_replay(trace, &replay, &r, error, error_capacity) != 0)
        return -1;
    point->is_done = r.completed;
    point->peak_reserved_bytes = r.peak_reserved_bytes;
    point->moved_bytes = r.moved_bytes_total;
    point->allocated_bytes = r.allocated_bytes_total;
    point->host_waits = r.host_waits;
    point->host_wait_ns = r.host_wait_ns;
    point->calls = r.driver_calls;
    point->driver_ns = r.driver_ns;
    point->findings = r.hazards + r.leaked_blocks + r.check_failures;
    const char *note = r.failure[0] != '\0'        ? r.failure
                       : r.first_hazard[0] != '\0' ? r.first_hazard
                                                   : r.first_check_failure;
    (void)snprintf(point->note, sizeof point->note, "%.*s", CURVES_NOTE_CAPACITY - 1, note);
    stress_replay_result_destroy(&r);
    return 0;
}

uint64_t curves_granule_bytes(void) {
    simcuda_config_t config;
    stress_simcuda()->config_default(&config);
    return config.granule_bytes;
}

int curves_device_open(const curves_options_t *options, size_t latency, char *error,
                       size_t error_capacity) {
    const stress_device_options_t device = {.name = "sim", .latency = options->latencies[latency]};
    return stress_device_open(&device, error, error_capacity);
}

int curves_options_check(const curves_options_t *options, char *error, size_t error_capacity) {
    int status = 0;
    for (size_t i = 0; i < options->latency_count && status == 0; i++) {
        status = curves_device_open(options, i, error, error_capacity);
        for (size_t j = 0; j < options->variant_count && status == 0; j++) {
            const curves_variant_t *variant = &options->variants[j];
            const stress_allocator_options_t make = {
                .conf = variant->conf, .headroom_pct = -1, .limit_bytes = UINT64_MAX};
            stress_allocator_t *allocator = variant->ops->create(&make, error, error_capacity);
            uint64_t live_blocks = 0;
            if (allocator != NULL)
                variant->ops->destroy(allocator, &live_blocks);
            status = allocator != NULL ? 0 : -1;
        }
        if (status == 0)
            stress_device_close();
    }
    return status;
}

static int latency_run(const curves_options_t *options, const trace_t *trace, size_t latency,
                       curves_point_t *points, char *error, size_t error_capacity) {
    if (curves_device_open(options, latency, error, error_capacity) != 0)
        return -1;
    uint64_t granule_bytes = curves_granule_bytes();
    int status = 0;
    for (size_t i = 0, count = curves_point_count(options); i < count && status == 0; i++) {
        curves_point_t *point = &points[i];
        if (point->latency != latency || point->kind == CURVES_COMMON)
            continue;
        point->capacity_bytes = curves_capacity_bytes(
            point->kind == CURVES_UNCAPPED ? point->capacity_bytes : point->peak_live_bytes,
            point->kind == CURVES_UNCAPPED ? 0 : point->headroom_pct, granule_bytes);
        // Whole segments of an allocator do not fit into a few granules.
        if (point->kind == CURVES_UNCAPPED)
            point->capacity_bytes = berm__max_u64(point->capacity_bytes, BERM_GIB(1));
        status = curves_point_run(options, trace, point, error, error_capacity);
    }
    stress_device_close();
    return status;
}

size_t curves_part_count(const curves_options_t *options) {
    return options->latency_count + has_common(options);
}

int curves_part_run(const curves_options_t *options, const trace_t *trace, size_t part,
                    curves_point_t *points, char *error, size_t error_capacity) {
    return part < options->latency_count
               ? latency_run(options, trace, part, points, error, error_capacity)
               : curves_common_run(options, trace, points, error, error_capacity);
}

// --- figures -------------------------------------------------------------------------------------

double curves_moved_share(const curves_point_t *point) {
    return point->allocated_bytes == 0
               ? 0
               : (double)point->moved_bytes / (double)point->allocated_bytes;
}

uint64_t curves_time_ns(const curves_point_t *point) {
    return point->driver_ns + point->host_wait_ns;
}

double curves_reserved_ratio(const curves_point_t *point) {
    return point->peak_live_bytes == 0
               ? 0
               : (double)point->peak_reserved_bytes / (double)point->peak_live_bytes;
}
