// SPDX-License-Identifier: Apache-2.0
// The hooks: see hooks.h. A route's filter is kept until the route has ended.
#include "hooks.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "berm.h"
#include "berm_introspect.h"
#include "hooks_raise.h"

namespace {

using berm_torch::Filter;
using berm_torch::PoolId;

berm_addr_t address(const void *pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

void *pointer(berm_addr_t addr) {
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr));
}

berm_pool_id_t pool_id(const PoolId &id) {
    return berm_pool_id_t{id.first, id.second};
}

bool is_over(berm_status_t status) { // nothing is left to be done, and nobody to tell
    return status == BERM_ERROR_SHUTDOWN || status == BERM_ERROR_FORKED;
}

void check(berm_status_t status, const char *what) {
    if (status != BERM_OK)
        berm_torch::raise(what, status);
}

bool filter_ask(berm_stream_t stream, void *context) {
    return (*static_cast<const Filter *>(context))(static_cast<berm_torch::Stream>(stream));
}

// Filters of routes, oldest first. Never destroyed: PyTorch ends pools after static destructors
// have begun. libberm is called under the lock; filters do not take it.
struct Routes {
    std::mutex lock;
    std::map<std::pair<int, PoolId>, std::vector<std::unique_ptr<Filter>>> filters;
};

Routes &routes() {
    static Routes *const made = new Routes;
    return *made;
}

} // namespace

void *berm_torch_malloc(std::size_t size_bytes, int device, berm_torch::Stream stream) {
    if (size_bytes == 0)
        return nullptr;
    berm_addr_t addr;
    const berm_status_t status = berm_alloc(size_bytes, device, stream, &addr);
    if (__builtin_expect(status != BERM_OK, 0))
        berm_torch::raise_request(size_bytes, device, status);
    return pointer(addr);
}

void berm_torch_free(void *freed, std::size_t, int device, berm_torch::Stream stream) {
    const berm_status_t status = berm_free(address(freed), device, stream);
    if (__builtin_expect(status != BERM_OK && !is_over(status), 0))
        (void)std::fprintf(stderr, "berm: freeing %p of GPU %d: %s: %s\n", freed, device,
                           berm_status_name(status), berm_error_message());
}

void berm_torch_init(int device_count) {
    int found;
    if (device_count > 0)
        check(berm_device_count(&found), "starting");
}

void berm_torch_reset() {
    int count;
    check(berm_device_count(&count), "empty_cache");
    for (int device = 0; device < count; device++) {
        berm_stats_t stats = BERM_STATS_INIT;
        check(berm_stats_read(device, &stats), "empty_cache");
        if (stats.reserved_bytes.current > 0) // else the device is not opened for it
            check(berm_trim(device, 0, nullptr), "empty_cache");
    }
}

void berm_torch_memory_fraction(double fraction, int device) {
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    check(berm_device_info_read(device, &info), "set_per_process_memory_fraction");
    const double limit = fraction * static_cast<double>(info.memory_bytes);
    check(berm_limit_set(device, fraction >= 1 ? UINT64_MAX : static_cast<std::uint64_t>(limit)),
          "set_per_process_memory_fraction");
}

void *berm_torch_base_alloc(void *inside, std::size_t *size_bytes) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    check(berm_whatis(address(inside), &whatis), "looking up an address");
    if (whatis.kind != BERM_ADDRESS_LIVE)
        return inside;
    if (size_bytes != nullptr)
        *size_bytes = whatis.block_bytes;
    return pointer(whatis.block);
}

void berm_torch_record_stream(void *used, berm_torch::Stream stream) {
    const berm_status_t status =
        used != nullptr ? berm_record_stream(address(used), stream) : BERM_OK;
    if (status != BERM_ERROR_ADDRESS_UNKNOWN && status != BERM_ERROR_ADDRESS_IMPORTED &&
        !is_over(status))
        check(status, "record_stream");
}

void berm_torch_begin_allocate_to_pool(int device, PoolId id, Filter filter) {
    auto kept = std::make_unique<Filter>(std::move(filter));
    std::lock_guard<std::mutex> guard(routes().lock);
    auto &filters = routes().filters[{device, id}];
    filters.reserve(filters.size() + 1); // so that nothing fails once the route is there
    check(berm_pool_route_begin(device, pool_id(id), filter_ask, kept.get()), "routing to a pool");
    filters.push_back(std::move(kept));
}

void berm_torch_end_allocate_to_pool(int device, PoolId id) {
    std::lock_guard<std::mutex> guard(routes().lock);
    const berm_status_t status = berm_pool_route_end(device, pool_id(id));
    const auto found = routes().filters.find({device, id});
    if (found != routes().filters.end()) {
        if (!found->second.empty())
            found->second.pop_back();
        if (found->second.empty())
            routes().filters.erase(found);
    }
    if (status != BERM_ERROR_POOL_UNKNOWN && !is_over(status))
        check(status, "ending the route to a pool");
}

void berm_torch_release_pool(int device, PoolId id) {
    const berm_status_t status = berm_pool_release(device, pool_id(id));
    if (status != BERM_ERROR_POOL_UNKNOWN && !is_over(status))
        check(status, "releasing a pool");
}
