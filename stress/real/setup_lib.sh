# SPDX-License-Identifier: Apache-2.0
# What the setup scripts share: taking parts of wheels, doing nothing when nothing has changed.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=stress/real/versions.sh
. "$root/stress/real/versions.sh"

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$@"
    exit 2
}

# Where berm was built, for its stand-in of the CUDA runtime.
build=${BERM_BUILD:-$root/build/release}
standins=$build/lib/simcuda
[ -e "$standins/libcudart.so.13" ] || die "no $standins/libcudart.so.13: run ./run build first"
for tool in g++ nm python3; do
    command -v "$tool" >/dev/null || die "$tool is not installed"
done

# pip of the system, or one in an environment under build/.
pip() {
    local python=python3
    if ! python3 -m pip --version >/dev/null 2>&1; then
        python=$root/build/venv-pip/bin/python
        [ -x "$python" ] || python3 -m venv "$root/build/venv-pip" ||
            die "neither pip nor venv for python3: install python3-venv"
    fi
    "$python" -m pip "$@"
}

# The version of the Python that runs here, "3.11".
python_version() {
    python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# take FOLDER PACKAGE VERSION PREFIX...: puts the files of the package's wheel whose names start with
# a PREFIX below FOLDER. A package that is there already is not fetched again. The wheel is one for
# the Python that take_for names, where it matters.
take_for=$TORCH_PYTHON
take() {
    local folder=$1 package=$2 version=$3
    shift 3
    local stamp=$folder/.$package-$version-$take_for wheels
    [ -e "$stamp" ] && return
    rm -rf "$folder"/wheel.* # of a call that was interrupted
    wheels=$(mktemp -d "$folder/wheel.XXXXXX")
    say "fetching $package $version"
    pip --quiet --disable-pip-version-check download --no-deps --only-binary=:all: \
        --implementation cp --python-version "$take_for" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --dest "$wheels" "$package==$version" ||
        die "$package $version cannot be had by pip; see above"
    python3 - "$wheels" "$folder" "$@" <<'PY'
import pathlib, sys, zipfile
wheels, folder, prefixes = sys.argv[1], sys.argv[2], tuple(sys.argv[3:])
for wheel in pathlib.Path(wheels).glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(prefixes)]
        if not names:
            sys.exit(f"setup: {wheel.name} has none of {prefixes}")
        archive.extractall(folder, names)
PY
    rm -rf "$wheels"
    touch "$stamp"
}

# CUDA's own headers, which torch's and RMM's include; the folder goes into `cuda`.
take_cuda_headers() {
    local folder=$root/build/cuda-headers
    mkdir -p "$folder"
    take "$folder" nvidia-cuda-runtime "$CUDA_RUNTIME_VERSION" nvidia/cu13/include/
    take "$folder" nvidia-cuda-crt "$CUDA_RUNTIME_VERSION" nvidia/cu13/include/
    # shellcheck disable=SC2034
    cuda=$folder/nvidia/cu13/include
}

# digest FILE...: one word that changes with any of the files.
digest() {
    cat "$@" | cksum | tr ' ' '-'
}
