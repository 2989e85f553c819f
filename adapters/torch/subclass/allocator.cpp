// SPDX-License-Identifier: Apache-2.0
// Allocating and freeing, streams, peers and copies: what a training step calls. A block's size,
// device and stream are libberm's to know, so that nothing is looked up here.
#include "adapters/torch/subclass/allocator.h"

#include <c10/core/impl/GPUTrace.h>

#include <cstdlib>
#include <cstring>

namespace berm_torch {

namespace {

constexpr size_t exbibyte = size_t{1} << 60;

void delete_uncached(void *pointer) {
    C10_CUDA_CHECK(cudaFree(pointer));
}

void *alloc_uncached(size_t size) {
    void *pointer = nullptr;
    if (size > 0)
        C10_CUDA_CHECK(cudaMalloc(&pointer, size));
    return pointer;
}

// The check's macro does work also where nothing is wrong.
inline DeviceIndex device_now() {
    DeviceIndex device = 0;
    const cudaError_t error = c10::cuda::GetDevice(&device);
    if (C10_UNLIKELY(error != cudaSuccess))
        C10_CUDA_CHECK(error);
    return device;
}

inline void tell_interpreter(void *pointer, bool is_allocation) {
    const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace();
    if (C10_LIKELY(interpreter == nullptr))
        return;
    if (is_allocation)
        (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, address_of(pointer));
    else
        (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, address_of(pointer));
}

// Starts berm so that tensors can be sent to other processes, unless something else has options, or
// has started it. Not before CUDA is initialised: a process may fork until then.
void shareable_begin() {
    const char *conf = secure_getenv("BERM_CONF");
    const char *file = secure_getenv("BERM_CONF_FILE");
    const bool has_file = file != nullptr && *file != '\0';
    if (has_file || (conf != nullptr && (strstr(conf, "shareable") != nullptr ||
                                         strstr(conf, "conf_file") != nullptr)))
        return;
    const berm_status_t status = berm_init("shareable:on");
    if (status != BERM_ERROR_STATE)
        check("berm_init", status);
}

} // namespace

void raise(const char *call, berm_status_t status) {
    const char *words = berm_error_message();
    TORCH_CHECK(false, call, ": ", berm_status_name(status), ": ",
                words != nullptr && *words != '\0' ? words : berm_status_text(status));
}

void delete_block(void *pointer) {
    Allocator::instance()->raw_delete(pointer);
}

// --- allocating ----------------------------------------------------------------------------------

// As roundup_power2_divisions has it: a larger block, of which it is kept what was asked for.
berm_status_t Allocator::take(size_t size, DeviceIndex device, cudaStream_t stream,
                              berm_addr_t *addr) {
    const size_t made = Config::divided(size);
    const berm_status_t status = berm_alloc(made, device, stream, addr);
    if (status != BERM_OK)
        return status;
    figures_[static_cast<size_t>(device)]->add(made, size);
    const std::lock_guard<std::mutex> guard(lock_);
    asked_[*addr] = size;
    return BERM_OK;
}

// What was asked for of a block that is about to be freed, of which libberm knows `size`.
size_t Allocator::asked_for(berm_addr_t addr, uint64_t size) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = asked_.find(addr);
    if (found == asked_.end())
        return size;
    const size_t asked = found->second;
    asked_.erase(found);
    return asked;
}

void *Allocator::alloc(size_t size, DeviceIndex device, cudaStream_t stream) {
    if (size == 0)
        return nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, size < exbibyte,
                     "CUDA out of memory. Tried to allocate more than 1EB memory.");
    berm_addr_t addr = 0;
    const bool is_divided = Config::has_divisions();
    const berm_status_t status = C10_UNLIKELY(is_divided) ? take(size, device, stream, &addr)
                                                          : berm_alloc(size, device, stream, &addr);
    if (C10_UNLIKELY(status != BERM_OK))
        raise_shortage(status, size, device, stream);
    void *pointer = pointer_of(addr);
    if (C10_LIKELY(!is_divided))
        figures_[static_cast<size_t>(device)]->add(rounded(size), size);
    if (C10_UNLIKELY(history_.is_watched()))
        alloc_note(pointer, size, device, stream);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled()))
        report_to_profiler(pointer, is_divided ? Config::divided(size) : rounded(size), true,
                           device);
    return pointer;
}

// PyTorch's profiler is told sizes of blocks, not what was asked for.
void Allocator::report_to_profiler(void *pointer, size_t size, bool is_allocation,
                                   DeviceIndex device) {
    berm_stats_t stats = BERM_STATS_INIT;
    if (berm_stats_read(device, &stats) != BERM_OK)
        return;
    const int64_t allocated = figures_[static_cast<size_t>(device)]->allocated_bytes();
    const auto change = static_cast<int64_t>(size);
    c10::reportMemoryUsageToProfiler(pointer, is_allocation ? change : -change,
                                     static_cast<size_t>(allocated), stats.reserved_bytes.current,
                                     c10::Device(c10::DeviceType::CUDA, device));
}

c10::DataPtr Allocator::allocate(size_t size) {
    const DeviceIndex device = device_now();
    const c10::Device where(c10::DeviceType::CUDA, device);
    if (C10_UNLIKELY(!isEnabled())) {
        void *pointer = alloc_uncached(size);
        return {pointer, pointer, &delete_uncached, where};
    }
    void *pointer = alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
    tell_interpreter(pointer, true);
    return {pointer, pointer, &delete_block, where};
}

void *Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
    if (C10_UNLIKELY(!isEnabled()))
        return alloc_uncached(size);
    void *pointer = alloc(size, device_now(), stream);
    tell_interpreter(pointer, true);
    return pointer;
}

void *Allocator::raw_alloc(size_t size) {
    if (C10_UNLIKELY(!isEnabled()))
        return alloc_uncached(size);
    const DeviceIndex device = device_now();
    void *pointer = alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
    tell_interpreter(pointer, true);
    return pointer;
}

// --- history, where it is watched ----------------------------------------------------------------

// `context`: of the call that changed what is mapped, as far as it is known.
void Allocator::mapped_note(int device, const History::Context &context) {
    static const History::Entry::Action actions[BERM_EVENT_KIND_COUNT] = {
        History::Entry::SEGMENT_MAP, History::Entry::SEGMENT_UNMAP, History::Entry::SEGMENT_ALLOC,
        History::Entry::SEGMENT_FREE}; // in the order of berm_event_kind_t
    mapped_.look(device, [this, &context](const berm_event_t &event) {
        void *stream = event.stream == BERM_STREAM_NONE ? nullptr : event.stream;
        history_.add(actions[event.kind], static_cast<DeviceIndex>(event.device), event.addr,
                     event.size_bytes, stream, mempool_id_of(event.pool), context);
    });
}

void Allocator::alloc_note(void *pointer, size_t size, DeviceIndex device, cudaStream_t stream) {
    History::Context context = history_.gather(caching::RecordContext::STATE);
    mapped_note(device, context);
    history_.completed_note(false);
    history_.block_add(pointer, context);
    history_.add(History::Entry::ALLOC, device, address_of(pointer), size, stream, pool_of(pointer),
                 std::move(context));
}

// Before the free: afterwards the address may be another's. A block that other streams use is
// completed when libberm says so.
void Allocator::free_note(void *pointer, size_t size, DeviceIndex device, berm_stream_t stream) {
    History::Context context = history_.gather(caching::RecordContext::ALL);
    History::Context allocated_by = history_.context_of(pointer);
    if (context == nullptr)
        context = allocated_by;
    history_.block_remove(pointer);
    const MempoolId_t pool = pool_of(pointer);
    history_.add(History::Entry::FREE_REQUESTED, device, address_of(pointer), size, stream, pool,
                 context);
    if (!history_.await(pointer, device, size, stream, pool, context))
        history_.add(History::Entry::FREE_COMPLETED, device, address_of(pointer), size, stream,
                     pool, std::move(context));
}

// --- freeing -------------------------------------------------------------------------------------

// A block goes back to its own stream, whatever the current one is: other streams that used it are
// named by record_stream, as PyTorch has it. Memory of cudaMalloc (enable(False)) is freed as such.
void Allocator::raw_delete(void *pointer) {
    if (pointer == nullptr)
        return;
    const berm_addr_t addr = address_of(pointer);
    uint64_t size = 0;
    int device = 0;
    berm_stream_t stream = nullptr;
    const berm_status_t known = berm_block_read(addr, &size, &device, &stream);
    if (C10_UNLIKELY(known != BERM_OK)) {
        if (!isEnabled() && cudaFree(pointer) == cudaSuccess)
            return;
        raise("raw_delete", known);
    }
    const size_t asked = C10_UNLIKELY(Config::has_divisions()) ? asked_for(addr, size) : size;
    if (C10_UNLIKELY(history_.is_watched()))
        free_note(pointer, asked, static_cast<DeviceIndex>(device), stream);
    tell_interpreter(pointer, false);
    // Before the free: afterwards the memory may be another's, who would raise a peak too far.
    figures_[static_cast<size_t>(device)]->remove(rounded(size), asked);
    const berm_status_t status = berm_free(addr, device, stream);
    if (C10_UNLIKELY(status != BERM_OK)) {
        figures_[static_cast<size_t>(device)]->add(rounded(size), asked);
        raise("berm_free", status);
    }
    if (C10_UNLIKELY(c10::memoryProfilingEnabled()))
        report_to_profiler(pointer, rounded(size), false, static_cast<DeviceIndex>(device));
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
    return isEnabled() ? &delete_block : &delete_uncached;
}

void Allocator::copy_data(void *to, const void *from, std::size_t count) const {
    C10_CUDA_CHECK(cudaMemcpy(to, from, count, cudaMemcpyDeviceToDevice));
}

// Memory that is not berm's (of another allocator, imported, or none) has no streams to record.
void Allocator::recordStream(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) {
    berm_stream_t own = nullptr;
    if (pointer.get() == nullptr || pointer.get_deleter() != &delete_block)
        return;
    const berm_addr_t addr = address_of(pointer.get());
    if (berm_block_read(addr, nullptr, nullptr, &own) != BERM_OK || own == stream.stream())
        return;
    check("berm_record_stream", berm_record_stream(addr, stream.stream()));
    if (C10_UNLIKELY(history_.is_watched()))
        history_.shared_add(pointer.get());
}

// --- the rest ------------------------------------------------------------------------------------

// When CUDA is initialised, and not when berm is installed: until then the driver is not touched,
// so that a program may fork.
void Allocator::init(int device_count) {
    shareable_begin();
    reports_begin();
    std::unique_lock<std::mutex> guard(lock_);
    while (figures_.size() < static_cast<size_t>(device_count)) {
        figures_.push_back(std::make_unique<Figures>());
        fractions_.push_back(1.0);
    }
    device_count_.store(device_count);
    guard.unlock();
    const double fraction = Config::memory_fraction();
    for (int device = 0; fraction < 1 && device < device_count; device++)
        setMemoryFraction(fraction, static_cast<DeviceIndex>(device));
}

bool Allocator::initialized() {
    return device_count_.load() > 0;
}

// Nothing by a thread whose requests go to a pool: what is free there is to serve them.
void Allocator::emptyCache(MempoolId_t /*id*/) {
    const DeviceIndex current = device_now();
    if (is_routed(current, c10::cuda::getCurrentCUDAStream(current).stream()))
        return;
    for (int device = 0; device < device_count_.load(); device++)
        check("berm_trim", berm_trim(device, 0, nullptr));
    if (history_.is_watched()) {
        history_.completed_note(false);
        mapped_note(-1, history_.gather(caching::RecordContext::ALL));
    }
}

void Allocator::enable(bool value) {
    is_enabled_.store(value);
}

bool Allocator::isEnabled() const {
    return is_enabled_.load(std::memory_order_relaxed);
}

double Allocator::getMemoryFraction(DeviceIndex device) {
    const std::lock_guard<std::mutex> guard(lock_);
    return fractions_.at(static_cast<size_t>(device));
}

// The smaller of what set_per_process_memory_fraction and throw_on_cudamalloc_oom leave.
void Allocator::limit_apply(DeviceIndex device) {
    const double fraction = std::min(getMemoryFraction(device), Config::rejection_fraction());
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    check("berm_device_info_read", berm_device_info_read(device, &info));
    const auto limit = static_cast<uint64_t>(static_cast<double>(info.memory_bytes) * fraction);
    check("berm_limit_set", berm_limit_set(device, fraction < 1 ? limit : UINT64_MAX));
}

void Allocator::limits_apply() {
    const double fraction = Config::rejection_fraction();
    if (rejection_fraction_.exchange(fraction) == fraction)
        return;
    for (int device = 0; device < device_count_.load(); device++)
        limit_apply(static_cast<DeviceIndex>(device));
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device) {
    TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction: ", fraction,
                ": want a number from 0 to 1");
    {
        const std::lock_guard<std::mutex> guard(lock_);
        fractions_.at(static_cast<size_t>(device)) = fraction;
    }
    limit_apply(device);
}

void Allocator::cacheInfo(DeviceIndex device, size_t *largest) {
    uint64_t bytes = 0;
    check("berm_largest_obtainable_read",
          berm_largest_obtainable_read(device, c10::cuda::getCurrentCUDAStream(device), &bytes));
    *largest = std::max<size_t>(*largest, bytes);
}

void *Allocator::getBaseAllocation(void *pointer, size_t *size) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    check("berm_whatis", berm_whatis(address_of(pointer), &whatis));
    TORCH_CHECK(whatis.kind == BERM_ADDRESS_LIVE, "berm: ", pointer, " is in no live block");
    if (size != nullptr)
        *size = whatis.block_bytes;
    return pointer_of(whatis.block);
}

// `device` is to reach the memory of `owner`.
void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex owner) {
    const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, device));
    const cudaError_t error = cudaDeviceEnablePeerAccess(owner, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
    else
        C10_CUDA_CHECK(error);
    const berm_status_t status = berm_peer_enable(owner, device);
    if (status != BERM_ERROR_UNSUPPORTED) // plain memory: the call above covers it
        check("berm_peer_enable", status);
}

// Mapped memory of another device is reached by the peer copy only, unless peers have access.
cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device,
                                   size_t count, cudaStream_t stream, bool has_peer_access) {
    if (has_peer_access || to_device == from_device)
        return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
}

std::string Allocator::name() {
    return "berm";
}

} // namespace berm_torch
