// SPDX-License-Identifier: Apache-2.0
// PyTorch's real allocator, native and with expandable segments: the request sequence of a trace
// through libc10_cuda of the installed torch. What is loaded and how is real.c and stress/real;
// `./run torch-setup` sets it up.
//
// Not modelled: nothing; that is the point. No audit: its own statistics are what is compared with
// the device's ledger. May fail: not set up.
#include "stress/baselines/baselines.h"
#include "stress/baselines/real.h"

static const real_source_t torch_native = {
    .name = "torch-native",
    .mode = "native",
    .environment = "BERM_TORCH_BASELINE",
    .library = "torch/libtorch_baseline.so",
    .set_up = "./run torch-setup",
};

static const real_source_t torch_expandable = {
    .name = "torch-expandable",
    .mode = "expandable",
    .environment = "BERM_TORCH_BASELINE",
    .library = "torch/libtorch_baseline.so",
    .set_up = "./run torch-setup",
};

static stress_allocator_t *native_create(const stress_allocator_options_t *options, char *error,
                                         size_t error_capacity) {
    return real_create(&torch_native, options, error, error_capacity);
}

static stress_allocator_t *expandable_create(const stress_allocator_options_t *options, char *error,
                                             size_t error_capacity) {
    return real_create(&torch_expandable, options, error, error_capacity);
}

const stress_allocator_ops_t stress_torch_native_ops = {
    .name = "torch-native",
    .summary = "PyTorch's real native allocator (./run torch-setup)",
    .is_per_process = true,
    .create = native_create,
    .destroy = real_destroy,
    .alloc = real_alloc,
    .free = real_free,
    .record_stream = real_record_stream,
    .figures = real_figures,
    .peaks_reset = real_peaks_reset,
    .largest_free = real_largest_free,
};

const stress_allocator_ops_t stress_torch_expandable_ops = {
    .name = "torch-expandable",
    .summary = "PyTorch's real allocator with expandable segments (./run torch-setup)",
    .is_per_process = true,
    .create = expandable_create,
    .destroy = real_destroy,
    .alloc = real_alloc,
    .free = real_free,
    .record_stream = real_record_stream,
    .figures = real_figures,
    .peaks_reset = real_peaks_reset,
    .largest_free = real_largest_free,
};
