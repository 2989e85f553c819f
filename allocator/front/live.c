// SPDX-License-Identifier: Apache-2.0
// Publishing statistics: see live.h.
//
// Locks: a device's while it is read, and its pools' one by one; none while the page is written.
#include "front/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "front/heap.h"
#include "front/leaving.h"
#include "host/clock.h"
#include "host/live.h"
#include "host/log.h"
#include "host/ticker.h"
#include "policy/pool.h"

static const uint64_t rest_ns = 200000000;

static berm_live_t live;
static berm_ticker_t ticker;

static uint64_t largest_free(berm_device_t *device) {
    uint64_t largest = 0;
    berm__mutex_lock(&device->lock);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        largest = berm__max_u64(largest, berm__pool_largest_range(pool));
    berm__mutex_unlock(&device->lock);
    return largest;
}

static void device_read(berm_device_t *device, const berm_stats_t *stats, berm_live_device_t *row) {
    *row = (berm_live_device_t){
        .device = (uint64_t)stats->device,
        .memory_bytes = device->gpu.memory_bytes,
        .requested_bytes = stats->requested_bytes.current,
        .requested_peak_bytes = stats->requested_bytes.peak,
        .allocated_bytes = stats->allocated_bytes.current,
        .allocated_peak_bytes = stats->allocated_bytes.peak,
        .active_bytes = stats->active_bytes.current,
        .reserved_bytes = stats->reserved_bytes.current,
        .reserved_peak_bytes = stats->reserved_bytes.peak,
        .cached_bytes = stats->cached_bytes,
        .limit_bytes = stats->limit_bytes,
        .largest_free_bytes = largest_free(device),
        .blocks = stats->blocks.current,
        .requests = stats->blocks.total_up,
        .frees = stats->blocks.total_down,
        .pools = stats->pools,
        .moved_bytes = stats->moved_bytes,
        .host_waits = stats->host_waits,
        .out_of_memory = stats->out_of_memory,
    };
}

static uint64_t calls_sum(const berm_driver_calls_t *calls) {
    return calls->reserve + calls->address_free + calls->create + calls->release + calls->map +
           calls->set_access + calls->unmap + calls->malloc_ + calls->free_ + calls->event_record +
           calls->event_query + calls->stream_wait + calls->synchronize + calls->other;
}

// A recording, which the owner has asked for (berm report PID), beside the page.
static void recording_give(void) {
    char path[PATH_MAX + 8];
    (void)snprintf(path, sizeof path, "%s.json", live.path);
    if (!berm__leaving_write(path, 0600))
        BERM_LOG(BERM_LOG_WARN, "live_page: '%s' cannot be written", path);
}

// The pools of a device; one that goes meanwhile has no row.
static void pools_read(berm_live_rows_t *rows, berm_device_t *device) {
    berm_pool_id_t ids[BERM_LIVE_POOLS_MAX];
    unsigned count = 0;
    ids[count++] = device->group.id;
    berm__mutex_lock(&device->lock);
    BERM_LIST_EACH (const berm_group_t, group, &device->groups, link)
        if (berm__pool_id_is_default(group->id))
            continue;
        else if (count + rows->pool_count < BERM_LIVE_POOLS_MAX)
            ids[count++] = group->id;
        else
            rows->pools_left_out++;
    berm__mutex_unlock(&device->lock);
    for (unsigned i = 0; i < count && rows->pool_count < BERM_LIVE_POOLS_MAX; i++) {
        berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
        if (berm_pool_stats_read(device->gpu.ordinal, ids[i], &stats) == BERM_OK)
            rows->pools[rows->pool_count++] =
                (berm_live_pool_t){.device = (uint64_t)device->gpu.ordinal,
                                   .id_high = ids[i].high,
                                   .id_low = ids[i].low,
                                   .blocks = stats.blocks,
                                   .requested_bytes = stats.requested_bytes,
                                   .allocated_bytes = stats.allocated_bytes,
                                   .awaited_bytes = stats.awaited_bytes,
                                   .reserved_bytes = stats.reserved_bytes};
    }
}

static uint64_t per_second(uint64_t now, uint64_t before, uint64_t spent_ns) {
    return spent_ns > 0 && now > before
               ? (uint64_t)((double)(now - before) * 1e9 / (double)spent_ns + 0.5)
               : 0;
}

// The rates of a device, from what it had when the page was written before.
static void rates_set(berm_live_device_t *row) {
    static struct {
        uint64_t requests, frees, time_ns;
    } before[BERM_DEVICES_MAX]; // the ticker's own
    uint64_t now_ns = berm__clock_own_ns(), at = row->device;
    if (before[at].time_ns != 0) {
        uint64_t spent_ns = now_ns - before[at].time_ns;
        row->requests_per_s = per_second(row->requests, before[at].requests, spent_ns);
        row->frees_per_s = per_second(row->frees, before[at].frees, spent_ns);
    }
    before[at].requests = row->requests;
    before[at].frees = row->frees;
    before[at].time_ns = now_ns;
}

static uint64_t live_tick(void *context) {
    static berm_live_rows_t rows; // the ticker's own
    (void)context;
    rows.device_count = rows.pool_count = rows.pools_left_out = 0;
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_stats_t stats = BERM_STATS_INIT;
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL || rows.device_count == BERM_LIVE_DEVICES_MAX ||
            berm_stats_read(ordinal, &stats) != BERM_OK)
            continue;
        berm_live_device_t *row = &rows.devices[rows.device_count++];
        device_read(device, &stats, row);
        rates_set(row);
        pools_read(&rows, device);
        rows.driver_calls = calls_sum(&stats.driver_calls);
    }
    berm__live_publish(&live, &rows);
    if (berm__live_is_asked(&live))
        recording_give();
    return rest_ns;
}

// At the end of the process the file goes; what else there is, is left as it is.
static void live_forget(void) {
    berm__live_close(&live);
}

void berm__live_start(void) {
    static bool is_registered;
    if (!berm__heap.options.live_page)
        return;
    if (!berm__live_open(&live)) {
        BERM_LOG(BERM_LOG_WARN, "live_page: %s/%s...: %s; berm top does not show this process",
                 berm__live_folder(), BERM_LIVE_PREFIX, strerror(errno));
        return;
    }
    if (!is_registered)
        is_registered = atexit(live_forget) == 0;
    if (!berm__ticker_start(&ticker, "berm-live", live_tick, NULL)) {
        berm__live_close(&live);
        BERM_LOG(BERM_LOG_WARN, "live_page: the system has no thread to give; berm top does not "
                                "show this process");
    }
}

void berm__live_stop(void) {
    berm__ticker_stop(&ticker);
    berm__live_close(&live);
}
