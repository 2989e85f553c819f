// SPDX-License-Identifier: Apache-2.0
// berm_obtainable_read: how large a request could be, and at what price. The sizes are
// policy/largest.c's; prices are numbers of driver calls, times what one takes.
//
// Locks: the device's.
#include "base/bits.h"
#include "berm_diagnose.h"
#include "front/report.h"

// What a call takes for one page of 2 MiB, as published: simcuda's preset `typical` has the same
// figures (docs/simcuda.md).
enum {
    CREATE_NS = 193000,
    RELEASE_NS = 23000,
    MAP_NS = 1500,
    SET_ACCESS_NS = 36000,
    UNMAP_NS = 25600,
    WAIT_NS = 1000,
};

uint64_t berm__move_modelled_us(uint64_t pages) {
    return (pages * (UNMAP_NS + MAP_NS + SET_ACCESS_NS) + 999) / 1000;
}

// How many calls of each kind a request needs.
typedef struct bill {
    uint64_t creates, releases, maps, unmaps, waits;
} bill_t;

static uint64_t modelled_us(const bill_t *bill) {
    uint64_t ns = bill->creates * CREATE_NS + bill->releases * RELEASE_NS +
                  bill->maps * (MAP_NS + SET_ACCESS_NS) + bill->unmaps * UNMAP_NS +
                  bill->waits * WAIT_NS;
    return (ns + 999) / 1000;
}

static uint64_t learned_us(berm_drv_t *drv, const bill_t *bill) {
    const struct {
        uint64_t calls;
        berm_drv_kind_t kind;
    } rows[] = {{bill->creates, BERM_DRV_CREATE}, {bill->releases, BERM_DRV_RELEASE},
                {bill->maps, BERM_DRV_MAP},       {bill->maps, BERM_DRV_SET_ACCESS},
                {bill->unmaps, BERM_DRV_UNMAP},   {bill->waits, BERM_DRV_SYNCHRONIZE}};
    uint64_t ns = 0;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rows); i++) {
        if (rows[i].calls > 0 && atomic_load(&drv->timed_calls[rows[i].kind]) == 0)
            return UINT64_MAX;
        ns += rows[i].calls * berm__drv_mean_ns(drv, rows[i].kind);
    }
    return (ns + 999) / 1000;
}

static berm_price_t price_of(berm_device_t *device, uint64_t size_bytes, uint64_t pages,
                             const bill_t *bill) {
    return (berm_price_t){size_bytes, pages, modelled_us(bill), learned_us(device->gpu.drv, bill)};
}

// A step that gives no more than the one before costs no more either.
static berm_price_t dearer(const berm_price_t *before, berm_price_t price) {
    return price.size_bytes > before->size_bytes ? price : *before;
}

static void prices_fill(berm_prices_t *prices, berm_device_t *device, berm_pool_t *pool,
                        uint64_t pages_max, uint64_t driver_free) {
    unsigned lg = device->gpu.lg_granule;
    berm_obtainable_t all = berm__device_obtainable(device, pool, driver_free);
    const bill_t none = {0}, wait = {.waits = 1};
    uint64_t now = pool != NULL ? berm__pool_largest_free(pool) : 0;
    uint64_t waited = pool != NULL ? berm__pool_largest_awaited(pool) : 0;
    prices->now = price_of(device, now, 0, &none);
    prices->waited = dearer(&prices->now, price_of(device, waited, 0, &wait));
    bool moves = !device->remap_is_off && !device->gpu.is_plain;
    uint64_t idle = all.idle_bytes >> lg, free = moves ? all.free_bytes >> lg : 0;
    uint64_t pages = berm__min_u64(pages_max, idle + free);
    const bill_t move = {.maps = pages, .unmaps = pages > idle ? pages - idle : 0};
    prices->moved = dearer(&prices->waited, price_of(device, pages << lg, pages, &move));
    pages = idle + ((all.free_bytes + all.awaited_bytes) >> lg);
    // Where pages do not move they go back to the driver and come anew.
    const bill_t trim = {.maps = pages,
                         .unmaps = pages - idle,
                         .releases = moves ? 0 : pages - idle,
                         .creates = moves ? 0 : pages - idle,
                         .waits = all.awaited_bytes > 0};
    prices->trimmed = dearer(&prices->moved, price_of(device, pages << lg, pages, &trim));
    uint64_t new_pages = all.growth_bytes >> lg;
    const bill_t grow = {.maps = pages + new_pages,
                         .unmaps = trim.unmaps,
                         .releases = trim.releases,
                         .creates = trim.creates + new_pages,
                         .waits = trim.waits};
    prices->grown = dearer(&prices->trimmed, price_of(device, all.bytes, pages + new_pages, &grow));
}

berm_status_t berm_obtainable_read(int ordinal, berm_stream_t stream, uint64_t pages_max,
                                   berm_prices_t *prices) {
    berm_device_t *device;
    bool is_pushed;
    size_t free_bytes = 0, total_bytes = 0;
    if (prices == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_obtainable_read: prices is NULL");
    if (prices->size != sizeof *prices)
        return berm__error_set(BERM_ERROR_VERSION,
                               "berm_obtainable_read: a struct of %zu bytes, this library knows "
                               "%zu",
                               prices->size, sizeof *prices);
    *prices = (berm_prices_t)BERM_PRICES_INIT;
    berm_status_t status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    status = berm__drv_status(
        BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info, &free_bytes, &total_bytes));
    const berm_stream_ref_t *record = berm__device_stream_find(device, stream);
    if (status == BERM_OK)
        prices_fill(prices, device, record != NULL ? record->pool : NULL, pages_max, free_bytes);
    return berm__heap_device_leave(device, is_pushed, status, "berm_obtainable_read");
}
