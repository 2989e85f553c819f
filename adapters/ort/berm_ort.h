// SPDX-License-Identifier: Apache-2.0
// libberm_ort.so: berm as the memory of ONNX Runtime's CUDA execution provider, in one of two ways.
//
// 1. The provider options gpu_external_alloc, gpu_external_free and gpu_external_empty_cache take
//    the addresses of three functions, as decimal text. ONNX Runtime then puts no arena on top.
//    They are told neither device nor stream: the device is the calling thread's current one, and
//    the stream the one that berm_ort_stream_bind named, or none. From Python:
//    berm.ort.provider_options().
// 2. An OrtAllocator for OrtApi::RegisterAllocator, with the session option
//    session.use_env_allocators=1. It knows its device, and streams where ONNX Runtime passes them.
//
// What is allocated has the tag "onnxruntime" (berm_diagnose.h). A request that fails gives NULL,
// of which ONNX Runtime makes an error; berm's report says where the memory is. Everything here is
// thread-safe and may be used for several sessions at once. Driver, waits and streams: as
// berm_alloc and berm_free, but where it is said.
#ifndef BERM_ORT_H
#define BERM_ORT_H

#include "berm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BERM_ORT_TAG "onnxruntime"

// gpu_external_alloc: NULL for 0 bytes, and on failure.
BERM_API void *berm_ort_alloc(size_t size_bytes);
// gpu_external_free. NULL does nothing.
BERM_API void berm_ort_free(void *block);
// gpu_external_empty_cache, which ONNX Runtime calls whenever it frees a block that it has
// reserved: gives back what is due by the option decay_ms, and never waits. To give back all that
// is cached call berm_trim.
BERM_API void berm_ort_empty_cache(void);

// From now on what the three functions, and allocators made here, allocate and free on `device` (0
// to 63) is in the order of `stream`, which must be the one that all sessions of the device use:
// given to them as user_compute_stream. (With gpu_external_alloc ONNX Runtime, as of 1.31, refuses
// that option, and makes a stream of its own, which custom operators can ask for.) BERM_STREAM_NONE
// ends that: memory then has no pending work, and waits for all of the device's after its free.
// Errors: ARGUMENT (device).
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_ort_stream_bind(int device, berm_stream_t stream);

struct OrtAllocator;

// Makes an allocator of `device` for RegisterAllocator. `api` is the OrtApi of the ONNX Runtime in
// use, and `api_version` the version that it was asked for (ORT_API_VERSION): the allocator has
// Reserve from 18 on, GetStats and AllocOnStream from 23, Shrink from 25.
//
// GetStats gives the keys of ONNX Runtime's own arena: InUse, MaxInUse, NumAllocs, NumReserves and
// MaxAllocSize are of this allocator, in bytes as asked for; TotalAllocated is what berm holds of
// the device, Limit the most that it may; NumArenaExtensions counts requests for memory to the
// driver by all of the process, NumArenaShrinkages the calls of Shrink.
// A block that is freed waits for the work that is queued on the device, or is in the order of the
// stream that was bound. Shrink gives back what is cached, and waits for the device.
// Errors: ARGUMENT (NULL, a negative device), VERSION (api_version below 9), OUT_OF_HOST_MEMORY,
// UNSUPPORTED (ONNX Runtime does not describe the memory: its version has no "Cuda").
// Driver: never. Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_ort_allocator_create(const void *api, uint32_t api_version,
                                                              int device,
                                                              struct OrtAllocator **out);
// After UnregisterAllocator and the last session that used it. NULL does nothing.
// Driver: never. Waits: never. Streams: none.
BERM_API void berm_ort_allocator_destroy(struct OrtAllocator *allocator);

#ifdef __cplusplus
}
#endif

#endif
