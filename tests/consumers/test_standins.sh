# SPDX-License-Identifier: Apache-2.0
# The generated stand-ins for CUDA's math and communication libraries, without a torch: what make.py
# reads from libraries and writes for them, every function of the tables called, and the tables
# against the libraries' own headers where those are installed.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
for tool in gcc python3; do
    command -v "$tool" >/dev/null || { echo "SKIP: no $tool"; exit 77; }
done
simcuda=$BERM_LIBDIR/simcuda
make=$BERM_SOURCE/simcuda/standins/make.py
flags=(-std=gnu11 -fPIC -shared -w)

# A folder that looks like torch's: one library that wants CUDA libraries under their names and
# nodes, of CUDA 12 and one that has no table.
torch=$work/site/torch
mkdir -p "$torch/lib" "$work/real"
wants() { # SONAME NODE FUNCTION...: a library with these functions, and calls of them
    local soname=$1 node=$2 name
    shift 2
    for name in "$@"; do
        echo "int $name(void *a, void *b, void *c) { return 99; }" >>"$work/$soname.c"
        echo "int $name(void *a, void *b, void *c); void *use_$name(void) { return (void *)$name; }" \
            >>"$work/torch.c"
    done
    echo "${node}{ global: *; };" >"$work/$soname.map"
    expect 0 gcc "${flags[@]}" "$work/$soname.c" -Wl,-soname,"$soname" \
        -Wl,--version-script="$work/$soname.map" -o "$work/real/$soname"
}
wants libcublas.so.12 'libcublas.so.12 ' cublasCreate_v2 cublasSetStream_v2 cublasSomethingNew
wants libcudnn.so.9 'libcudnn.so.9 ' cudnnCreateTensorDescriptor cudnnGetVersion
wants libnccl.so.2 '' ncclGetVersion ncclGetUniqueId
wants libcudss.so.0 'LIBCUDSS_0 ' cudssCreate
wants libcudart.so.13 'libcudart.so.13 ' cudaMalloc cudaSomethingNew
expect 0 gcc "${flags[@]}" "$work/torch.c" -Wl,--no-as-needed "$work"/real/lib*.so.* \
    -o "$torch/lib/libtorch_cuda.so"
echo 'not a library' >"$torch/lib/libscript.so"
printf "__version__ = '9.9.9'\ncuda: Optional[str] = '12.9'\n" >"$torch/version.py"
mkdir "$work/site/torch-9.9.9.dist-info"
echo 'Requires-Dist: nvidia-cudnn-cu12==9.8.7.6; platform_system == "Linux"' \
    >"$work/site/torch-9.9.9.dist-info/METADATA"

expect 0 python3 -B "$make" "$torch" "$simcuda" "$work/out_folder"
cat >"$work/use.py" <<'PY'
import ctypes, os, sys
sys.path.insert(0, os.environ["BERM_SOURCE"] + "/python")
from berm import _standins
folder, torch = sys.argv[1:]
_standins.load(folder)
library = ctypes.CDLL(torch + "/lib/libtorch_cuda.so")

def function(name):
    # By way of the library, as torch's own code calls it.
    use = getattr(library, "use_" + name)
    use.restype = ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(use())

word = ctypes.c_uint64(0)
there = ctypes.addressof(word)
assert function("cublasCreate_v2")(there, None, None) == 0 and word.value != 0
assert function("cublasSetStream_v2")(word.value, None, None) == 0
assert function("cublasSetStream_v2")(word.value + 1, None, None) == 1
assert function("cublasSomethingNew")(None, None, None) == 15
assert function("cudnnCreateTensorDescriptor")(there, None, None) == 0 and word.value != 0
assert function("cudnnGetVersion")(None, None, None) == 90807
assert function("ncclGetVersion")(there, None, None) == 0 and word.value & 0xFFFFFFFF >= 22000
assert function("cudssCreate")(there, None, None) == 1
assert function("cudaSomethingNew")(None, None, None) == 801
assert function("cudaMalloc")(there, 1 << 20, None) == 0 and word.value != 0
# A name that is looked up in one library by itself is found though another has it.
assert ctypes.CDLL(folder + "/libcudnn.so.9").cudnnBackendFinalize
PY
expect 0 env SIMCUDA_MEMORY=1G python3 -B "$work/use.py" "$work/out_folder" "$torch"

# What goes wrong is said in a line.
mkdir -p "$work/empty/lib"
expect 1 python3 -B "$make" "$work/empty" "$simcuda" "$work/none"
grep -q 'not a CUDA build' "$work/err" || fail 'no word of a folder without CUDA'
expect 1 python3 -B "$make" "$torch" "$work/empty" "$work/none"
grep -q 'build berm first' "$work/err" || fail 'no word of a build that is missing'
expect 1 env CC=no-such-compiler python3 -B "$make" "$torch" "$simcuda" "$work/none"
grep -q 'no-such-compiler: .*compiler is needed' "$work/err" || fail 'no word of a missing compiler'
expect 1 python3 -B "$make"
grep -q usage "$work/err" || fail 'no usage line'
head -c 5000 "$torch/lib/libtorch_cuda.so" >"$torch/lib/libdamaged.so"
expect 0 python3 -B "$make" "$torch" "$simcuda" "$work/again"
cmp -s "$work/out_folder/order" <(sed "s#$work/again#$work/out_folder#" "$work/again/order") ||
    fail 'a damaged library changed what is made'

# The loader's own: made once, kept by what it is made of, refused after torch.
cat >"$work/loader.py" <<'PY'
import os, sys
sys.path.insert(0, os.environ["BERM_SOURCE"] + "/python")
from berm import _standins
torch = sys.argv[1]
assert _standins.find(torch) is None
folder = _standins.make(torch)
assert _standins.find(torch) == folder and _standins.make(torch) == folder
assert folder.parent.parent.samefile(os.environ["BERM_CACHE_DIR"])
os.utime(torch + "/lib/libtorch_cuda.so", (1, 1))
assert _standins.find(torch) is None
sys.modules["torch"] = None
try:
    _standins.load(folder)
    raise SystemExit("loaded after torch")
except _standins.StandinsError as error:
    assert "imported already" in str(error)
for wrong in ("/nonexistent", os.environ["BERM_CACHE_DIR"]):
    try:
        _standins.make(wrong)
        raise SystemExit("made for no torch")
    except _standins.StandinsError as error:
        assert "not a CUDA build" in str(error)
empty = os.environ["BERM_CACHE_DIR"] + "/torch"
os.mkdir(empty)
try:
    _standins.make(empty)
    raise SystemExit("made for no torch")
except _standins.StandinsError as error:
    assert "no torch folder" in str(error)
PY
mkdir "$work/cache"
expect 0 env BERM_CACHE_DIR="$work/cache" BERM_SIMCUDA="$simcuda" python3 -B "$work/loader.py" "$torch"
[ -z "$(find "$work/cache" -name 'new-*')" ] || fail 'a folder was left half made'

# Another package, of two folders: libraries below, two of one name, and functions that are opened by
# name, of a library that nothing needs.
mkdir -p "$work/site/app/capi" "$work/site/app/more" "$work/site/app_parts"
cat >"$work/app.c" <<'C'
const char *const names[] = {"cudnnCreate", "cudnnGetVersion", "cudnnSomethingNew"};
int cudaMalloc(void **a, unsigned long b);
int app_start(void) { void *there; return cudaMalloc(&there, 1 << 20) + (names[0] == 0); }
C
expect 0 gcc "${flags[@]}" "$work/app.c" -Wl,--no-as-needed "$work/real/libcudart.so.13" \
    -o "$work/site/app/capi/libapp.so"
echo 'int cublasCreate_v2(void *); int part(void *a) { return cublasCreate_v2(a); }' >"$work/part.c"
expect 0 gcc "${flags[@]}" "$work/part.c" -Wl,--no-as-needed "$work/real/libcublas.so.12" \
    -o "$work/site/app/more/part.so"
echo 'int ncclGetVersion(void *); int other(void *a) { return ncclGetVersion(a); }' >"$work/other.c"
expect 0 gcc "${flags[@]}" "$work/other.c" -Wl,--no-as-needed "$work/real/libnccl.so.2" \
    -o "$work/site/app_parts/part.so"
expect 0 python3 -B "$make" "$work/site/app" "$work/site/app_parts" "$simcuda" "$work/app_out"
for name in libcublas.so.12 libcublasLt.so.12 libnccl.so.2 libcudnn.so.9; do
    grep -qx "$name" "$work/app_out/order" || fail "$name is not made for a package"
done
cat >"$work/app.py" <<'PY'
import ctypes, os, sys
sys.path.insert(0, os.environ["BERM_SOURCE"] + "/python")
from berm import _standins
_standins.load(sys.argv[1])
assert ctypes.CDLL(sys.argv[2]).app_start() == 0
cudnn = ctypes.CDLL("libcudnn.so.9") # by name, as a program opens it
assert cudnn.cudnnGetVersion() > 90000 and cudnn.cudnnSomethingNew() == 3000
handle = ctypes.c_uint64()
assert cudnn.cudnnCreate(ctypes.byref(handle)) == 0 and handle.value
assert cudnn.cudnnDestroy # of the table: a name that is put together
with open("/proc/self/maps") as maps:
    assert {line.split()[-1] for line in maps if "libcudnn" in line} == {sys.argv[1] + "/libcudnn.so.9"}
PY
expect 0 env SIMCUDA_MEMORY=1G python3 -B "$work/app.py" "$work/app_out" \
    "$work/site/app/capi/libapp.so"

# Every function of every table.
mkdir "$work/calls"
expect 0 env SIMCUDA_MEMORY=1G python3 -B "$BERM_SOURCE/tests/consumers/standins_calls.py" \
    "$simcuda" "$work/calls"
cat "$work/out"

# The tables against headers.
headers=()
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" \
    "$BERM_SOURCE"/build/venv/lib/python3*/site-packages/nvidia/*/include; do
    if [ -d "$folder" ]; then headers+=("$folder"); fi
done
if [ ${#headers[@]} -eq 0 ]; then
    echo 'SKIP: no CUDA toolkit: the tables are not compared with headers'
else
    expect 0 python3 -B "$BERM_SOURCE/tests/consumers/standins_headers.py" "${headers[@]}"
    cat "$work/out"
fi
finish
