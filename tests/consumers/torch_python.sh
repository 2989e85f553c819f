# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests that need a CUDA build of PyTorch: sets `python` to the one that
# ./run shadow-setup installs, or that in BERM_TORCH_PYTHON; the test is skipped where there is none.
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: the programs of torch run in the plain build'
    exit 77
fi
python=${BERM_TORCH_PYTHON:-$BERM_SOURCE/build/venv/bin/python}
if ! PYTHONPATH=$BERM_SOURCE/python "$python" -B -c \
    'import sys; from berm import _standins; sys.exit(_standins.torch_lacks())' 2>/dev/null; then
    echo 'SKIP: no CUDA build of torch is set up: run ./run shadow-setup'
    exit 77
fi
export BERM_SIMCUDA=$BERM_LIBDIR/simcuda PYTHONDONTWRITEBYTECODE=1
