# SPDX-License-Identifier: Apache-2.0
# The one place for the versions of what the real baselines and consumers are made of.
# shellcheck shell=bash disable=SC2034
TORCH_VERSION=2.15.0
TORCH_OLDER_VERSIONS="2.14.1 2.13.0"  # for ./run torch-versions
TORCH_WHEEL_SIZE="540 MB"     # to fetch; installed, 1.4 GB
TORCH_IMPORTS_SIZE="30 MB"
TORCH_PYTHON=3.12                # which of torch's wheels; no Python runs it
CUDA_RUNTIME_VERSION=13.2.86     # headers that go with that torch
CUDA12_RUNTIME_VERSION=12.9.79   # headers that libcudart.so.12 is compared with
RMM_VERSION=26.10.0
RAPIDS_LOGGER_VERSION=0.3.0
TENSORRT_VERSION=11.4.0.106       # its Python bindings
CUDA_BINDINGS_VERSION=13.5.0      # what RMM's Python package needs
CUDA_PATHFINDER_VERSION=1.9.1
NUMPY_VERSION=2.4.6
# What the tests of consumers run beside torch.
TEST_PACKAGES=(transformers==5.24.0)
TEST_PACKAGES_SIZE="30 MB"       # with what they import
