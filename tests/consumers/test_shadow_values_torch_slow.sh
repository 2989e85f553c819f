# SPDX-License-Identifier: Apache-2.0
# Values under berm shadow, with a CUDA build of PyTorch: what a program reads, in both modes, and
# what the report says of it; two processes with DistributedDataParallel; the torch that
# ./run shadow-setup installs, or that of the Python in BERM_TORCH_PYTHON.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/torch_python.sh"
export BERM_CACHE_DIR=$work/cache
values=$BERM_SOURCE/tests/consumers/shadow_values.py

# report EXPRESSION: about the report `p` of the only process.
report() {
    sed -n '/^{/,$p' "$work/out" >"$work/json"
    cp "$work/json" "$work/out"
    json "(lambda p: $1)(r['runs'][0]['processes'][0])"
}

for kind in small all; do
    expect 0 timeout 200 "$BERM" shadow --values $kind --json -- "$python" "$values" $kind
    grep -q "values $kind: ok" "$work/out" || fail "values $kind: $(tail -3 "$work/err")"
    report 'p["values"]["operators"] > 100 and p["values"]["known_reads"] > 30'
    report "(p['values']['unknown_reads'] > 0) == ('$kind' == 'small')"
    report 'p["values"]["not_on_cpu"] == []'
done
# The lines that read what is not known are named.
expect 0 timeout 200 "$BERM" shadow --values small --json -- "$python" "$values" small
report 'any("shadow_values.py:" in line for line, _ in p["values"]["unknown_read_lines"])'

# DDP compares its parameters before it starts.
expect 0 timeout 300 "$BERM" shadow --devices 2 --json -- "$python" -m torch.distributed.run \
    --nproc-per-node 2 "$BERM_SOURCE/examples/vision.py" --batch 2 --steps 2 --size 64
sed -n '/^{/,$p' "$work/out" >"$work/json"
cp "$work/json" "$work/out"
json '[sorted(d["device"] for p in r["runs"][0]["processes"] for d in p["devices"]
       if d["peak_requested_bytes"] > 1 << 20)] == [[0, 1]]'

for example in 'gpt2 --layers 2 --steps 1' 'kv_cache --layers 2 --requests 2' 'moe --layers 1' \
    'multi_stream --batches 4' 'unet --steps 1' 'vision --steps 1 --size 64'; do
    # shellcheck disable=SC2086
    set -- $example
    expect 0 timeout 200 "$BERM" shadow -- "$python" "$BERM_SOURCE/examples/$1.py" "${@:2}"
    grep -q ' fits$' "$work/out" || fail "$example: no verdict"
done
finish
