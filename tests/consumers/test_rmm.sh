# SPDX-License-Identifier: Apache-2.0
# The RMM adapter with the real RMM of ./run rmm-setup, its headers, the CCCL inside the wheel, and
# its library, on the simulated device.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
command -v g++ >/dev/null || { echo 'SKIP: no g++'; exit 77; }
rmm=$BERM_SOURCE/build/rmm
cuda=$BERM_SOURCE/build/cuda-headers/nvidia/cu13/include
if [ ! -d "$rmm/librmm/include/rmm" ] || [ ! -d "$cuda" ]; then
    echo 'SKIP: RMM is not set up: run ./run rmm-setup'
    exit 77
fi
version=$(sed -n 's/^RMM_VERSION=//p' "$BERM_SOURCE/stress/real/versions.sh")
simcuda=$BERM_LIBDIR/simcuda
logger=$rmm/rapids_logger/lib64
expect 0 g++ -std=c++20 -O1 -Wall -Wextra -Wconversion -Werror -pthread \
    "-DBERM_RMM_VERSION=\"$version\"" \
    -I"$BERM_SOURCE/include" -I"$BERM_SOURCE/simcuda/include" \
    -isystem "$rmm/librmm/include/rapids" -isystem "$rmm/librmm/include" \
    -isystem "$rmm/rapids_logger/include" -isystem "$cuda" \
    "$BERM_SOURCE/tests/consumers/rmm/resource.cpp" -o "$work/resource" \
    "$BERM_LIBDIR/libberm.so" "$simcuda/libcudart.so.13" "$simcuda/libcuda.so.1" \
    -L"$rmm/librmm/lib64" -lrmm -L"$logger" -Wl,--no-as-needed -lrapids_logger \
    -Wl,-rpath,"$rmm/librmm/lib64:$logger:$BERM_LIBDIR:$simcuda"
export SIMCUDA_MEMORY=4G SIMCUDA_STRICT=1
expect 0 timeout 120 "$work/resource"
cat "$work/out"
grep -q "^RMM $version: [1-9]" "$work/out" || fail 'no line on calls'
finish
