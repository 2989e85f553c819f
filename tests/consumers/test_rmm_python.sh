# SPDX-License-Identifier: Apache-2.0
# RMM's real Python package with berm as its resource, on the simulated device.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: Python is not sanitized'
    exit 77
fi
package=$BERM_SOURCE/build/rmm/python
if [ ! -d "$package/rmm" ]; then
    echo 'SKIP: RMM is not set up: run ./run rmm-setup'
    exit 77
fi
export PYTHONPATH=$BERM_SOURCE/python:$package BERM_LIBRARY=$BERM_LIBDIR SIMCUDA_MEMORY=4G
export SIMCUDA_STRICT=1
expect 0 timeout 120 python3 -B "$BERM_SOURCE/tests/consumers/rmm/python.py" "$BERM_LIBDIR/simcuda"
cat "$work/out"
grep -q '^rmm .* reached berm' "$work/out" || fail 'no line on calls'
finish
