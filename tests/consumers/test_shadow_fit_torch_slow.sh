# SPDX-License-Identifier: Apache-2.0
# berm shadow with a CUDA build of PyTorch: a program that fits and one that does not, the smallest
# memory and the largest batch, the three allocators side by side, recordings, steps.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/torch_python.sh"
export BERM_LIBRARY=$BERM_LIBDIR
gpt2=("$python" "$BERM_SOURCE/examples/gpt2.py" --layers 2 --length 512)

# shadow STATUS OPTION... : of the small GPT-2; what it printed itself is left out.
shadow() {
    expect "$1" timeout 500 "$BERM" shadow --json "${@:2}"
    sed -n '/^{/,$p' "$work/out" >"$work/json"
    cp "$work/json" "$work/out"
}

shadow 0 --steps 2 --record "$work/run.csv.gz" --snapshot "$work/run.pickle" -- "${gpt2[@]}"
json 'r["runs"][0]["fits"] and r["runs"][0]["processes"][0]["steps"] == 2'
json '{"parameters", "optimizer state", "activations"} <= {h["name"] for h in
      r["runs"][0]["processes"][0]["devices"][0]["holders"]}'
peak=$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["runs"][0]["processes"][0]["devices"][0]["peak_requested_bytes"])' \
    "$work/out")
for trace in run.csv.gz run.pickle; do
    expect 0 "$BERM" replay --json "$work/$trace"
    json "r['completed'] and abs(r['peak_live_bytes'] - $peak) < 2**21"
done

# With too large a batch it ends as on the GPU, and says so.
expect 1 timeout 300 "$BERM" shadow --gpu T4-16 --allocator berm -- "${gpt2[@]}" --batch 1000
grep -q 'torch.OutOfMemoryError: CUDA out of memory' "$work/err" || fail "$(tail -3 "$work/err")"
grep -q '^Does not fit: out of memory with berm in step 1' "$work/out" || fail "no verdict"
# Another failure of the program is not one of memory.
expect 2 timeout 100 "$BERM" shadow -- "$python" -c \
    'import torch; torch.zeros(1, device="cuda"); raise ValueError("x")'
grep -q 'failed (exit status 1), and not for memory' "$work/err" || fail "$(tail -1 "$work/err")"

shadow 0 --compare -- "${gpt2[@]}" --batch 2
json '[run["allocator"] for run in r["runs"]] == ["native", "expandable", "berm"]'
json 'all(run["fits"] for run in r["runs"])'
json '(lambda s: s[2] <= s[0] and s[2] <= s[1])(
      [run["smallest_memory_bytes"] for run in r["runs"]])'
json 'all(run["smallest_memory_bytes"] >= run["processes"][0]["devices"][0]["peak_requested_bytes"]
      for run in r["runs"])'
# With two streams it hangs on the time of kernels how much is held; with one it does not.
json 'all(run["reserved_low_bytes"] == run["reserved_high_bytes"] for run in r["runs"])'
shadow 0 --event-range -- "$python" "$BERM_SOURCE/examples/multi_stream.py" --batches 40
json '(lambda s: s["reserved_low_bytes"] < s["reserved_high_bytes"])(r["runs"][0])'
shadow 0 --fit --allocator berm --memory 2G -- "${gpt2[@]}" --batch '{}'
json '1 <= r["runs"][0]["largest_number"] < 64'
finish
