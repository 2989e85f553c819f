# SPDX-License-Identifier: Apache-2.0
# The Python package as a user gets it: `pip install ./python` makes a wheel without asking an index,
# and what is installed works away from the sources, on the simulated device that it carries.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: the wheel carries the plain build'
    exit 77
fi
python3 -m venv "$work/venv" 2>"$work/err" || { echo 'SKIP: no python3-venv'; exit 77; }
python=$work/venv/bin/python
export BERM_BUILD PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH BERM_LIBRARY BERM_SIMCUDA BERM_CACHE_DIR BERM_CONF
pip=("$python" -m pip --disable-pip-version-check --quiet)

expect 0 "${pip[@]}" wheel --no-index --no-deps -w "$work/wheel" "$BERM_SOURCE/python"
wheel=("$work"/wheel/*.whl)
version=$("$BERM" --version | sed -n 's/^berm \([0-9.]*\).*/\1/p')
case $(basename "${wheel[0]}") in
"berm-$version-py3-none-manylinux_2_"*"_$(uname -m).whl") ;;
*) fail "the wheel is called $(basename "${wheel[0]}")" ;;
esac
expect 0 "${pip[@]}" install --no-index "${wheel[0]}"
[ -z "$(find "$BERM_SOURCE/python" -name '*.egg-info' -o -name build -o -name '*.whl')" ] ||
    fail 'building the wheel leaves files behind'
cd "$work" || exit 1
site=$("$python" -c 'import berm, os; print(os.path.dirname(berm.__file__))')
[ "$(find "$site" -name 'libberm.so*' | wc -l)" -eq 1 ] || fail 'libberm is there twice: two heaps'

expect 0 "$python" -m berm --version
grep -q "^berm $version, $site/lib/libberm.so.0$" "$work/out" || fail "$(cat "$work/out")"
expect 0 "$python" -m berm --check --json
json 'r["ok"] and r["library"]["loads"] and all(not c["version"] for c in r["consumers"])'
expect 2 "$python" -m berm
expect 0 env LD_LIBRARY_PATH="$site/simcuda" "$python" -m berm --check
grep -q '^1 GPU(s), the first: .*, simulated$' "$work/out" || fail "$(cat "$work/out")"

export LD_LIBRARY_PATH=$site/simcuda
expect 0 env SIMCUDA_MEMORY=1G "$python" "$BERM_SOURCE/tests/consumers/python_api.py"
cat "$work/out"

# What is missing is said in a line.
expect 1 env BERM_LIBRARY="$work/none" "$python" -m berm --check
grep -q '^berm: libberm.so is not found' "$work/out" || fail "$(cat "$work/out")"
expect 1 env BERM_LIBRARY="$work/none" "$python" -c 'import berm; berm.stats()'
grep -q 'BermError: libberm.so is not found' "$work/err" || fail "$(cat "$work/err")"

# Consumers that are installed, and one that is too old.
consumers=${BERM_CONSUMERS_PYTHON:-$BERM_SOURCE/build/consumers/bin/python}
if [ -x "$consumers" ]; then
    expect 0 env PYTHONPATH="$site/.." "$consumers" -m berm --check --json
    json '[c["name"] for c in r["consumers"] if c["served"]] == ["ONNX Runtime", "CuPy", "Numba"]'
    expect 0 env PYTHONPATH="$site/.." "$consumers" -m berm --check
    sed 's/^/  /' "$work/out"
else
    echo 'SKIP: ONNX Runtime, CuPy and Numba are not set up: run ./run consumers-setup'
fi
mkdir -p old/cupy old/cupy_cuda13x-12.1.0.dist-info
touch old/cupy/__init__.py
printf 'Metadata-Version: 2.1\nName: cupy-cuda13x\nVersion: 12.1.0\n' >old/cupy_cuda13x-12.1.0.dist-info/METADATA
expect 1 env PYTHONPATH="$work/old" "$python" -m berm --check
grep -q '^CuPy .*12.1.0 .*cannot be served: version 13.0 or newer is needed$' "$work/out" ||
    fail "$(cat "$work/out")"
finish
