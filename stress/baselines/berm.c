// SPDX-License-Identifier: Apache-2.0
// berm as one of the allocators of the harness: an adapter over the public C API and nothing else.
//
// Options have the form of BERM_CONF; headroom and limit of the harness are added to them, and the
// driver is the one the harness opened. A request that fails is reported by the harness, so the
// library's warnings are off; the option log, among the options, brings them back.
// Locks: none of its own. May fail: whatever berm.h says; out of memory and limits are one result.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "berm_introspect.h"
#include "stress/baselines/baselines.h"
#include "stress/device.h"

enum {
    CONF_CAPACITY = 4096
};

struct stress_allocator {
    int device;
};

static int source_device; // of the one instance there can be

// berm's time is the device's: a replay gives the same figures each time.
static uint64_t virtual_now_ns(void *context) {
    (void)context;
    return stress_simcuda()->now_ns();
}

static void berm_calls_read(stress_calls_t *calls) {
    berm_stats_t stats = {.size = sizeof stats};
    if (berm_stats_read(source_device, &stats) != BERM_OK)
        return;
    calls->by_name = stats.driver_calls;
}

static bool berm_conf_write(const stress_allocator_options_t *options, char *conf) {
    char headroom[64] = "", limit[64] = "";
    if (options->headroom_pct >= 0)
        (void)snprintf(headroom, sizeof headroom, ",headroom:%.6g", options->headroom_pct);
    if (options->limit_bytes != UINT64_MAX)
        (void)snprintf(limit, sizeof limit, ",limit:%" PRIu64, options->limit_bytes);
    int length = snprintf(conf, CONF_CAPACITY, "driver:libcuda.so.1,log:error%s%s%s%s", headroom,
                          limit, options->conf[0] != '\0' ? "," : "", options->conf);
    return length >= 0 && length < CONF_CAPACITY;
}

static stress_allocator_t *berm_create(const stress_allocator_options_t *options, char *error,
                                       size_t error_capacity) {
    char conf[CONF_CAPACITY];
    if (!berm_conf_write(options, conf)) {
        (void)snprintf(error, error_capacity, "berm: options longer than %d bytes", CONF_CAPACITY);
        return NULL;
    }
    stress_allocator_t *a = calloc(1, sizeof *a);
    if (a == NULL) {
        (void)snprintf(error, error_capacity, "berm: no memory");
        return NULL;
    }
    (void)berm_clock_set(stress_simcuda() != NULL ? virtual_now_ns : NULL, NULL);
    berm_status_t status = berm_init(conf);
    if (status == BERM_ERROR_OPTION_UNKNOWN || status == BERM_ERROR_OPTION_VALUE) {
        error[0] = '\0'; // the library has logged the line itself
        free(a);
        return NULL;
    }
    if (status != BERM_OK) {
        const char *message = berm_error_message();
        (void)snprintf(error, error_capacity, "berm: %s",
                       *message != '\0' ? message : berm_status_text(status));
        free(a);
        return NULL;
    }
    a->device = options->device;
    source_device = options->device;
    stress_device_source_set(berm_calls_read);
    return a;
}

static void berm_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    size_t live = 0;
    stress_device_source_set(NULL);
    (void)berm_shutdown(&live);
    (void)berm_clock_set(NULL, NULL);
    *live_blocks = live;
    free(a);
}

static stress_result_t berm_alloc_block(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                        uint64_t *addr) {
    switch (berm_alloc(size_bytes, a->device, stream, addr)) {
    case BERM_OK:
        return STRESS_OK;
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
    case BERM_ERROR_LIMIT:
        return STRESS_OUT_OF_MEMORY;
    default:
        return STRESS_ERROR;
    }
}

static stress_result_t berm_free_block(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                       void *stream) {
    (void)size_bytes;
    return berm_free(addr, a->device, stream) == BERM_OK ? STRESS_OK : STRESS_ERROR;
}

static stress_result_t berm_record_stream_block(stress_allocator_t *a, uint64_t addr,
                                                void *stream) {
    (void)a;
    return berm_record_stream(addr, stream) == BERM_OK ? STRESS_OK : STRESS_ERROR;
}

static void berm_figures(stress_allocator_t *a, stress_figures_t *figures) {
    berm_stats_t stats = {.size = sizeof stats};
    *figures = (stress_figures_t){0};
    if (berm_stats_read(a->device, &stats) != BERM_OK)
        return;
    figures->requested_bytes = stats.requested_bytes.current;
    figures->allocated_bytes = stats.allocated_bytes.current;
    figures->active_bytes = stats.active_bytes.current;
    figures->reserved_bytes = stats.reserved_bytes.current;
    figures->reserved_peak_bytes = stats.reserved_bytes.peak;
    figures->allocated_peak_bytes = stats.allocated_bytes.peak;
    figures->moved_bytes = stats.moved_bytes;
    figures->host_waits = stats.host_waits;
    figures->planned_requests = stats.planned_requests;
}

static void berm_peaks_reset(stress_allocator_t *a) {
    (void)berm_stats_peaks_reset(a->device);
}

static uint64_t berm_largest_free(stress_allocator_t *a, void *stream) {
    uint64_t size_bytes = 0;
    (void)berm_largest_free_read(a->device, stream, &size_bytes);
    return size_bytes;
}

static uint64_t berm_largest_obtainable(stress_allocator_t *a, void *stream) {
    uint64_t size_bytes = 0;
    (void)berm_largest_obtainable_read(a->device, stream, &size_bytes);
    return size_bytes;
}

static const char *berm_message(stress_allocator_t *a) {
    (void)a;
    return berm_error_message();
}

static int berm_audit_run(stress_allocator_t *a, char *error, size_t error_capacity) {
    (void)a;
    int invariant = 0;
    if (berm_audit(&invariant) == BERM_OK)
        return 0;
    (void)snprintf(error, error_capacity, "berm: invariant %d: %s", invariant,
                   berm_error_message());
    return invariant != 0 ? invariant : -1;
}

const stress_allocator_ops_t stress_berm_ops = {
    .name = "berm",
    .summary = "this library, through its C API",
    .takes_headroom = true,
    .create = berm_create,
    .destroy = berm_destroy,
    .alloc = berm_alloc_block,
    .free = berm_free_block,
    .record_stream = berm_record_stream_block,
    .figures = berm_figures,
    .peaks_reset = berm_peaks_reset,
    .largest_free = berm_largest_free,
    .largest_obtainable = berm_largest_obtainable,
    .message = berm_message,
    .audit = berm_audit_run,
};
