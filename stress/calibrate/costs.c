// SPDX-License-Identifier: Apache-2.0
// Fits base + per mapping + per MiB to measured points, and writes them as a latency file, in the
// form that stress/latency.c reads. Measuring is left to timing.c.
//
// The fit: per MiB from the smallest and the largest size of one mapping, then per mapping from the
// fewest and the most mappings, then the base from the smallest point. Straight lines through
// medians, not a regression: on a simulated device they give back exactly what it was set to.
// What would be negative is 0. Nothing is allocated; nothing may fail.
#include <time.h>

#include "stress/calibrate/calibrate.h"

#define MIB           (UINT64_C(1) << 20)
#define LATENCY_LIMIT UINT64_C(1000000000000)

static const struct {
    const char *name, *function;
    size_t offset;
} calls[STRESS_CALIBRATE_CALLS] = {
    {"reserve", "cuMemAddressReserve", offsetof(simcuda_costs_t, reserve)},
    {"address_free", "cuMemAddressFree", offsetof(simcuda_costs_t, address_free)},
    {"create", "cuMemCreate", offsetof(simcuda_costs_t, create)},
    {"release", "cuMemRelease", offsetof(simcuda_costs_t, release)},
    {"map", "cuMemMap", offsetof(simcuda_costs_t, map)},
    {"set_access", "cuMemSetAccess", offsetof(simcuda_costs_t, set_access)},
    {"unmap", "cuMemUnmap", offsetof(simcuda_costs_t, unmap)},
    {"malloc", "cuMemAlloc", offsetof(simcuda_costs_t, malloc_)},
    {"free", "cuMemFree", offsetof(simcuda_costs_t, free_)},
    {"event_record", "cuEventRecord", offsetof(simcuda_costs_t, event_record)},
    {"event_query", "cuEventQuery", offsetof(simcuda_costs_t, event_query)},
    {"stream_wait", "cuStreamWaitEvent", offsetof(simcuda_costs_t, stream_wait)},
    {"synchronize", "cuStreamSynchronize", offsetof(simcuda_costs_t, synchronize)},
    {"mem_info", "cuMemGetInfo", offsetof(simcuda_costs_t, mem_info)},
    {"other", "cuCtxSetCurrent", offsetof(simcuda_costs_t, other)},
};

const char *stress_calibrate_call_name(int index) {
    return index >= 0 && index < STRESS_CALIBRATE_CALLS ? calls[index].name : NULL;
}

const char *stress_calibrate_call_function(int index) {
    return index >= 0 && index < STRESS_CALIBRATE_CALLS ? calls[index].function : NULL;
}

simcuda_cost_t *stress_calibrate_cost(simcuda_costs_t *costs, int index) {
    return (simcuda_cost_t *)(void *)((char *)costs + calls[index].offset);
}

static double slope_of(double low_ns, double high_ns, double distance) {
    double slope = distance > 0 ? (high_ns - low_ns) / distance : 0;
    return slope > 0 ? slope : 0;
}

static uint64_t whole_of(double ns) {
    if (ns <= 0)
        return 0;
    return ns >= (double)LATENCY_LIMIT ? LATENCY_LIMIT : (uint64_t)(ns + 0.5);
}

static double mib_of(const stress_calibrate_point_t *point) {
    return (double)point->bytes / (double)MIB;
}

static simcuda_cost_t cost_fit(const stress_calibrate_timing_t *timing, int index) {
    const stress_calibrate_point_t *least = NULL, *large = NULL, *many = NULL;
    for (size_t i = 0; i < timing->count; i++) {
        const stress_calibrate_point_t *p = &timing->points[i];
        if (p->index != index)
            continue;
        if (p->mappings > 1) {
            many = many == NULL || p->mappings > many->mappings ? p : many;
            continue;
        }
        least = least == NULL || p->bytes < least->bytes ? p : least;
        large = large == NULL || p->bytes > large->bytes ? p : large;
    }
    if (least == NULL)
        return (simcuda_cost_t){0};
    double per_mib =
        slope_of((double)least->median_ns, (double)large->median_ns, mib_of(large) - mib_of(least));
    double per_mapping = 0;
    if (many != NULL)
        per_mapping = slope_of((double)least->median_ns,
                               (double)many->median_ns - per_mib * (mib_of(many) - mib_of(least)),
                               (double)(many->mappings - least->mappings));
    // A call that always covers one mapping has that mapping's cost in its base.
    double base =
        (double)least->median_ns - per_mib * mib_of(least) - per_mapping * (double)least->mappings;
    return (simcuda_cost_t){whole_of(base), whole_of(per_mapping), whole_of(per_mib)};
}

void stress_calibrate_fit(stress_calibrate_timing_t *timing) {
    for (int i = 0; i < STRESS_CALIBRATE_CALLS; i++)
        *stress_calibrate_cost(&timing->costs, i) = cost_fit(timing, i);
}

void stress_calibrate_write(FILE *file, const stress_calibrate_driver_t *driver,
                            stress_calibrate_timing_t *timing,
                            const stress_alias_verdict_t *alias) {
    char date[32] = "unknown";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) != NULL)
        (void)strftime(date, sizeof date, "%Y-%m-%d", &parts);
    (void)fprintf(file,
                  "# What driver calls cost the host, measured by berm calibrate; for --latency.\n"
                  "# device: %s%s\n"
                  "# driver: CUDA %d.%d\n"
                  "# date: %s\n"
                  "# medians of %u repeats\n"
                  "# alias: %s: %s\n",
                  driver->name, stress_device_is_simulated() ? " (simulated)" : "",
                  driver->version / 1000, driver->version % 1000 / 10, date, timing->repeats,
                  stress_alias_name(alias->verdict), alias->why);
    for (int i = 0; i < STRESS_CALIBRATE_CALLS; i++) {
        const simcuda_cost_t *cost = stress_calibrate_cost(&timing->costs, i);
        (void)fprintf(file, "%s.base_ns=%llu\n", calls[i].name, (unsigned long long)cost->base_ns);
        (void)fprintf(file, "%s.per_mapping_ns=%llu\n", calls[i].name,
                      (unsigned long long)cost->per_mapping_ns);
        (void)fprintf(file, "%s.ns_per_mib=%llu\n", calls[i].name,
                      (unsigned long long)cost->ns_per_mib);
    }
}
