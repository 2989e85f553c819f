# SPDX-License-Identifier: Apache-2.0
# The TensorRT adapter against our stand-in headers of each generation of the interface, warnings as
# errors, as C++17 by g++ and C++20 by clang++; run on the simulated device.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
for tool in g++ clang++; do
    command -v "$tool" >/dev/null || { echo "SKIP: no $tool"; exit 77; }
done
simcuda=$BERM_LIBDIR/simcuda
flags=(-O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Werror -pthread
    -I"$BERM_SOURCE/include" -I"$BERM_SOURCE/simcuda/include"
    -isystem "$BERM_SOURCE/tests/consumers/tensorrt/include")
libraries=("$BERM_LIBDIR/libberm.so" "$simcuda/libcudart.so.13" "$simcuda/libcuda.so.1"
    -Wl,-rpath,"$BERM_LIBDIR:$simcuda")
export SIMCUDA_MEMORY=4G SIMCUDA_STRICT=1
source=$BERM_SOURCE/tests/consumers/tensorrt/adapter.cpp program=$work/adapter
for generation in 8 9 10 11 1; do # 1: RTX
    expect 0 g++ -std=c++17 "${flags[@]}" -DSTANDIN_TENSORRT=$generation "$source" \
        "${libraries[@]}" -o "$program"
    expect 0 clang++ -std=c++20 -fsyntax-only "${flags[@]}" -DSTANDIN_TENSORRT=$generation "$source"
    expect 0 timeout 60 "$program"
    cat "$work/out"
    grep -q 'same address, 0 copies' "$work/out" || fail 'no line on growing'
    grep -q "^TensorRT interface $generation: " "$work/out" || fail 'no line on calls'
done
finish
