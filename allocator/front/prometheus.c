// SPDX-License-Identifier: Apache-2.0
// Writing statistics for Prometheus: see prometheus.h. Names are berm_ and what the statistic is,
// in base units; labels are the device, the pool where it is of one, the process and its rank.
//
// The file is written beside its place and renamed, so that a reader sees all of one moment.
// Locks: a device's while it is read, and its pools' one by one; none while the file is written.
// Calls cuMemGetInfo, for what others hold.
#include "front/prometheus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "front/heap.h"
#include "front/naming.h"
#include "host/log.h"
#include "host/ticker.h"
#include "policy/pool.h"

enum {
    PATH_BYTES = 512,
    POOLS_MAX = 64, // of a device; those of more have no lines
    LABEL_BYTES = 160,
};

static const uint64_t rest_ns = 1000000000;

static berm_ticker_t ticker;
static char path[PATH_BYTES];
static pid_t owner;
static bool has_warned;

// What one device has; the ticker's own.
typedef struct row {
    int device;
    berm_stats_t stats;
    uint64_t memory_bytes, largest_free_bytes, outside_bytes, segments;
    bool knows_outside;
    unsigned pool_count;
    berm_pool_id_t ids[POOLS_MAX];
    berm_pool_stats_t pools[POOLS_MAX];
} row_t;

static row_t rows[BERM_DEVICES_MAX];

static void outside_read(row_t *row, berm_device_t *device) {
    size_t free_now = 0, total = 0;
    bool is_pushed;
    row->knows_outside =
        berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK &&
        BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info, &free_now, &total) == BERM_CU_SUCCESS;
    berm__gpu_leave(&device->gpu, is_pushed);
    uint64_t known = device->phys.reserved_bytes + free_now;
    row->outside_bytes = row->memory_bytes > known ? row->memory_bytes - known : 0;
}

static void device_read(row_t *row, berm_device_t *device) {
    row->memory_bytes = device->gpu.memory_bytes;
    row->largest_free_bytes = row->segments = 0;
    row->pool_count = 0;
    berm__mutex_lock(&device->lock);
    outside_read(row, device);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        row->largest_free_bytes =
            berm__max_u64(row->largest_free_bytes, berm__pool_largest_range(pool));
        berm__mutex_lock(&pool->lock);
        BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
            row->segments += segment->mapped_bytes > 0;
        berm__mutex_unlock(&pool->lock);
    }
    row->ids[row->pool_count++] = device->group.id;
    BERM_LIST_EACH (const berm_group_t, group, &device->groups, link)
        if (row->pool_count < POOLS_MAX && !berm__pool_id_is_default(group->id))
            row->ids[row->pool_count++] = group->id;
    berm__mutex_unlock(&device->lock);
}

// A pool that goes meanwhile has no line.
static void pools_read(row_t *row) {
    unsigned count = 0;
    for (unsigned i = 0; i < row->pool_count; i++) {
        row->pools[count] = (berm_pool_stats_t)BERM_POOL_STATS_INIT;
        row->ids[count] = row->ids[i];
        count += berm_pool_stats_read(row->device, row->ids[i], &row->pools[count]) == BERM_OK;
    }
    row->pool_count = count;
}

static unsigned rows_read(void) {
    unsigned count = 0;
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        row_t *row = &rows[count];
        row->device = ordinal;
        row->stats = (berm_stats_t)BERM_STATS_INIT;
        if (device == NULL || berm_stats_read(ordinal, &row->stats) != BERM_OK)
            continue;
        device_read(row, device);
        pools_read(row);
        count++;
    }
    return count;
}

// --- writing -------------------------------------------------------------------------------------

static void head_write(FILE *file, const char *name, const char *type, const char *help) {
    (void)fprintf(file, "# HELP berm_%s %s\n# TYPE berm_%s %s\n", name, help, name, type);
}

static void labels_make(char labels[LABEL_BYTES], const row_t *row, const berm_pool_id_t *id) {
    char pool[64] = "";
    if (id != NULL && berm__pool_id_is_default(*id))
        (void)snprintf(pool, sizeof pool, ",pool=\"default\"");
    else if (id != NULL)
        (void)snprintf(pool, sizeof pool, ",pool=\"%" PRIu64 ":%" PRIu64 "\"", id->high, id->low);
    (void)snprintf(labels, LABEL_BYTES, "{device=\"%d\"%s,pid=\"%ld\",rank=\"%s\"}", row->device,
                   pool, (long)getpid(), berm__rank_text());
}

static void devices_write(FILE *file, unsigned count) {
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {
        {"requested_bytes", "gauge", "Bytes that live blocks were asked for with."},
        {"allocated_bytes", "gauge", "Bytes that live blocks occupy."},
        {"active_bytes", "gauge", "Allocated bytes, and freed ones that streams may still use."},
        {"reserved_bytes", "gauge", "Device memory that berm holds."},
        {"cached_bytes", "gauge", "Reserved bytes that are not active."},
        {"largest_free_bytes", "gauge", "Largest free block, but for what threads have cached."},
        {"outside_bytes", "gauge", "Device memory that others hold, the context among them."},
        {"memory_bytes", "gauge", "Memory of the device."},
        {"segments", "gauge", "Segments with memory."},
        {"blocks", "gauge", "Live blocks."},
        {"alloc_total", "counter", "Requests that were served."},
        {"free_total", "counter", "Blocks that were freed."},
        {"alloc_retries_total", "counter", "Requests that needed memory reclaimed or waited for."},
        {"oom_total", "counter", "Requests that failed for lack of device memory or a limit."},
        {"moved_bytes_total", "counter", "Bytes of pages that were given other addresses."},
        {"host_waits_total", "counter", "Times berm waited for the device."},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(metrics); i++) {
        head_write(file, metrics[i].name, metrics[i].type, metrics[i].help);
        for (unsigned k = 0; k < count; k++) {
            const row_t *row = &rows[k];
            const berm_stats_t *stats = &row->stats;
            const uint64_t values[] = {
                stats->requested_bytes.current,
                stats->allocated_bytes.current,
                stats->active_bytes.current,
                stats->reserved_bytes.current,
                stats->cached_bytes,
                row->largest_free_bytes,
                row->outside_bytes,
                row->memory_bytes,
                row->segments,
                stats->blocks.current,
                stats->blocks.total_up,
                stats->blocks.total_down,
                stats->retries,
                stats->out_of_memory,
                stats->moved_bytes,
                stats->host_waits,
            };
            _Static_assert(BERM_ARRAY_LENGTH(values) == BERM_ARRAY_LENGTH(metrics), "as many");
            char labels[LABEL_BYTES];
            labels_make(labels, row, NULL);
            if (row->knows_outside || strcmp(metrics[i].name, "outside_bytes") != 0)
                (void)fprintf(file, "berm_%s%s %" PRIu64 "\n", metrics[i].name, labels, values[i]);
        }
    }
}

static void pools_write(FILE *file, unsigned count) {
    static const struct {
        const char *name, *help;
    } metrics[] = {
        {"pool_allocated_bytes", "Bytes that live blocks of the pool occupy."},
        {"pool_reserved_bytes", "Device memory that is mapped in the pool."},
        {"pool_blocks", "Live blocks of the pool."},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(metrics); i++) {
        head_write(file, metrics[i].name, "gauge", metrics[i].help);
        for (unsigned k = 0; k < count; k++)
            for (unsigned p = 0; p < rows[k].pool_count; p++) {
                const berm_pool_stats_t *pool = &rows[k].pools[p];
                const uint64_t values[] = {pool->allocated_bytes, pool->reserved_bytes,
                                           pool->blocks};
                char labels[LABEL_BYTES];
                labels_make(labels, &rows[k], &rows[k].ids[p]);
                (void)fprintf(file, "berm_%s%s %" PRIu64 "\n", metrics[i].name, labels, values[i]);
            }
    }
}

// False with the reason in errno. What lies at the place of the temporary file is left of a process
// that was killed; no link is followed there.
static bool file_write(unsigned count) {
    char beside[PATH_BYTES + 8];
    (void)snprintf(beside, sizeof beside, "%s.part", path);
    (void)unlink(beside);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        int error = errno;
        if (fd >= 0)
            (void)close(fd);
        errno = error;
        return false;
    }
    devices_write(file, count);
    pools_write(file, count);
    bool is_good = ferror(file) == 0;
    is_good = fclose(file) == 0 && is_good;
    if (is_good && rename(beside, path) == 0)
        return true;
    int error = errno;
    (void)unlink(beside);
    errno = error;
    return false;
}

static uint64_t prometheus_tick(void *context) {
    (void)context;
    if (!file_write(rows_read()) && !has_warned) {
        BERM_LOG(BERM_LOG_WARN, "prometheus: '%s' cannot be written: %s", path, strerror(errno));
        has_warned = true;
    }
    return rest_ns;
}

static void prometheus_forget(void) {
    if (owner == getpid() && path[0] != '\0')
        (void)unlink(path);
}

void berm__prometheus_start(void) {
    static bool is_registered;
    if (berm__heap.options.prometheus[0] == '\0')
        return;
    berm__name_expand(berm__heap.options.prometheus, path, sizeof path);
    owner = getpid();
    has_warned = false;
    if (!is_registered)
        is_registered = atexit(prometheus_forget) == 0;
    if (!berm__ticker_start(&ticker, "berm-prometheus", prometheus_tick, NULL))
        BERM_LOG(BERM_LOG_WARN, "prometheus: the system has no thread to give; nothing is written");
}

void berm__prometheus_stop(void) {
    berm__ticker_stop(&ticker);
    prometheus_forget();
    path[0] = '\0';
}
