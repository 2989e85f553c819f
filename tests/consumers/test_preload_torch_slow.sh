# SPDX-License-Identifier: Apache-2.0
# Real PyTorch under libberm_preload.so on the simulated device: what its own allocators ask of the
# runtime is served by berm; and with berm as PyTorch's allocator in the same process, one libberm.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/torch_python.sh"
export BERM_LIBRARY=$BERM_LIBDIR BERM_CONF=log:error
program=$BERM_SOURCE/tests/consumers/preload_torch.py

# under OPTION VARIABLE=VALUE...: the program, and its figures
under() {
    expect 0 env "${@:2}" timeout 200 "$BERM" run "$1" --stats --simulated --memory 16G -- \
        "$python" "$program"
    grep -q ' done$' "$work/out" || fail "it did not end: $(tail -2 "$work/err")"
    grep '^berm: served' "$work/err" || fail "no figures: $(tail -2 "$work/err")"
}
served() { grep '^berm: served' "$work/err" | sed 's/.*served \([0-9]*\) requests.*/\1/'; }

under --preload
[ "$(served)" -ge 10 ] || fail "native: $(served) requests"
under --preload PYTORCH_NO_CUDA_MEMORY_CACHING=1 # each tensor is a cudaMalloc
[ "$(served)" -ge 150 ] || fail "without a cache: $(served) requests"
under --preload PYTORCH_ALLOC_CONF=backend:cudaMallocAsync
[ "$(served)" -ge 150 ] || fail "cudaMallocAsync: $(served) requests"

# Both: PyTorch's requests come by the subclass, and there is one libberm in the process.
cat >"$work/both.py" <<'PY'
import torch
x = torch.empty(8 << 20, device="cuda")
assert torch.cuda.get_allocator_backend() == "berm", torch.cuda.get_allocator_backend()
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libberm.so" in line}
assert len(libraries) == 1, libraries
assert any("libberm_preload" in line for line in open("/proc/self/maps"))
assert torch.cuda.memory_allocated() == 32 << 20 and torch.cuda.memory_reserved() >= 32 << 20
PY
expect 0 timeout 200 "$BERM" run --simulated --memory 16G -- sh -c '"$0" "$1"' "$python" "$work/both.py"
finish
