// SPDX-License-Identifier: Apache-2.0
// The driver's functions that this library defines: a declaration for each row of entries.def, made
// from its type, so that a definition that differs from what programs call does not compile. Types
// that libberm does not need itself are here; the others are in base/cuda_abi.h.
#ifndef PRELOAD_DRIVER_H
#define PRELOAD_DRIVER_H

#include "base/cuda_abi.h"
#include "base/defs.h"

typedef berm_cu_result_t (*preload_begin_capture_to_graph_fn)(
    berm_cu_stream_t stream, berm_cu_graph_t graph, const berm_cu_graph_node_t *dependencies,
    const void *edges, size_t count, int mode);
typedef berm_cu_result_t (*preload_mem_alloc_pitch_fn)(berm_cu_deviceptr_t *addr, size_t *pitch,
                                                       size_t width_bytes, size_t height,
                                                       unsigned element_bytes);
typedef berm_cu_result_t (*preload_mem_alloc_managed_fn)(berm_cu_deviceptr_t *addr, size_t bytes,
                                                         unsigned flags);
typedef berm_cu_result_t (*preload_array_create_fn)(void **array, const void *description);
typedef berm_cu_result_t (*preload_mipmapped_array_create_fn)(void **array, const void *description,
                                                              unsigned levels);

// clang-format off
#define PRELOAD_ENTRY(symbol, name, version, type) BERM_EXPORT __typeof__(*(type)0) symbol;
#define PRELOAD_ENTRY_STREAM(symbol, name, version, type)                                          \
    BERM_EXPORT __typeof__(*(type)0) symbol;                                                       \
    BERM_EXPORT __typeof__(*(type)0) symbol##_ptsz;
#include "entries.def"
#undef PRELOAD_ENTRY
#undef PRELOAD_ENTRY_STREAM
// clang-format on

#endif
