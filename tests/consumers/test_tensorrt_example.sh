# SPDX-License-Identifier: Apache-2.0
# The example program for TensorRT, built by its CMake project against an installed berm, with
# stand-ins for TensorRT's headers and library of two generations, and run on the simulated device.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
for tool in cmake g++; do
    command -v "$tool" >/dev/null || { echo "SKIP: no $tool"; exit 77; }
done
tests=$BERM_SOURCE/tests/consumers/tensorrt simcuda=$BERM_LIBDIR/simcuda
flags='-Wall -Wextra -Wconversion -Werror'
expect 0 cmake --install "$BERM_BUILD" --prefix "$work/berm"
printf '40 20 4000\n' >"$work/model.engine"
export SIMCUDA_MEMORY=1G SIMCUDA_STRICT=1 LD_LIBRARY_PATH=$simcuda
for generation in 8 11; do
    build=$work/build-$generation library=$work/libnvinfer-$generation.so
    # shellcheck disable=SC2086 # several flags
    expect 0 g++ -std=c++17 -O1 $flags -fPIC -shared -DSTANDIN_TENSORRT=$generation \
        -isystem "$tests/include" "$tests/engine.cpp" -o "$library"
    expect 0 cmake -S "$BERM_SOURCE/examples/tensorrt" -B "$build" -DCMAKE_PREFIX_PATH="$work/berm" \
        -DCMAKE_CXX_FLAGS="-DSTANDIN_TENSORRT=$generation $flags" \
        -DTENSORRT_INCLUDE="$tests/include" -DTENSORRT_LIBRARY="$library" \
        -DCUDART_INCLUDE="$tests/include" -DCUDART_LIBRARY="$simcuda/libcudart.so.13"
    expect 0 cmake --build "$build"
    expect 0 timeout 60 "$build/berm_tensorrt_example" "$work/model.engine"
    cat "$work/out"
    grep -q '^output output: 1000, 4000 bytes$' "$work/out" || fail 'no output'
    grep -q '^5 requests, .* 0 still live$' "$work/out" || fail 'not 5 requests, all given back'
    expect 1 timeout 60 "$build/berm_tensorrt_example" "$work/out"
done
finish
