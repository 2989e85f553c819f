// SPDX-License-Identifier: Apache-2.0
// See cuda_runtime_api.h.
#ifndef BERM_TORCH_CUDA_RUNTIME_H
#define BERM_TORCH_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#endif
