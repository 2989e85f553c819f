// SPDX-License-Identifier: Apache-2.0
// What berm_tensorrt.hpp and its test name of the CUDA runtime, declared by ourselves; it is linked
// with the stand-in libcudart of the simulated device.
#ifndef STANDIN_CUDA_RUNTIME_API_H
#define STANDIN_CUDA_RUNTIME_API_H

extern "C" {

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorUnknown = 999
} cudaError_t;

typedef struct CUstream_st *cudaStream_t;

cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize(void);

} // extern "C"

enum {
    cudaStreamNonBlocking = 1
};

#endif
