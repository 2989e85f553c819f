// SPDX-License-Identifier: Apache-2.0
// The name by which c10's headers include it: see declared.h.
#ifndef BERM_TORCH_CUDA_RUNTIME_H
#define BERM_TORCH_CUDA_RUNTIME_H

#include "declared.h"

#endif
