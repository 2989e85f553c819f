# SPDX-License-Identifier: Apache-2.0
# TensorRT's real Python bindings call berm through Runtime.gpu_allocator, on the simulated device.
# The engine library behind them is a stand-in: the real one does not run without a GPU.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: Python is not sanitized'
    exit 77
fi
command -v g++ >/dev/null || { echo 'SKIP: no g++'; exit 77; }
bindings=$BERM_SOURCE/build/tensorrt
if [ ! -d "$bindings/tensorrt_bindings" ]; then
    echo "SKIP: TensorRT's bindings are not set up: run ./run tensorrt-setup"
    exit 77
fi
tests=$BERM_SOURCE/tests/consumers/tensorrt
for name in nvinfer nvinfer_plugin nvonnxparser; do
    expect 0 g++ -std=c++17 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden \
        -DSTANDIN_TENSORRT=11 -isystem "$tests/include" "$tests/nvinfer.cpp" \
        -Wl,-soname,lib$name.so.11 -o "$work/lib$name.so.11"
done
export PYTHONPATH=$BERM_SOURCE/python:$bindings BERM_LIBRARY=$BERM_LIBDIR SIMCUDA_MEMORY=4G
export SIMCUDA_STRICT=1
expect 0 timeout 120 python3 -B "$tests/bindings.py" "$work" "$BERM_LIBDIR/simcuda"
cat "$work/out"
grep -q 'allocate_async [1-9].* reached berm' "$work/out" || fail 'no line on calls'
finish
