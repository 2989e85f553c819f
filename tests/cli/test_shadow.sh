# SPDX-License-Identifier: Apache-2.0
# berm shadow and berm run without torch: bad options, programs that cannot be run or import no
# torch, and the account of a trace (python/berm/_account.py).
. "$(dirname "$0")/lib.sh"

bad 'no program given' "$BERM" shadow
bad 'no program given' "$BERM" shadow --fit --
bad "no option '--nothing'" "$BERM" shadow --nothing -- true
bad "allocator does not take 'x'" "$BERM" shadow --allocator x -- true
bad "values does not take 'x'" "$BERM" shadow --values x -- true
bad "steps does not take '0'" "$BERM" shadow --steps 0 -- true
bad "devices does not take '17'" "$BERM" shadow --devices 17 -- true
bad "memory does not take 'x'" "$BERM" shadow --memory x -- true
bad 'gpu needs a value' "$BERM" shadow --gpu
bad 'not with --compare' "$BERM" shadow --compare --record x -- true
bad 'no-such-program' "$BERM" shadow -- "$work/no-such-program"
bad 'before it had imported torch' "$BERM" shadow -- true
bad 'exit status 3' "$BERM" shadow -- sh -c 'exit 3'
BERM_PYTHON=$work bad "Python package is not in $work" "$BERM" shadow -- true

bad 'no program given' "$BERM" run
bad "no option '--nothing'" "$BERM" run --nothing -- true
bad 'conf needs a value' "$BERM" run --conf
bad 'no-such-program' "$BERM" run -- "$work/no-such-program"
expect 7 "$BERM" run --torch --conf headroom:5 -- sh -c 'echo "$BERM_CONF $BERM_RUN $PYTHONPATH"; exit 7'
grep -q '^live_page:on,headroom:5 1 .*/berm/_site:' "$work/out" || fail "environment: $(cat "$work/out")"

# A Python without torch goes on as it is, and the sitecustomize of the user still runs.
mkdir "$work/site"
echo 'print("mine")' >"$work/site/sitecustomize.py"
PYTHONPATH=$work/site expect 0 "$BERM" run -- python3 -c 'print("program")'
[ "$(cat "$work/out")" = "mine
program" ] || fail "sitecustomize: $(cat "$work/out")"

cat >"$work/account.py" <<'PY'
import sys
from berm import _account

frame = [{"filename": "train.py", "line": 7, "name": "step"}]
trace = [
    {"action": "alloc", "addr": 1, "size": 100, "stream": 0, "time_us": 1, "frames": frame,
     "user_metadata": "Net.layers.3.norm"},
    {"action": "alloc", "addr": 2, "size": 50, "stream": 0, "time_us": 2, "frames": frame},
    {"action": "free_requested", "addr": 1, "size": 100, "stream": 0, "time_us": 5},
    {"action": "alloc", "addr": 3, "size": 10, "stream": 0, "time_us": 6},
    {"action": "free_completed", "addr": 1, "size": 100, "stream": 0, "time_us": 7},
    {"action": "free_requested", "addr": 2, "size": 50, "stream": 0, "time_us": 8},
    {"action": "free_completed", "addr": 2, "size": 50, "stream": 0, "time_us": 8},
    {"action": "alloc", "addr": 1, "size": 20, "stream": 0, "time_us": 9, "frames": frame},
]
one = _account.of_trace(trace, [(4, {2: "parameters"})], [7.5], lambda name: name == "train.py")
assert one["peak_requested_bytes"] == 150 and one["peak_step"] == 1, one
assert one["allocations"] == 4 and one["live_end_bytes"] == 30, one
assert one["step_peak_bytes"] == [150], one
assert {row["name"]: row["bytes"] for row in one["holders"]} == {
    "activations": 100, "parameters": 50}, one
assert one["modules"][0] == {"name": "Net.layers.*.norm", "bytes": 100, "blocks": 1}, one
assert one["lines"] == [{"name": "train.py:7 step", "bytes": 150, "blocks": 2}], one
_account.write_csv(trace, sys.argv[1])
PY
PYTHONPATH=$BERM_SOURCE/python expect 0 python3 -B "$work/account.py" "$work/trace.csv"
expect 0 "$BERM" replay --json "$work/trace.csv"
json 'r["completed"] and r["events"] == 7 and r["peak_live_bytes"] == 150'
finish
