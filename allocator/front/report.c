// SPDX-License-Identifier: Apache-2.0
// The figures of a failed request, and its line, which tells a real shortage from fragmentation,
// from a limit, and from memory that others hold. See report.h. And what a slow request has done,
// for the log.
//
// Locks: the device's, but for the log. Calls the driver (cuMemGetInfo), on the failure path only.
#include "front/report.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "front/tag.h"
#include "host/clock.h"
#include "host/log.h"
#include "policy/cache.h"

berm_figure_text_t berm__bytes_text(uint64_t bytes) {
    berm_figure_text_t text;
    (void)snprintf(text.at, sizeof text.at, "%llu byte%s", (unsigned long long)bytes,
                   BERM_PLURAL(bytes));
    return text;
}

berm_figure_text_t berm__mib_text(uint64_t bytes) {
    berm_figure_text_t text;
    if (bytes > 0 && bytes < BERM_MIB(1)) // where MiB would say too little
        return berm__bytes_text(bytes);
    (void)snprintf(text.at, sizeof text.at, "%.1f MiB", (double)bytes / (1 << 20));
    return text;
}

static bool reads_the_same(uint64_t one, uint64_t other) {
    return one != other && strcmp(berm__mib_text(one).at, berm__mib_text(other).at) == 0;
}

static const char *cause_text(berm_status_t status) {
    switch (status) {
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case BERM_ERROR_LIMIT:
        return "the limit stands in the way";
    case BERM_ERROR_CEILING:
        return "the driver's number of handles, mappings or files is used up";
    case BERM_ERROR_CAPTURE:
        return "a stream is being captured, and mappings must not change meanwhile (sync_edits)";
    default:
        return berm_status_name(status);
    }
}

// The pool that the request was for; NULL if it is not there.
static berm_pool_t *pool_of(berm_device_t *device, const berm_want_t *want) {
    const berm_stream_ref_t *stream = berm__device_stream_find(device, want->stream);
    berm_group_t *group = berm__group_find(device, want->id);
    if (group == NULL)
        group = &device->group;
    return stream != NULL ? berm__group_pool_find(group, stream) : NULL;
}

// What the driver says is free, and what could be had with it.
static void memory_read(berm_shortage_t *shortage, berm_device_t *device) {
    size_t free_now = 0, total = 0;
    bool is_pushed;
    berm_pool_t *pool = pool_of(device, &shortage->want);
    bool has_context = berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK;
    shortage->knows_driver = has_context && BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info,
                                                          &free_now, &total) == BERM_CU_SUCCESS;
    shortage->free_bytes = free_now;
    shortage->obtainable = berm__device_obtainable(device, pool, free_now);
    shortage->largest_free_bytes = pool != NULL ? berm__pool_largest_free(pool) : 0;
    shortage->is_plain = pool != NULL && berm__pool_is_plain(pool);
    berm_cu_uuid_t uuid;
    shortage->has_uuid = has_context && device->gpu.drv->device_get_uuid != NULL &&
                         BERM_DRV_CALL(device->gpu.drv, OTHER, device_get_uuid, &uuid,
                                       device->gpu.device) == BERM_CU_SUCCESS;
    if (shortage->has_uuid)
        memcpy(shortage->uuid, &uuid, sizeof shortage->uuid);
    berm__gpu_leave(&device->gpu, is_pushed);
}

static void figures_read(berm_shortage_t *shortage, berm_device_t *device) {
    const berm_phys_t *phys = &device->phys;
    shortage->memory_bytes = device->gpu.memory_bytes;
    shortage->moves_pages = !device->remap_is_off && !device->gpu.is_plain;
    shortage->is_plain_by_option = berm__heap.options.backing == BERM_BACKING_PLAIN;
    shortage->granule_bytes = device->gpu.granule_bytes;
    shortage->limit_bytes = device->limit_bytes;
    shortage->limit_source = device->limit_source;
    shortage->reserved_bytes = phys->reserved_bytes;
    shortage->exported_bytes = phys->exported_bytes;
    shortage->pinned_bytes = berm__pins_bytes(device);
    shortage->poisoned_bytes = device->poisoned_bytes;
    shortage->cached_bytes = berm__device_cached_bytes(device);
    berm__mutex_lock(&device->figures_lock);
    shortage->live_bytes = device->requested.current;
    shortage->blocks = device->blocks.current;
    shortage->allocated_bytes = device->allocated.current;
    shortage->awaited_bytes = device->active.current - device->allocated.current;
    berm__mutex_unlock(&device->figures_lock);
    uint64_t held = shortage->reserved_bytes + shortage->free_bytes;
    if (shortage->knows_driver && shortage->memory_bytes > held)
        shortage->outside_bytes = shortage->memory_bytes - held;
}

// A driver has ceilings of its own, and names them as a lack of memory. Where it has refused memory
// although much more than the request is free, one of them it is. The last of a device may be
// refused for other reasons: what the driver keeps for itself.
static bool is_ceiling(const berm_shortage_t *shortage, const berm_device_t *device) {
    uint64_t spare = berm__max_u64(BERM_MIB(64), device->gpu.memory_bytes / 64);
    return shortage->status == BERM_ERROR_OUT_OF_DEVICE_MEMORY && shortage->knows_driver &&
           shortage->driver_symbol != NULL && !shortage->is_plain && shortage->free_bytes > spare &&
           shortage->want.size_bytes < shortage->free_bytes - spare &&
           shortage->want.size_bytes <= berm__device_growth_bytes(device);
}

static void line_write(berm_shortage_t *shortage, int ordinal) {
    char limit[48] = "no limit", outside[96] = "", refused[64] = "";
    uint64_t size_bytes = shortage->want.size_bytes, obtainable = shortage->obtainable.bytes;
    // What is compared with what is wanted must not read the same when it is not.
    bool is_exact =
        reads_the_same(size_bytes, obtainable) || reads_the_same(size_bytes, shortage->limit_bytes);
    berm_figure_text_t (*text)(uint64_t) = is_exact ? berm__bytes_text : berm__mib_text;
    if (shortage->limit_bytes != UINT64_MAX)
        (void)snprintf(limit, sizeof limit, "limit %s", text(shortage->limit_bytes).at);
    if (shortage->driver_symbol != NULL)
        (void)snprintf(refused, sizeof refused, " (%s returned %d)", shortage->driver_symbol,
                       shortage->driver_result);
    if (shortage->knows_driver)
        (void)snprintf(outside, sizeof outside, "held outside berm %s, free %s, ",
                       berm__mib_text(shortage->outside_bytes).at,
                       berm__mib_text(shortage->free_bytes).at);
    (void)snprintf(shortage->line, sizeof shortage->line,
                   "%s wanted on device %d: %s%s; largest obtainable %s; live %s, cached %s, "
                   "reserved %s, %sdevice %s, %s",
                   text(size_bytes).at, ordinal, cause_text(shortage->status), refused,
                   text(obtainable).at, berm__mib_text(shortage->live_bytes).at,
                   berm__mib_text(shortage->cached_bytes).at,
                   berm__mib_text(shortage->reserved_bytes).at, outside,
                   berm__mib_text(shortage->memory_bytes).at, limit);
}

// The record of a call site and a cause; the one that is quiet longest makes room.
static berm_warned_t *warned_find(berm_device_t *device, const void *site, berm_status_t status) {
    berm_warned_t *oldest = &device->warned[0];
    for (unsigned i = 0; i < BERM_WARNED_MAX; i++) {
        berm_warned_t *warned = &device->warned[i];
        if (warned->is_used && warned->site == site && warned->status == status)
            return warned;
        if (oldest->is_used && (!warned->is_used || warned->line_ns < oldest->line_ns))
            oldest = warned;
    }
    *oldest = (berm_warned_t){.site = site, .status = status};
    return oldest;
}

static _Thread_local bool is_quiet;

bool berm_report_enable(bool is_enabled) {
    bool was_quiet = is_quiet;
    is_quiet = !is_enabled;
    return !was_quiet;
}

static void due_decide(berm_shortage_t *shortage, berm_device_t *device) {
    const uint64_t interval_ns = 1000000000;
    if (is_quiet) // is_due stays false
        return;
    berm_warned_t *warned = warned_find(device, shortage->site, shortage->status);
    uint64_t now_ns = berm__clock_ns();
    shortage->is_due = !warned->is_used || now_ns - warned->line_ns >= interval_ns;
    shortage->left_out = warned->left_out;
    warned->left_out = shortage->is_due ? 0 : warned->left_out + 1;
    if (shortage->is_due)
        warned->line_ns = now_ns;
    warned->is_used = true;
}

berm_status_t berm__shortage_take(berm_shortage_t *shortage, berm_device_t *device,
                                  const berm_want_t *want, berm_status_t status, uint64_t errors) {
    memset(shortage, 0, sizeof *shortage);
    shortage->status = status;
    shortage->want = *want;
    shortage->site = berm__call_site();
    shortage->tag = berm__tag_top();
    bool is_shortage = status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT;
    device->out_of_memory += is_shortage;
    if (status != BERM_ERROR_LIMIT && berm__drv_error_count() != errors)
        shortage->driver_symbol = berm__drv_error_last(&shortage->driver_result);
    memory_read(shortage, device);
    figures_read(shortage, device);
    if (is_ceiling(shortage, device))
        shortage->status = BERM_ERROR_CEILING;
    line_write(shortage, device->gpu.ordinal);
    due_decide(shortage, device);
    if (shortage->is_due)
        berm__holders_take(device, &shortage->holders);
    return berm__error_set(shortage->status, "%s", shortage->line);
}

// --- slow requests -------------------------------------------------------------------------------

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
             device->gpu.ordinal, berm__bytes_text(size_bytes).at,
             berm__mib_text(after.created_bytes - before.created_bytes).at,
             berm__mib_text(after.moved_bytes - before.moved_bytes).at, (unsigned long long)waits,
             BERM_PLURAL(waits));
}
