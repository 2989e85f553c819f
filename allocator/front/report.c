// SPDX-License-Identifier: Apache-2.0
// What a failed request says: one line that tells a real shortage from fragmentation, from a limit,
// and from memory that others hold. And what a slow one has done, for the log.
//
// Locks: the device's, but for the log. Calls the driver (cuMemGetInfo), on the failure path only.
#include <stdio.h>
#include <string.h>

#include "front/heap.h"
#include "host/clock.h"
#include "host/log.h"
#include "policy/cache.h"

enum {
    FIGURE_CAPACITY = 32
};

typedef struct figure_text {
    char at[FIGURE_CAPACITY];
} figure_text_t;

static figure_text_t bytes_text(uint64_t bytes) {
    figure_text_t text;
    (void)snprintf(text.at, sizeof text.at, "%llu byte%s", (unsigned long long)bytes,
                   BERM_PLURAL(bytes));
    return text;
}

// In MiB with one decimal; in bytes below 1 MiB, where that would say too little.
static figure_text_t figure_text(uint64_t bytes) {
    figure_text_t text;
    if (bytes > 0 && bytes < BERM_MIB(1))
        return bytes_text(bytes);
    (void)snprintf(text.at, sizeof text.at, "%.1f MiB", (double)bytes / (1 << 20));
    return text;
}

static bool reads_the_same(uint64_t one, uint64_t other) {
    return one != other && strcmp(figure_text(one).at, figure_text(other).at) == 0;
}

static const char *cause_text(berm_status_t status) {
    switch (status) {
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case BERM_ERROR_LIMIT:
        return "the limit stands in the way";
    case BERM_ERROR_CEILING:
        return "the driver's number of mappings is used up";
    case BERM_ERROR_CAPTURE:
        return "a stream is being captured, and mappings must not change meanwhile (sync_edits)";
    default:
        return berm_status_name(status);
    }
}

// What the driver says is free, and what could be obtained with it; false if it says nothing.
static bool memory_read(berm_device_t *device, berm_stream_t handle, uint64_t *free_bytes,
                        uint64_t *obtainable) {
    size_t free_now = 0, total = 0;
    bool is_pushed;
    berm_stream_ref_t *stream = berm__device_stream_find(device, handle);
    bool is_known =
        berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK &&
        BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info, &free_now, &total) == BERM_CU_SUCCESS;
    *free_bytes = free_now;
    *obtainable = berm__device_obtainable(device, stream != NULL ? stream->pool : NULL, free_now);
    berm__gpu_leave(&device->gpu, is_pushed);
    return is_known;
}

berm_status_t berm__report_shortage(berm_device_t *device, uint64_t size_bytes,
                                    berm_stream_t handle, berm_status_t status) {
    bool is_shortage = status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT;
    char limit[48] = "no limit", outside[96] = "";
    uint64_t free_bytes, obtainable, live, live_peak;
    device->out_of_memory += is_shortage;
    bool is_known = memory_read(device, handle, &free_bytes, &obtainable);
    berm__counts_requested_read(device, &live, &live_peak);
    // What is compared with what is wanted must not read the same when it is not.
    bool is_exact =
        reads_the_same(size_bytes, obtainable) || reads_the_same(size_bytes, device->limit_bytes);
    figure_text_t (*text)(uint64_t) = is_exact ? bytes_text : figure_text;
    if (device->limit_bytes != UINT64_MAX)
        (void)snprintf(limit, sizeof limit, "limit %s", text(device->limit_bytes).at);
    if (is_known) {
        uint64_t held = device->phys.reserved_bytes + free_bytes;
        uint64_t others = device->gpu.memory_bytes > held ? device->gpu.memory_bytes - held : 0;
        (void)snprintf(outside, sizeof outside, "held outside berm %s, free %s, ",
                       figure_text(others).at, figure_text(free_bytes).at);
    }
    return berm__error_set(
        status,
        "%s wanted on device %d: %s; largest obtainable %s; live %s, cached %s, reserved %s, "
        "%sdevice %s, %s",
        text(size_bytes).at, device->gpu.ordinal, cause_text(status), text(obtainable).at,
        figure_text(live).at, figure_text(berm__device_cached_bytes(device)).at,
        figure_text(device->phys.reserved_bytes).at, outside,
        figure_text(device->gpu.memory_bytes).at, limit);
}

bool berm__report_is_due(berm_device_t *device, berm_status_t status, uint64_t *left_out) {
    const uint64_t interval_ns = 1000000000;
    berm_warned_t *warned = &device->warned[status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? 0
                                            : status == BERM_ERROR_LIMIT              ? 1
                                                                                      : 2];
    uint64_t now_ns = berm__clock_ns();
    if (warned->has_line && now_ns - warned->line_ns < interval_ns) {
        warned->left_out++;
        return false;
    }
    *left_out = warned->left_out;
    *warned = (berm_warned_t){.has_line = true, .line_ns = now_ns};
    return true;
}

void berm__report_log(uint64_t left_out) {
    if (left_out == 0)
        berm__log(BERM_LOG_WARN, "%s", berm__error_text());
    else
        berm__log(BERM_LOG_WARN, "%s (%llu more such since the last line)", berm__error_text(),
                  (unsigned long long)left_out);
}

berm_work_t berm__work_read(const berm_device_t *device) {
    return (berm_work_t){device->phys.created_bytes, device->phys.moved_bytes, device->host_waits};
}

void berm__work_log(const berm_device_t *device, uint64_t size_bytes, berm_work_t before,
                    berm_work_t after) {
    if (BERM_LIKELY(after.created_bytes == before.created_bytes &&
                    after.moved_bytes == before.moved_bytes &&
                    after.host_waits == before.host_waits))
        return;
    uint64_t waits = after.host_waits - before.host_waits;
    BERM_LOG(BERM_LOG_INFO, "device %d: for %s, %s were created and %s moved, with %llu wait%s",
             device->gpu.ordinal, bytes_text(size_bytes).at,
             figure_text(after.created_bytes - before.created_bytes).at,
             figure_text(after.moved_bytes - before.moved_bytes).at, (unsigned long long)waits,
             BERM_PLURAL(waits));
}
