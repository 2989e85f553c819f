// SPDX-License-Identifier: Apache-2.0
// What the PyTorch that the subclass is compiled against has: the only file that asks its version.
// The oldest that is supported is 2.13.
#ifndef BERM_TORCH_VERSIONS_H
#define BERM_TORCH_VERSIONS_H

#include <torch/headeronly/version.h>

#define BERM_TORCH_AT_LEAST(major, minor)                                                          \
    (TORCH_VERSION_MAJOR > (major) ||                                                              \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// supportsUserMetadata, annotateMemory and their trace entry.
#define BERM_TORCH_HAS_ANNOTATIONS BERM_TORCH_AT_LEAST(2, 14)

#if !BERM_TORCH_AT_LEAST(2, 13)
#error "berm's allocator for PyTorch needs PyTorch 2.13 or newer"
#endif

#endif
