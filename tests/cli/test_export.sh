# SPDX-License-Identifier: Apache-2.0
# berm record and berm export: every form is read back as what was recorded; bad input.
. "$(dirname "$0")/lib.sh"
# A trace of few blocks whose end has live ones, and one failure.
{
    echo 'event_index,op,id,size_bytes,stream'
    echo '0,alloc,1,1048576,0'
    echo '1,alloc,2,700,1'
    echo '2,free,1,0,0'
    echo '3,alloc,3,3000000,0'
} >"$work/t.csv"
expect 0 "$BERM" replay --repeat 1 --conf "recording:$work/r.json" "$work/t.csv"
for form in pytorch rmm replay csv chrome recording; do
    expect 0 "$BERM" export "$work/r.json" --format "$form" -o "$work/r.$form"
done
cmp "$work/r.json" "$work/r.recording" || fail 'a recording written again is another'
# What replays can be told of it is the same whichever form it had.
for form in json pytorch rmm replay; do
    expect 0 "$BERM" replay --json "$work/r.$form"
    is_json
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
print([r[k] for k in ("events", "peak_live_bytes", "allocated_bytes_total")])' "$work/out" >>"$work/all"
done
[ "$(sort -u "$work/all" | wc -l)" -eq 1 ] || fail "forms differ: $(cat "$work/all")"
expect 0 "$BERM" export "$work/r.json" -f replay
grep -q '^1,alloc,[0-9]*,700,' "$work/out" || fail "events: $(cat "$work/out")"
python3 - "$work/r.chrome" <<'PY' || fail 'the trace for Perfetto'
import json, sys
r = json.load(open(sys.argv[1]))
counters = [e for e in r["traceEvents"] if e["ph"] == "C"]
times = [e["ts"] for e in r["traceEvents"]]
assert max(e["args"]["live"] for e in counters) >= 3000700, counters
assert counters[-1]["args"]["live"] == 3000700 or counters[-1]["args"]["live"] == 0
assert times == sorted(times) and all(e["args"]["mapped"] >= e["args"]["live"] for e in counters)
PY
gzip -k "$work/r.json"
expect 0 "$BERM" export "$work/r.json.gz" -f csv
cmp -s "$work/out" "$work/r.csv" || fail 'packed is other than plain'

# The program's own: berm record.
export BERM_CONF=driver:$BERM_LIBCUDA_SIM
expect 0 "$BERM" record --torch -o "$work/p.%p.json" -- "$BERM_BUILD/bin/example_three_figures"
[ "$(ls "$work"/p.*.json | wc -l)" -eq 1 ] || fail 'berm record wrote no file'
ls "$work" | grep -q '%p' && fail '%p stayed in the name'

unset BERM_CONF
bad 'no FILE given' "$BERM" export
bad 'no --format' "$BERM" export "$work/r.json"
bad "no format 'xml'" "$BERM" export "$work/r.json" -f xml
bad 'is no recording' "$BERM" export "$work/t.csv" -f csv
bad 'No such file' "$BERM" export "$work/none.json" -f csv
bad 'nothing of that device' "$BERM" export "$work/r.json" -f rmm -d 3
bad 'no device number' "$BERM" export "$work/r.json" -f rmm -d x
bad 'No such file' "$BERM" export "$work/r.json" -f csv -o "$work/no/such"
head -c 2000 "$work/r.json" >"$work/cut.json"
bad 'cut.json' "$BERM" export "$work/cut.json" -f csv
sed 's/"berm_recording":1/"berm_recording":9/' "$work/r.json" >"$work/new.json"
bad 'version 9' "$BERM" export "$work/new.json" -f csv
sed 's/"events":\[\[0,/"events":[[1,/; s/"events":\[\[3,[^]]*\],\[0,/"events":[[1,/' "$work/r.json" >"$work/lie.json"
cmp -s "$work/lie.json" "$work/r.json" && fail 'the lie is none'
bad 'events' "$BERM" export "$work/lie.json" -f csv
bad 'no program given' "$BERM" record
bad 'comma' "$BERM" record -o 'a,b' -- true
bad 'No such file' "$BERM" record -- "$work/nothing"
finish
