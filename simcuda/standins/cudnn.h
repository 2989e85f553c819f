// SPDX-License-Identifier: Apache-2.0
// What of cuDNN 9's interface the hand-written stand-ins use: numbers of its public enumerations.
// No header of cuDNN is needed; tests/consumers/standin_headers.py compares where there is one.
#ifndef SIMCUDA_STANDINS_CUDNN_H
#define SIMCUDA_STANDINS_CUDNN_H

#include <stdint.h>

#include "base/defs.h"

enum {
    CUDNN_OK = 0,
    CUDNN_BAD_PARAM = 2000,
    CUDNN_NO_HOST_MEMORY = 4003 // CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
};

enum {
    CUDNN_FLOAT = 0,
    CUDNN_DOUBLE = 1
}; // of the other types all are shorter

enum {
    CUDNN_RNN_LSTM = 2,
    CUDNN_RNN_GRU = 3
};
enum {
    CUDNN_RNN_BIDIRECTIONAL = 1
};
enum {
    CUDNN_DIMS_MAX = 8
};

// A tensor's or a filter's descriptor, as it was set.
typedef struct cudnn_shape {
    int data_type, format, count;
    int dims[CUDNN_DIMS_MAX], strides[CUDNN_DIMS_MAX];
} cudnn_shape_t;

// Sets a tensor's descriptor; nothing where the handle is of none.
void cudnn_shape_set(uint64_t handle, int data_type, int count, const int *dims,
                     const int *strides);

// clang-format off
BERM_EXPORT int cudnnCreateTensorDescriptor(uint64_t *handle);
BERM_EXPORT int cudnnDestroyTensorDescriptor(uint64_t handle);
BERM_EXPORT int cudnnSetTensorNdDescriptor(uint64_t handle, int data_type, int count, const int *dims,
    const int *strides);
BERM_EXPORT int cudnnGetTensorNdDescriptor(uint64_t handle, int wanted, int *data_type, int *count,
    int *dims, int *strides);
BERM_EXPORT int cudnnCreateFilterDescriptor(uint64_t *handle);
BERM_EXPORT int cudnnDestroyFilterDescriptor(uint64_t handle);
BERM_EXPORT int cudnnSetFilterNdDescriptor(uint64_t handle, int data_type, int format, int count,
    const int *dims);
BERM_EXPORT int cudnnGetFilterNdDescriptor(uint64_t handle, int wanted, int *data_type, int *format,
    int *count, int *dims);

BERM_EXPORT int cudnnBackendCreateDescriptor(int type, uint64_t *handle);
BERM_EXPORT int cudnnBackendDestroyDescriptor(uint64_t handle);
BERM_EXPORT int cudnnBackendInitialize(uint64_t handle);
BERM_EXPORT int cudnnBackendFinalize(uint64_t handle);
BERM_EXPORT int cudnnBackendSetAttribute(uint64_t handle, int name, int type, int64_t count,
    const void *values);
BERM_EXPORT int cudnnBackendGetAttribute(uint64_t handle, int name, int type, int64_t wanted,
    int64_t *count, void *values);
BERM_EXPORT int cudnnBackendExecute(uint64_t library, uint64_t plan, uint64_t pack);

BERM_EXPORT int cudnnCreateRNNDescriptor(uint64_t *handle);
BERM_EXPORT int cudnnDestroyRNNDescriptor(uint64_t handle);
BERM_EXPORT int cudnnSetRNNDescriptor_v8(uint64_t handle, int algorithm, int cell, int bias, int direction,
    int input_mode, int data_type, int math_precision, int math_type, int input, int hidden,
    int projection, int layers, uint64_t dropout, unsigned flags);
BERM_EXPORT int cudnnSetRNNDataDescriptor(uint64_t handle, int data_type, int layout, int steps, int batch,
    int width, const int *lengths, void *padding);
BERM_EXPORT int cudnnCreateRNNDataDescriptor(uint64_t *handle);
BERM_EXPORT int cudnnDestroyRNNDataDescriptor(uint64_t handle);
BERM_EXPORT int cudnnGetRNNWeightSpaceSize(uint64_t library, uint64_t handle, size_t *bytes);
BERM_EXPORT int cudnnGetRNNTempSpaceSizes(uint64_t library, uint64_t handle, int mode, uint64_t data,
    size_t *work_bytes, size_t *reserve_bytes);
BERM_EXPORT int cudnnGetRNNWeightParams(uint64_t library, uint64_t handle, int layer, size_t space_bytes,
    const void *space, int which, uint64_t matrix, void **matrix_addr, uint64_t bias, void **bias_addr);
// clang-format on

#endif
