# SPDX-License-Identifier: Apache-2.0
# usage: setup.sh
# Installs ONNX Runtime, CuPy and Numba into build/consumers, for the tests that run them on the
# simulated device; does nothing where they are. Of NVIDIA only headers and the compiler libraries
# that Numba calls are fetched. One extension of CuPy's, which the wheel links with a static runtime,
# is built from CuPy's sources against the runtime's stand-in.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
# shellcheck source=tests/consumers/python/versions.sh
. "$here/versions.sh"

say() { printf 'consumers-setup: %s\n' "$*" >&2; }
die() {
    say "$@"
    exit 2
}

venv=$root/build/consumers
made_of=$(cat "$here/versions.sh" "${BASH_SOURCE[0]}")
[ "$(cat "$venv/.made" 2>/dev/null)" != "$made_of" ] || exit 0

fetch() { # PIP_ARGUMENT...: what pip has to say is shown on failure
    "$venv/bin/pip" --quiet --disable-pip-version-check "$@" >"$venv/pip.log" 2>&1 && return
    cat "$venv/pip.log" >&2
    die "$* failed for $("$venv/bin/python" --version); see above"
}

rm -rf "$venv"
python3 -m venv "$venv" || die "python3 cannot make an environment: install python3-venv"
say "fetching ONNX Runtime, CuPy and Numba into build/consumers ($CONSUMERS_SIZE)"
cuda="==$CONSUMERS_CUDA_VERSION.*"
fetch install --only-binary=:all: --no-deps \
    "onnxruntime-gpu==$ONNXRUNTIME_VERSION" "cupy-cuda13x==$CUPY_VERSION" \
    "numba-cuda==$NUMBA_CUDA_VERSION" "cuda-bindings==$CUDA_BINDINGS_VERSION" \
    "cuda-core==$CUDA_CORE_VERSION" "nvidia-nvvm$cuda" "nvidia-cuda-nvrtc$cuda" \
    "nvidia-nvjitlink$cuda" "nvidia-cuda-runtime$cuda" "nvidia-cuda-crt$cuda"
fetch install --only-binary=:all: "numba==$NUMBA_VERSION" "onnx==$ONNX_VERSION" flatbuffers packaging \
    'cuda-pathfinder<2' "cython==$CUPY_CYTHON_VERSION" setuptools

say "building CuPy's extension for the runtime from its sources"
sources=$venv/cupy-sources
fetch download --no-deps --no-binary cupy -d "$sources" "cupy==$CUPY_VERSION"
tar xzf "$sources/cupy-$CUPY_VERSION.tar.gz" -C "$sources"
cd "$sources/cupy-$CUPY_VERSION"
"$venv/bin/cython" -3 --cplus -I . \
    -E CUPY_CUDA_VERSION=13000,CUPY_HIP_VERSION=0,CUPY_USE_CUDA_PYTHON=0 \
    cupy_backends/cuda/api/runtime.pyx -o cupy_backends/cuda/api/runtime.cpp \
    >"$venv/cython.log" 2>&1 || { cat "$venv/cython.log" >&2; die "CuPy's runtime.pyx: see above"; }
python_paths=$("$venv/bin/python" - <<'PY'
import sysconfig
paths = sysconfig.get_paths()
print(paths["include"], paths["purelib"], sysconfig.get_config_var("EXT_SUFFIX"))
PY
)
read -r python_include site suffix <<<"$python_paths"
"${CXX:-g++}" -std=c++17 -O1 -w -shared -fPIC -I. -Icupy_backends -I"$site/nvidia/cu13/include" \
    -I"$python_include" cupy_backends/cuda/api/runtime.cpp \
    "$root/build/release/lib/simcuda/libcudart.so.13" \
    -o "$site/cupy_backends/cuda/api/runtime$suffix" ||
    die "CuPy's extension does not compile: is there a header of Python (python3-dev)?"
rm -rf "$sources"
printf '%s' "$made_of" >"$venv/.made"
say "ready: $venv/bin/python"
