#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: setup_rmm.sh
#
# Makes build/rmm/librmm_baseline.so, by which `berm --allocator rmm-pool,rmm-arena` reach RMM's own
# allocators: headers of the librmm wheel, its CCCL first, and CUDA's runtime headers (12 MB in all).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup_lib.sh"

out=$root/build/rmm
library=$out/librmm_baseline.so
mkdir -p "$out"
wanted="$(digest "$root"/stress/real/{rmm_baseline.cpp,real.h,versions.sh,setup_rmm.sh})"
if [ -e "$library" ] && [ "$(cat "$out/made_of" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

take "$out" librmm-cu13 "$RMM_VERSION" librmm/include/ librmm/lib64/librmm.so
take "$out" rapids-logger "$RAPIDS_LOGGER_VERSION" rapids_logger/include/ rapids_logger/lib64/
take_cuda_headers

say "compiling against RMM $RMM_VERSION"
g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror \
    -DBERM_RMM_VERSION="\"$RMM_VERSION\"" -I"$root" -isystem "$out/librmm/include/rapids" \
    -isystem "$out/librmm/include" -isystem "$out/rapids_logger/include" \
    -isystem "$cuda" "$root/stress/real/rmm_baseline.cpp" -o "$library.new" \
    "$standins/libcudart.so.13" -L"$out/librmm/lib64" -lrmm -L"$out/rapids_logger/lib64" \
    -lrapids_logger -Wl,-rpath,"$out/librmm/lib64:$out/rapids_logger/lib64" -Wl,--no-undefined
mv "$library.new" "$library"
printf '%s\n' "$wanted" >"$out/made_of"
say "made build/rmm/librmm_baseline.so: rmm-pool and rmm-arena can be replayed"
