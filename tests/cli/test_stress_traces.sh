# SPDX-License-Identifier: Apache-2.0
# berm stress traces: a line a run and a total, exit codes, options; and replay with the same
# streams, late events and switches of the device.
. "$(dirname "$0")/lib.sh"

cat >"$work/t.csv" <<'CSV'
event_index,op,id,size_bytes,stream
0,alloc,1,8388608,0
1,alloc,2,8388608,0
2,alloc,3,8388608,0
3,free,1,8388608,0
4,free,3,8388608,0
5,alloc,4,16777216,0
6,free,2,8388608,0
CSV

# Each of 2 traces on 2 numbers of streams, in 3 modes, under 5 switches.
expect 0 "$BERM" stress traces --streams 1,4 --audits 100 "$work/t.csv" gen:diffusion
[ "$(grep -c ' ok$' "$work/out")" -eq 48 ] || fail "not 48 runs are ok: $(cat "$work/out")"
[ "$(grep -c ' stale-map .*caught, as it may be: [1-9]' "$work/out")" -eq 12 ] ||
    fail "not 12 runs are caught: $(cat "$work/out")"
grep -q '^60 runs, 0 with findings: [0-9]* events, [0-9]* audits, 0 hazards, 0 leaks, 0 failed checks$' \
    "$work/out" || fail "total: $(tail -2 "$work/out")"
expect 0 "$BERM" stress traces --json --streams 16 --mode remap:alias --seed 3 --event-lag 500 \
    --audits 50 --jobs 1 "$work/t.csv"
is_json
json "len(r['runs']) == 5 and r['good'] and {x['streams'] for x in r['runs']} == {16}"
json "all(x['good'] and x['hazards'] == 0 for x in r['runs'])"
json "[x['allowed_hazards'] > 0 for x in r['runs']] == [x['switch'] == 'stale-map' for x in r['runs']]"
# The same for the same seed, however many run at a time.
for jobs in 1 3; do
    expect 0 "$BERM" stress traces --json --streams 4 --mode remap:passed --jobs $jobs \
        --audits 20 gen:diffusion
    cp "$work/out" "$work/jobs$jobs"
done
cmp -s "$work/jobs1" "$work/jobs3" || fail "the number of processes changes the result"

# A run that cannot be made is a finding.
expect 1 "$BERM" stress traces --streams 1 --mode remap:never "$work/t.csv"
[ "$(grep -c 'FINDING: could not run: ' "$work/out")" -eq 5 ] || fail "finding: $(cat "$work/out")"
bad 'no generated trace' "$BERM" stress traces gen:nothing
bad 'none.csv' "$BERM" stress traces "$work/none.csv"
bad "streams does not take '0'" "$BERM" stress traces --streams 0
bad "audits does not take '0'" "$BERM" stress traces --audits 0
bad 'no option' "$BERM" stress traces --nothing

# Replay: the switches find what they are for, and the seed decides.
replay() {
    expect "$1" "$BERM" replay --json --check full --capacity 4G --streams 4 --event-lag 200 \
        "${@:2}" "$work/r.csv"
    is_json
}
"$BERM" gen random --operations 400 --max-size 64M --live-cap 1G -o "$work/r.csv" || fail gen
replay 0 --seed 1
json "r['hazards'] == 0 and r['moved_bytes_total'] > 0 and r['events'] > 400"
json "r['audits'] == r['events'] + 1"
events=$(python3 -c "import json; print(json.load(open('$work/out'))['events'])")
replay 0 --seed 2
json "r['events'] != $events"
replay 0 --audit-every 10
json "r['audits'] <= r['events'] / 10 + 2"
replay 0 --drains-map --conf remap:alias
replay 1 --faults-page-edits --strict
json "r['failure'] and 'edits the page table' in r['failure']"
replay 0 --faults-page-edits --conf sync_edits:on
replay 0 --dependent-launch 50
replay 1 --stale-map 1000
json "r['hazards'] == r['stale_map_hazards'] > 0 and r['alias_hazards'] == 0"
# An allocator without record_stream gets a block when no stream uses it any more.
replay 0 --allocator naive
expect 0 "$BERM" fit --json --streams 4 --event-lag 100 "$work/r.csv"
json "1 <= r['capacity_over_live'] < 1.2"

bad "streams does not take '0'" "$BERM" replay --streams 0 "$work/r.csv"
bad "stale-map does not take 'x'" "$BERM" replay --stale-map x "$work/r.csv"
bad "audit-every does not take '0'" "$BERM" replay --audit-every 0 "$work/r.csv"
bad 'only the simulated device' "$BERM" replay --device cuda --drains-map "$work/r.csv"
finish
