# SPDX-License-Identifier: Apache-2.0
# Real recordings: live peaks as their READMEs say, PyTorch's own reserved memory reproduced by the
# model within 0.5 %, and berm within its bounds.
. "$(dirname "$0")/lib.sh"

if [ -z "${BERM_SHARED:-}" ] || [ ! -d "$BERM_SHARED/traces" ]; then
    echo 'SKIP: no recordings beside the repository'
    exit 77
fi
traces=$BERM_SHARED/traces

# live FILE MIB: the peak of live, within 1 MiB, and a clean run.
check_run() { # ALLOCATOR FILE LIVE_MIB
    expect 0 "$BERM" replay --json --allocator "$1" "$traces/$2"
    json "r['completed'] and r['hazards'] == 0 and r['leaked_blocks'] == 0"
    json "abs(r['peak_live_bytes'] / 2**20 - $3) <= 1"
}

# torch FILE LIVE_MIB RESERVED_MIB: what PyTorch itself had reserved at most.
torch() {
    check_run pytorch "$1" "$2"
    json "abs(r['peak_reserved_bytes'] / 2**20 / $3 - 1) <= 0.005"
    python3 -c "
import json
r = json.load(open('$work/out'))
print('pytorch', '$1', round(r['peak_reserved_bytes'] / 2**20, 1), 'of $3 MiB')"
}
torch decoder_train_ctx512.pickle.gz 11851 12010
torch decoder_infer_ctx512.pickle.gz 1859 1890
torch opt_zeroth_order.pickle.gz 1701 1810
torch own/gpt2_fixed.pickle.gz 8220 9748
torch own/gpt2_varlen.pickle.gz 7240 8478
torch own/gpt2_kv.pickle.gz 1275.5 1752
torch own/multi_stream.pickle.gz 234.4 600

# berm FILE LIVE_MIB RATIO: reserved over live at most.
berm() {
    check_run berm "$1" "$2"
    json "r['reserved_over_live'] <= $3"
    python3 -c "
import json
r = json.load(open('$work/out'))
print('berm', '$1', r['reserved_over_live'], 'bound $3')"
}
berm decoder_train_ctx512.pickle.gz 11851 1.02
berm decoder_infer_ctx512.pickle.gz 1859 1.05
berm opt_zeroth_order.pickle.gz 1701 1.05
berm resnet_ddp_v100.trace.csv.gz 2416 1.05
berm own/gpt2_fixed.pickle.gz 8220 1.05
berm own/gpt2_varlen.pickle.gz 7240 1.05
berm own/gpt2_varlen_expandable.pickle.gz 7240 1.05
berm own/gpt2_kv.pickle.gz 1275.5 1.10
berm own/multi_stream.pickle.gz 234.4 1.05

# MiniMalloc: the peaks in units of 2^20, at 64 KiB a unit.
while read -r name peak; do
    expect 0 "$BERM" replay --json --allocator pytorch --capacity 4T --scale 65536 \
        "$traces/minimalloc_$name.csv"
    json "abs(r['peak_live_bytes'] / 2**36 - $peak) < 0.001"
done <<'PEAKS'
A 1.000
B 1.000
C 0.991
D 0.940
E 1.000
F 1.000
PEAKS

# The second repeat of what fits makes no memory call.
expect 0 "$BERM" replay --json --repeat 3 "$traces/decoder_train_ctx512.pickle.gz"
json "[x['memory_calls'] for x in r['per_repeat'][1:]] == [0, 0]"
finish
