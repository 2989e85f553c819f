// SPDX-License-Identifier: Apache-2.0
// libberm_torch.so: berm behind PyTorch's CUDAPluggableAllocator, which takes functions by name or
// address. It links libberm and no part of PyTorch, so one build serves every version (2.3 on).
//
//   allocator = torch.cuda.memory.CUDAPluggableAllocator(
//       "libberm_torch.so", "berm_torch_malloc", "berm_torch_free")
//   torch.cuda.memory.change_current_allocator(allocator)
//
// That much allocates and frees. For empty_cache, memory fractions, record_stream and CUDA graphs
// the other functions are to be set too: berm.torch.install(route="hooks") does it. What PyTorch
// has no hook for (statistics, snapshots, MemPool, ...) raises there; the subclass has it.
//
// ERRORS. A function that fails throws a C++ exception, which PyTorch passes on: for lack of memory
// c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError, made by the constructor that
// the loaded libc10.so exports; where it has none, or no libc10.so is loaded, and for all other
// causes, std::runtime_error (RuntimeError). The text is berm's report. berm_torch_free alone says
// what is wrong on standard error instead, since it is called by destructors.
//
// Thread-safe. Driver, waits, streams: as the functions of berm.h that they call.
#ifndef BERM_TORCH_HOOKS_H
#define BERM_TORCH_HOOKS_H

#include <cstddef>
#include <functional>
#include <utility>

#define BERM_TORCH_HOOK extern "C" __attribute__((visibility("default")))

namespace berm_torch {
using Stream = struct CUstream_st *;                              // cudaStream_t
using PoolId = std::pair<unsigned long long, unsigned long long>; // PyTorch's MempoolId_t
using Filter = std::function<bool(Stream)>;
} // namespace berm_torch

// NULL for a size of 0 only.
BERM_TORCH_HOOK void *berm_torch_malloc(std::size_t size_bytes, int device,
                                        berm_torch::Stream stream);
// `stream` is the one of the allocation, as PyTorch remembers it. NULL does nothing.
BERM_TORCH_HOOK void berm_torch_free(void *pointer, std::size_t size_bytes, int device,
                                     berm_torch::Stream stream);
// Starts berm once PyTorch knows its devices, so that a wrong option is told early.
BERM_TORCH_HOOK void berm_torch_init(int device_count);
// torch.cuda.empty_cache().
BERM_TORCH_HOOK void berm_torch_reset();
// torch.cuda.set_per_process_memory_fraction(): 0 to 1 of the device's memory; 1 is no limit.
BERM_TORCH_HOOK void berm_torch_memory_fraction(double fraction, int device);
// The block that holds `pointer`, and its size; `pointer` itself where it is not berm's.
BERM_TORCH_HOOK void *berm_torch_base_alloc(void *pointer, std::size_t *size_bytes);
// Memory that is not berm's is left alone.
BERM_TORCH_HOOK void berm_torch_record_stream(void *pointer, berm_torch::Stream stream);
// Graph captures and pools. An end or a release of a pool that is not known does nothing.
BERM_TORCH_HOOK void berm_torch_begin_allocate_to_pool(int device, berm_torch::PoolId id,
                                                       berm_torch::Filter filter);
BERM_TORCH_HOOK void berm_torch_end_allocate_to_pool(int device, berm_torch::PoolId id);
BERM_TORCH_HOOK void berm_torch_release_pool(int device, berm_torch::PoolId id);

#endif
