# SPDX-License-Identifier: Apache-2.0
# PyTorch's torch.cuda._memory_viz on what berm exports.
. "$(dirname "$0")/torch_python.sh"
. "$(dirname "$0")/../cli/lib.sh"
for trace in two_streams.csv.gz multi_stream.pickle.gz moe.csv.gz; do
    expect 0 "$BERM" replay --conf "recording:$work/r.json" "$BERM_SOURCE/stress/traces/$trace"
    expect 0 "$BERM" export "$work/r.json" --format pytorch -o "$work/r.pickle"
    "$python" "$BERM_SOURCE/tests/consumers/memory_viz.py" "$work/r.pickle" "$work/r.json" ||
        fail "$trace: PyTorch does not take it"
done
finish
