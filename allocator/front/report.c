// SPDX-License-Identifier: Apache-2.0
// What a failed request says: one line that tells a real shortage from fragmentation, from a limit,
// and from memory that others hold. And what a slow one has done, for the log.
//
// Locks: the device's, but for the log. Calls the driver (cuMemGetInfo), on the failure path only.
#include <stdio.h>

#include "front/heap.h"
#include "host/log.h"
#include "policy/cache.h"

static unsigned long long mib(uint64_t bytes) {
    return (unsigned long long)(bytes >> 20);
}

static const char *cause_text(berm_status_t status) {
    switch (status) {
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case BERM_ERROR_LIMIT:
        return "the limit stands in the way";
    case BERM_ERROR_CEILING:
        return "the driver's number of mappings is used up";
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
    char wanted[40], limit[40] = "no limit", outside[80] = "";
    uint64_t free_bytes, obtainable, live, live_peak;
    device->out_of_memory += is_shortage;
    bool is_known = memory_read(device, handle, &free_bytes, &obtainable);
    berm__counts_requested_read(device, &live, &live_peak);
    if (size_bytes < BERM_MIB(1))
        (void)snprintf(wanted, sizeof wanted, "%llu bytes", (unsigned long long)size_bytes);
    else
        (void)snprintf(wanted, sizeof wanted, "%.1f MiB", (double)size_bytes / (1 << 20));
    if (device->limit_bytes != UINT64_MAX)
        (void)snprintf(limit, sizeof limit, "limit %llu MiB", mib(device->limit_bytes));
    if (is_known) {
        uint64_t held = device->phys.reserved_bytes + free_bytes;
        uint64_t others = device->gpu.memory_bytes > held ? device->gpu.memory_bytes - held : 0;
        (void)snprintf(outside, sizeof outside, "held outside berm %llu MiB, free %llu MiB, ",
                       mib(others), mib(free_bytes));
    }
    return berm__error_set(
        status,
        "%s wanted on device %d: %s; largest obtainable %llu MiB; live %llu MiB, "
        "cached %llu MiB, reserved %llu MiB, %sdevice %llu MiB, %s",
        wanted, device->gpu.ordinal, cause_text(status), mib(obtainable), mib(live),
        mib(berm__device_cached_bytes(device)), mib(device->phys.reserved_bytes), outside,
        mib(device->gpu.memory_bytes), limit);
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
    const uint64_t mib = BERM_MIB(1);
    BERM_LOG(BERM_LOG_INFO,
             "device %d: for %llu bytes, %llu MiB were created and %llu MiB moved, with %llu waits",
             device->gpu.ordinal, (unsigned long long)size_bytes,
             (unsigned long long)((after.created_bytes - before.created_bytes) / mib),
             (unsigned long long)((after.moved_bytes - before.moved_bytes) / mib),
             (unsigned long long)(after.host_waits - before.host_waits));
}
