# SPDX-License-Identifier: Apache-2.0
# examples/share.c on the simulated device: two processes share a block, both write and read it, one
# is killed, and the other goes on and ends with nothing left.
. "$(dirname "$0")/../cli/lib.sh"
example=$BERM_BUILD/bin/example_share
SIMCUDA_BACKED=1 SIMCUDA_STRICT=1 LD_LIBRARY_PATH=$BERM_LIBDIR/simcuda expect 0 timeout 60 "$example"
for line in 'B reads  "from A"' 'A reads  "from B"' 'B is killed' 'A reads  "from A alone"' \
    'B: imported: reserved 0 MiB, exported 0 MiB, imported 8 MiB' \
    'A: exported: reserved 8 MiB, exported 8 MiB, imported 0 MiB' \
    'A: freed: reserved 0 MiB, exported 0 MiB, imported 0 MiB'; do
    grep -qxF -- "$line" "$work/out" || fail "no line '$line' in: $(cat "$work/out")"
done
[ -s "$work/err" ] && fail "on standard error: $(cat "$work/err")"

# Without contents it says so, and does not print an empty text.
SIMCUDA_STRICT=1 LD_LIBRARY_PATH=$BERM_LIBDIR/simcuda expect 1 timeout 60 "$example"
grep -q 'SIMCUDA_BACKED=1' "$work/err" || fail "no reason: $(cat "$work/err")"
grep -q 'reads ' "$work/out" && fail "it reads what is not there: $(cat "$work/out")"
finish
