# SPDX-License-Identifier: Apache-2.0
# Real recordings: live peaks as their READMEs say, PyTorch's own reserved memory reproduced by the
# model within 0.5 %, and berm within its bounds.
. "$(dirname "$0")/shared_traces.sh"

torch decoder_train_ctx512.pickle.gz 11851 12010
torch decoder_infer_ctx512.pickle.gz 1859 1890
torch opt_zeroth_order.pickle.gz 1701 1810
torch own/gpt2_fixed.pickle.gz 8220 9748
torch own/gpt2_varlen.pickle.gz 7240 8478
torch own/gpt2_kv.pickle.gz 1275.5 1752
torch own/multi_stream.pickle.gz 234.4 600

berm decoder_train_ctx512.pickle.gz 11851 1.02
berm decoder_infer_ctx512.pickle.gz 1859 1.05
berm opt_zeroth_order.pickle.gz 1701 1.05
berm resnet_ddp_v100.trace.csv.gz 2416 1.05
berm own/gpt2_fixed.pickle.gz 8220 1.05
berm own/gpt2_varlen.pickle.gz 7240 1.05
berm own/gpt2_varlen_expandable.pickle.gz 7240 1.05
berm own/gpt2_kv.pickle.gz 1275.5 1.10
berm own/multi_stream.pickle.gz 234.4 1.05

minimalloc <<'PEAKS'
A 1.000
B 1.000
C 0.991
D 0.940
E 1.000
F 1.000
PEAKS

# What comes again has a plan from the third time on, and makes no memory call then; without plans,
# the second repeat of what fits makes none.
for trace in decoder_train_ctx512 decoder_infer_ctx512; do
    expect 0 "$BERM" replay --json --repeat 4 "$traces/$trace.pickle.gz"
    json "[x['memory_calls'] for x in r['per_repeat'][2:]] == [0, 0]"
    json "all(x['planned_share'] >= 0.95 for x in r['per_repeat'][2:])"
done
expect 0 "$BERM" replay --json --repeat 3 --conf learned_placement:off \
    "$traces/decoder_train_ctx512.pickle.gz"
json "[x['memory_calls'] for x in r['per_repeat'][1:]] == [0, 0]"
finish
