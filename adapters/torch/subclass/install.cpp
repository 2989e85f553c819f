// SPDX-License-Identifier: Apache-2.0
// Making berm the current allocator: what Python's berm.torch calls, through ctypes.
#include "adapters/torch/subclass/allocator.h"

#include <cstdio>
#include <exception>

// Exported by libtorch_cuda. Its header wants those of all of CUDA's math libraries, which are not
// needed here.
namespace torch::cuda::CUDAPluggableAllocator {
void changeCurrentAllocator(
    const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> &allocator);
}

namespace berm_torch {

const std::shared_ptr<Allocator> &Allocator::instance() {
    static const auto *const one = new std::shared_ptr<Allocator>(new Allocator);
    return *one;
}

} // namespace berm_torch

// Makes it the allocator of this process, of torch.cuda and of generic look-ups alike. 0, or -1 and
// what is wrong in `error` (NUL-terminated, cut at `capacity`).
extern "C" __attribute__((visibility("default"))) int berm_torch_install(char *error,
                                                                         size_t capacity) {
    try {
        const auto &allocator = berm_torch::Allocator::instance();
        berm_torch::Config::start();
        torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(allocator);
        c10::SetAllocator(c10::DeviceType::CUDA, allocator.get(), 255);
        return 0;
    } catch (const std::exception &caught) {
        (void)snprintf(error, capacity, "%s", caught.what());
        return -1;
    }
}
