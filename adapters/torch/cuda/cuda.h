// SPDX-License-Identifier: Apache-2.0
// See cuda_runtime_api.h: c10's headers include the driver's too, and name nothing of it.
#ifndef BERM_TORCH_CUDA_H
#define BERM_TORCH_CUDA_H

#include "cuda_runtime_api.h"

#define CUDA_VERSION CUDART_VERSION

#endif
