# SPDX-License-Identifier: Apache-2.0
# berm replay --series, and real allocators that are not set up: one line that says what to do.
. "$(dirname "$0")/lib.sh"
trace=$BERM_SOURCE/stress/traces/multi_stream.pickle.gz

expect 0 "$BERM" replay --json --repeat 2 --allocator pytorch --series "$work/s.csv" "$trace"
is_json
python3 - "$work/s.csv" "$work/out" <<'PY' || fail 'the series does not agree with the report'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
r = json.load(open(sys.argv[2]))
first = [row for row in rows if row["repeat"] == "0"]
assert len(rows) == 2 * r["events"] and len(first) == r["events"], len(rows)
assert [int(row["event"]) for row in first] == list(range(r["events"]))
assert max(int(row["live_bytes"]) for row in rows) == r["peak_live_bytes"]
assert max(int(row["reserved_bytes"]) for row in rows) == r["peak_reserved_bytes"]
PY

# What it cost so far never falls, and comes to what the report says, but for frees after the end.
expect 0 "$BERM" replay --json --repeat 3 --headroom 0 --series "$work/c.csv" "$trace"
python3 - "$work/c.csv" "$work/out" <<'PY' || fail 'costs in the series do not agree with the report'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
r = json.load(open(sys.argv[2]))
columns = {name: [int(row[name]) for row in rows]
           for name in ("moved_bytes", "driver_calls", "driver_us")}
assert all(values == sorted(values) for values in columns.values())
last = {name: values[-1] for name, values in columns.items()}
assert last["moved_bytes"] == r["moved_bytes_total"], last
calls = sum(r["driver_calls"].values())
assert calls * 0.9 <= last["driver_calls"] <= calls and columns["driver_calls"][0] > 0, (last, calls)
assert r["driver_us"] * 0.9 <= last["driver_us"] <= r["driver_us"], (last, r["driver_us"])
PY
bad 'one trace by one allocator' "$BERM" replay --allocator pytorch,naive --series "$work/s.csv" "$trace"
bad 'one trace by one allocator' "$BERM" fit --allocator pytorch --series "$work/s.csv" "$trace"
bad 'No such file' "$BERM" replay --allocator pytorch --series "$work/no/s.csv" "$trace"

export BERM_TORCH_BASELINE=$work/none.so BERM_RMM_BASELINE=$work/none.so
bad 'run ./run torch-setup' "$BERM" replay --allocator torch-native "$trace"
bad 'run ./run torch-setup' "$BERM" fit --allocator torch-expandable "$trace"
bad 'run ./run rmm-setup' "$BERM" replay --allocator rmm-pool "$trace"
# A library that is no baseline.
cp "$BERM_LIBDIR/simcuda/libcuda.so.1" "$work/none.so"
bad 'stress_real_version' "$BERM" replay --allocator torch-native "$trace"
finish
