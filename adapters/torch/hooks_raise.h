// SPDX-License-Identifier: Apache-2.0
// Errors of the hooks, as exceptions that PyTorch understands. Thread-safe.
#ifndef BERM_TORCH_HOOKS_RAISE_H
#define BERM_TORCH_HOOKS_RAISE_H

#include <cstdint>

#include "berm.h"

namespace berm_torch {

// Throws what says that the calling thread's last call of libberm failed with `status`, while doing
// `what`.
[[noreturn]] void raise(const char *what, berm_status_t status);

// The same of a request of `size_bytes` on `device`: out of memory where that is the cause.
[[noreturn]] void raise_request(std::uint64_t size_bytes, int device, berm_status_t status);

} // namespace berm_torch

#endif
