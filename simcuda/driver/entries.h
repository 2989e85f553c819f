// SPDX-License-Identifier: Apache-2.0
// The exported driver functions: a number and a declaration for each row of functions.def. The
// declaration is made from the type in base/cuda_abi.h, so a definition that differs from what
// libberm calls does not compile.
#ifndef SIM_ENTRIES_H
#define SIM_ENTRIES_H

#include "base/cuda_abi.h"
#include "base/defs.h"
#include "module_abi.h"

typedef berm_cu_result_t (*sim_device_get_pci_bus_id_fn)(char *, int, berm_cu_device_t);
typedef berm_cu_result_t (*sim_device_get_by_pci_bus_id_fn)(berm_cu_device_t *, const char *);
typedef berm_cu_result_t (*sim_ctx_get_flags_fn)(unsigned *);
typedef berm_cu_result_t (*sim_ctx_get_priority_range_fn)(int *, int *);
typedef berm_cu_result_t (*sim_stream_get_priority_fn)(berm_cu_stream_t, int *);
typedef berm_cu_result_t (*sim_event_record_with_flags_fn)(berm_cu_event_t, berm_cu_stream_t,
                                                           unsigned);
typedef berm_cu_result_t (*sim_mem_alloc_pitch_fn)(berm_cu_deviceptr_t *, size_t *, size_t, size_t,
                                                   unsigned);
typedef berm_cu_result_t (*sim_mem_alloc_managed_fn)(berm_cu_deviceptr_t *, size_t, unsigned);
typedef berm_cu_result_t (*sim_array_create_fn)(void **, const berm_cu_array_t *);
typedef berm_cu_result_t (*sim_array3d_create_fn)(void **, const berm_cu_array3d_t *);
typedef berm_cu_result_t (*sim_mipmapped_array_create_fn)(void **, const berm_cu_array3d_t *,
                                                          unsigned);
typedef berm_cu_result_t (*sim_array_destroy_fn)(void *);
typedef berm_cu_result_t (*sim_memcpy_fn)(berm_cu_deviceptr_t, berm_cu_deviceptr_t, size_t);
typedef berm_cu_result_t (*sim_memcpy_htod_fn)(berm_cu_deviceptr_t, const void *, size_t);
typedef berm_cu_result_t (*sim_memcpy_dtoh_fn)(void *, berm_cu_deviceptr_t, size_t);
typedef berm_cu_result_t (*sim_memset_d8_fn)(berm_cu_deviceptr_t, unsigned char, size_t);

// clang-format off
typedef enum sim_fn {
#define SIM_FN(symbol, name, version, rules, type)        SIM_FN_##symbol,
#define SIM_FN_STREAM(symbol, name, version, rules, type) SIM_FN_##symbol,
#include "functions.def"
#undef SIM_FN
#undef SIM_FN_STREAM
    SIM_FN_COUNT
} sim_fn_t;

#define SIM_FN(symbol, name, version, rules, type) BERM_EXPORT __typeof__(*(type)0) symbol;
#define SIM_FN_STREAM(symbol, name, version, rules, type)                                          \
    BERM_EXPORT __typeof__(*(type)0) symbol;                                                       \
    BERM_EXPORT __typeof__(*(type)0) symbol##_ptsz;
#include "functions.def"
#undef SIM_FN
#undef SIM_FN_STREAM
// clang-format on

#endif
