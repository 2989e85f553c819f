#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: setup_torch.sh [TORCH_FOLDER]
#
# Makes build/torch/libtorch_baseline.so, by which `berm --allocator torch-native,torch-expandable`
# reach PyTorch's own allocator. Of the torch wheel (about 540 MB to fetch) only libc10, libc10_cuda
# and their headers are kept, 10 MB; no NVIDIA library is needed. With TORCH_FOLDER (the `torch`
# folder of an installed CUDA build) nothing of torch is fetched.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup_lib.sh"

out=$root/build/torch
library=$out/libtorch_baseline.so
mkdir -p "$out"
torch=${1:-$out/torch}
sources=("$root"/stress/real/{torch_baseline.cpp,real.h,check_abi.cpp,versions.sh,setup_torch.sh}
    "$root"/simcuda/runtime/*)
wanted="$torch $(digest "${sources[@]}")"
if [ -e "$library" ] && [ "$(cat "$out/made_of" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

if [ $# -eq 0 ]; then
    take "$out" torch "$TORCH_VERSION" torch/lib/libc10.so torch/lib/libc10_cuda.so \
        torch/include/c10/ torch/include/torch/headeronly/ torch/version.py
fi
[ -e "$torch/lib/libc10_cuda.so" ] || die "$torch has no lib/libc10_cuda.so: not a CUDA build of torch"
take_cuda_headers
version=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$torch/version.py")

say "compiling against torch ${version:-of unknown version}"
g++ -std=c++17 -fsyntax-only -I"$root" -isystem "$cuda" "$root/stress/real/check_abi.cpp"
take "$root/build/cuda-headers" nvidia-cuda-runtime-cu12 "$CUDA12_RUNTIME_VERSION" \
    nvidia/cuda_runtime/include/
g++ -std=c++17 -fsyntax-only -I"$root" -isystem "$root/build/cuda-headers/nvidia/cuda_runtime/include" \
    -isystem "$cuda" "$root/stress/real/check_abi.cpp"

# What this torch imports and the stand-in lacks is generated.
runtime=$standins/libcudart.so.13
rm -f "$out/libcudart.so.13"
python3 "$root/simcuda/runtime/stubs.py" "$runtime" "$torch/lib/libc10_cuda.so" >"$out/stubs.c"
if [ -s "$out/stubs.c" ]; then
    runtime=$out/libcudart.so.13
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -fPIC -shared -fvisibility=hidden \
        -I"$root" -I"$root/allocator" -I"$root/include" -I"$root/simcuda/include" \
        "$root"/simcuda/runtime/*.c "$out/stubs.c" -Wl,-soname,libcudart.so.13 \
        -Wl,--version-script="$root/simcuda/runtime/libcudart.map" \
        -L"$standins" -l:libcuda.so.1 -lpthread -o "$runtime"
fi

g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror \
    -DBERM_TORCH_VERSION="\"$version\"" -I"$root" -isystem "$torch/include" -isystem "$cuda" \
    "$root/stress/real/torch_baseline.cpp" -o "$library.new" \
    -L"$torch/lib" -lc10_cuda -lc10 "$runtime" -Wl,-rpath,"$torch/lib" -Wl,--no-undefined
mv "$library.new" "$library"
printf '%s\n' "$wanted" >"$out/made_of"
say "made build/torch/libtorch_baseline.so: torch-native and torch-expandable can be replayed"
