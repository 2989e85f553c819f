# SPDX-License-Identifier: Apache-2.0
# The TensorRT adapter against our stand-in headers of each generation of the interface, warnings as
# errors, with both compilers and as C++17 and C++20; run on the simulated device.
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
for generation in 8 9 10 11 1; do # 1: RTX
    for compiler in 'g++ -std=c++17' 'clang++ -std=c++20'; do
        program=$work/adapter
        # shellcheck disable=SC2086 # the compiler and its standard
        expect 0 $compiler "${flags[@]}" -DSTANDIN_TENSORRT=$generation \
            "$BERM_SOURCE/tests/consumers/tensorrt/adapter.cpp" "${libraries[@]}" -o "$program"
        expect 0 timeout 60 "$program"
        cat "$work/out"
        grep -q 'same address, 0 copies' "$work/out" || fail 'no line on growing'
        grep -q "^TensorRT interface $generation: " "$work/out" || fail 'no line on calls'
    done
done
finish
