# SPDX-License-Identifier: Apache-2.0
# berm shadow with several processes, as torchrun starts them, and with Hugging Face's transformers:
# a report of each rank, also of one that waited for another that had failed; exit statuses; the
# smallest memory.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/torch_python.sh"
export BERM_LIBRARY=$BERM_LIBDIR
torchrun=("$python" -m torch.distributed.run --nproc-per-node 2)
small=("$BERM_SOURCE/examples/fsdp2.py" --layers 2 --width 128 --length 64 --batch 2 --steps 2)

# Both ranks, each with its own GPU and nothing of the other's, hold the same; as many GPUs as ranks.
expect 0 timeout 200 "$BERM" shadow --json -- "${torchrun[@]}" "${small[@]}"
sed -n '/^{/,$p' "$work/out" >"$work/json" && cp "$work/json" "$work/out"
json '(lambda ranks: [(p["rank"], p["steps"], [d["device"] for d in p["devices"]])
                      for p in sorted(ranks, key=lambda p: p["rank"])] ==
      [("0", 2, [0]), ("1", 2, [1])])([p for p in r["runs"][0]["processes"] if p["rank"]])'
json '(lambda peaks: min(peaks) > 1 << 20 and max(peaks) - min(peaks) < 1 << 20)(
      [d["peak_requested_bytes"] for p in r["runs"][0]["processes"] for d in p["devices"]])'
json 'all(p["values"]["unknown_reads"] == 0 for p in r["runs"][0]["processes"])'
# What the host needs does not grow with the two GPUs of 80 GB.
json 'all(p["host_rss_bytes"] < 1 << 30 for p in r["runs"][0]["processes"])'

# One rank is short of memory while the other waits for it in a collective, and is ended.
cat >"$work/short.py" <<'PY'
import os, torch
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.distributed.init_process_group("nccl")
held = torch.ones(1 << 20, device="cuda")
small = torch.ones(4, device="cuda")
torch.distributed.all_reduce(small)
assert small.tolist() == [2.0] * 4, small.tolist()
if rank == 1:
    torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
torch.distributed.all_reduce(small)
PY
expect 1 timeout 200 "$BERM" shadow --gpu T4-16 -- "${torchrun[@]}" "$work/short.py"
grep -q '^Does not fit: out of memory with native in rank 1 in step 1' "$work/out" ||
    fail "no verdict: $(grep 'not fit' "$work/out")"
grep -Eq '^[0-9]+ +0 +0 +4.0 .* 0  (was ended|failed)$' "$work/out" || fail "rank 0: $(cat "$work/out")"
grep -Eq '^[0-9]+ +1 +1 +4.0 .* 0  does not fit$' "$work/out" || fail "rank 1: $(cat "$work/out")"
grep -q 'torch.OutOfMemoryError: CUDA out of memory' "$work/err" || fail "no error of torch's"
# (NCCL of torch 2.13 prints stacks of its own, whose lines begin with a number.)
grep -v '^#[0-9]' "$work/err" | grep -q 'python/berm/_' && fail "lines that the program does not have, in a traceback"
# A rank that ends without Python's end is missed.
sed -i 's/^    torch.empty.*/    os._exit(3)/' "$work/short.py"
expect 2 timeout 200 "$BERM" shadow --json -- "${torchrun[@]}" "$work/short.py"
grep -q 'failed (exit status 1), and not for memory' "$work/err" || fail "$(tail -1 "$work/err")"

# torchrun's own exit status does not hide that a trial was short of memory.
echo 'import torch; held = [torch.ones(3 << 18, device="cuda") for _ in range(5)]' >"$work/little.py"
torchrun[-1]=1
expect 0 timeout 500 "$BERM" shadow --json --fit -- "${torchrun[@]}" "$work/little.py"
json 'r["runs"][0]["fits"] and r["runs"][0]["smallest_memory_bytes"] == 20 << 20'

if ! "$python" -c 'import transformers' 2>/dev/null; then
    echo 'SKIP: transformers is not set up: run ./run shadow-setup --tests'
    finish
fi
hf=("$BERM_SOURCE/examples/hf_gpt2.py" --layers 2 --batch 2 --length 128 --steps 2 --tokens 5)
expect 0 timeout 200 "$BERM" shadow -- "$python" "${hf[@]}"
grep -q '^5 tokens generated$' "$work/out" || fail "generate: $(head -5 "$work/out")"
grep -Eq '^native .* fits$' "$work/out" || fail "no verdict"
grep -q ' GPT2LMHeadModel' "$work/out" || fail "no modules"
expect 1 timeout 200 "$BERM" shadow --gpu T4-16 -- "$python" "${hf[@]}" --batch 2000
grep -q '^Does not fit: out of memory with native in step 1' "$work/out" || fail "no verdict"
finish
