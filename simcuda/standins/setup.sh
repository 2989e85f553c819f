# SPDX-License-Identifier: Apache-2.0
# usage: setup.sh [PYTHON|--tests]
# Makes stand-ins for a CUDA build of torch, under which it runs on a simulated GPU: for the torch of
# PYTHON, or for one that is installed into build/venv. Of that, only the torch wheel and what it
# imports are fetched, no library of NVIDIA's. With --tests build/venv gets what the project's tests
# run beside torch too. Does nothing where nothing is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=stress/real/versions.sh
. "$root/stress/real/versions.sh"

say() { printf 'shadow-setup: %s\n' "$*" >&2; }
die() {
    say "$@"
    exit 2
}

for_tests=no
[ "${1:-}" != --tests ] || { for_tests=yes && shift; }
venv=$root/build/venv
python=${1:-$venv/bin/python}
stamp=$venv/.torch-$TORCH_VERSION
tests_stamp=$venv/.tests-$(printf '%s' "${TEST_PACKAGES[*]}" | cksum | cut -d ' ' -f 1)

# The packages that the installed torch wants, without those that bring or need CUDA libraries.
imports_of_torch() {
    "$venv/bin/python" - <<'PY'
import importlib.metadata, re
for line in importlib.metadata.requires("torch"):
    name = re.match(r"[\w.-]+", line)[0]
    if not re.match(r"nvidia|cuda|triton", name) and "extra ==" not in line:
        print(line)
PY
}

# Runs pip; what it has to say (much, of packages that are left out on purpose) is shown on failure.
fetch() {
    "$venv/bin/pip" --quiet --disable-pip-version-check install "$@" >"$venv/pip.log" 2>&1 && return
    cat "$venv/pip.log" >&2
    die "$1 cannot be had by pip for $("$venv/bin/python" --version); see above"
}

install() {
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" ||
        die "python3 cannot make an environment: install python3-venv"
    say "fetching torch $TORCH_VERSION for build/venv ($TORCH_WHEEL_SIZE, and $TORCH_IMPORTS_SIZE for what it imports)"
    fetch "torch==$TORCH_VERSION" --no-deps --only-binary=:all:
    local wanted
    mapfile -t wanted < <(imports_of_torch)
    fetch numpy "${wanted[@]}"
    touch "$stamp"
}

install_for_tests() {
    say "fetching ${TEST_PACKAGES[*]} for build/venv ($TEST_PACKAGES_SIZE)"
    fetch "${TEST_PACKAGES[@]}"
    touch "$tests_stamp"
}

if [ $# -eq 0 ]; then
    [ -e "$stamp" ] || install
    [ "$for_tests" = no ] || [ -e "$tests_stamp" ] || install_for_tests
elif ! command -v "$python" >/dev/null; then
    die "$python: no such program"
fi
PYTHONPATH=$root/python "$python" -B - <<'PY' || exit 2
import os, sys, time
from berm import _standins

def say(text):
    print(f"shadow-setup: {text}", file=sys.stderr)

try:
    torch = _standins.torch_folder()
    if torch is None:
        sys.exit(f"shadow-setup: {sys.executable} has no torch: install a CUDA build of it")
    if _standins.find(torch) is None:
        began = time.monotonic()
        folder = _standins.make(torch)
        size = sum(path.stat().st_size for path in folder.iterdir()) >> 10
        say(f"made {os.path.relpath(folder)}, {size} KiB, in {time.monotonic() - began:.1f} s")
    say(f"ready: {sys.executable}, torch in {torch}")
except _standins.StandinsError as error:
    sys.exit(f"shadow-setup: {error}")
PY
