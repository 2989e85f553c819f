#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: setup_rmm.sh
#
# Makes build/rmm/librmm_baseline.so, by which `berm --allocator rmm-pool,rmm-arena` reach RMM's own
# allocators, and librmm_berm.so, by which rmm-berm reaches berm as a resource of RMM: headers of the
# librmm wheel, its CCCL first, and CUDA's runtime headers (12 MB in all).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup_lib.sh"

out=$root/build/rmm
mkdir -p "$out"
wanted="$(digest "$root"/stress/real/{rmm_baseline.cpp,rmm_berm.cpp,real.h,versions.sh,setup_rmm.sh} \
    "$root"/include/{berm.h,berm_introspect.h,berm_rmm.hpp}) $build"
if [ -e "$out/librmm_baseline.so" ] && [ -e "$out/librmm_berm.so" ] &&
    [ "$(cat "$out/made_of" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

take "$out" librmm-cu13 "$RMM_VERSION" librmm/include/ librmm/lib64/librmm.so
take "$out" rapids-logger "$RAPIDS_LOGGER_VERSION" rapids_logger/include/ rapids_logger/lib64/
take_cuda_headers
# RMM's Python package, which has an extension of its own; it finds librmm beside it.
mkdir -p "$out/python"
take_for=$(python_version)
take "$out/python" rmm-cu13 "$RMM_VERSION" rmm/
take "$out/python" librmm-cu13 "$RMM_VERSION" librmm/__init__.py librmm/load.py librmm/_version \
    librmm/VERSION librmm/lib64/librmm.so
take "$out/python" rapids-logger "$RAPIDS_LOGGER_VERSION" rapids_logger/
take "$out/python" cuda-bindings "$CUDA_BINDINGS_VERSION" cuda/
take "$out/python" cuda-pathfinder "$CUDA_PATHFINDER_VERSION" cuda/
take "$out/python" numpy "$NUMPY_VERSION" numpy/ numpy.libs/

# compile NAME LIBRARY...: stress/real/NAME.cpp becomes libNAME.so. It names the logger itself, since
# librmm, which needs it, does not say where it is.
compile() {
    local name=$1
    shift
    g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror \
        -DBERM_RMM_VERSION="\"$RMM_VERSION\"" -I"$root" -I"$root/include" \
        -isystem "$out/librmm/include/rapids" -isystem "$out/librmm/include" \
        -isystem "$out/rapids_logger/include" -isystem "$cuda" "$root/stress/real/$name.cpp" \
        -o "$out/lib$name.so.new" "$@" "$standins/libcudart.so.13" \
        -L"$out/librmm/lib64" -lrmm -L"$out/rapids_logger/lib64" \
        -Wl,--no-as-needed -lrapids_logger \
        -Wl,-rpath,"$out/librmm/lib64:$out/rapids_logger/lib64:$build/lib" -Wl,--no-undefined
    mv "$out/lib$name.so.new" "$out/lib$name.so"
}

say "compiling against RMM $RMM_VERSION"
compile rmm_baseline
compile rmm_berm "$build/lib/libberm.so"
printf '%s\n' "$wanted" >"$out/made_of"
say "made librmm_baseline.so and librmm_berm.so in build/rmm: rmm-pool, rmm-arena and rmm-berm can be replayed"
