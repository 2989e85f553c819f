# SPDX-License-Identifier: Apache-2.0
# The one place for the versions of the consumers that setup.sh installs. NVIDIA's are the compiler
# that Numba calls, and headers.
# shellcheck shell=bash disable=SC2034
ONNXRUNTIME_VERSION=1.31.1
CUPY_VERSION=14.2.0
CUPY_CYTHON_VERSION=3.1.8
NUMBA_CUDA_VERSION=0.30.4
NUMBA_VERSION=0.68.1
CUDA_BINDINGS_VERSION=13.2.0
CUDA_CORE_VERSION=1.2.2
CONSUMERS_CUDA_VERSION=13.2
ONNX_VERSION=1.23.2
CONSUMERS_SIZE="620 MB" # to fetch; 1.4 GB on disk
