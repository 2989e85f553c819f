#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: setup_tensorrt.sh
#
# Puts TensorRT's Python bindings (1.3 MB, no engine library) into build/tensorrt, for
# tests/consumers/test_tensorrt_bindings.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup_lib.sh"

mkdir -p "$root/build/tensorrt"
take_for=$(python_version)
take "$root/build/tensorrt" tensorrt-cu13-bindings "$TENSORRT_VERSION" tensorrt_bindings/
