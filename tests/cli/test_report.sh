# SPDX-License-Identifier: Apache-2.0
# berm report names what each program of stress/cases suffers from, and nothing else with high
# confidence; berm diff; bad input.
. "$(dirname "$0")/lib.sh"
cases=$BERM_BUILD/cases

# run_case NAME STATUS [VARIABLE=VALUE...]: its recording is $work/NAME.json.
run_case() {
    local name=$1 wanted=$2
    shift 2
    expect "$wanted" env SIMCUDA_MEMORY=256M "$@" \
        BERM_CONF="driver:$BERM_LIBCUDA_SIM,log:error,recording:$work/$name.json" "$cases/case_$name"
}

# verdict NAME TRUTH: what the report's first line says.
verdict() {
    expect 1 "$BERM" report "$work/$1.json"
    local first
    first=$(head -n 1 "$work/out")
    [ "$first" = "verdict: $2 (confidence: high)" ] || fail "$1: '$first', not $2: $(cat "$work/out")"
    grep -q '^next: ..' "$work/out" || fail "$1: no next step"
    expect 1 "$BERM" report --json "$work/$1.json"
    is_json
    json "r['verdict'] == '$2' and r['confidence'] == 'high' and r['less_likely'] == [] and r['evidence']"
}

run_case real_shortage 1 && verdict real_shortage 'real shortage'
run_case peak 1 && verdict peak peak
grep -q "tag 'activations'" "$work/peak.json" && fail 'tags are numbers in the rows'
json "any('activations' in line for line in r['evidence'])"
run_case leak 1 && verdict leak leak
json "'outputs' in r['evidence'][0]"
run_case hidden_retention 1 && verdict hidden_retention 'hidden retention'
json "'activations' in r['evidence'][0]"
run_case fragmentation 1 && verdict fragmentation fragmentation
json "any('cause' in line and 'beside live blocks' in line for line in r['evidence'])"
run_case cache_elsewhere 1 && verdict cache_elsewhere 'cache held elsewhere'
run_case outside 1 SIMCUDA_OUTSIDE=140M && verdict outside outside
run_case mislabelled 1 SIMCUDA_HANDLES=40 && verdict mislabelled mislabelled
json "'handles' in r['evidence'][0]"

# The same program where nothing is in its way.
run_case outside 0
expect 0 "$BERM" report "$work/outside.json"
head -n 1 "$work/out" | grep -q '^verdict: nothing failed' || fail "outside, alone: $(cat "$work/out")"

# Addresses that kernels faulted at.
for name in use_after_free overrun; do
    run_case "$name" 0
    address=$(cat "$work/out")
    expect 1 "$BERM" report "$work/$name.json" --address "$address"
    head -n 1 "$work/out" | grep -q '^verdict: illegal access (confidence: high)' ||
        fail "$name: $(cat "$work/out")"
    cp "$work/out" "$work/$name.txt"
done
grep -q "freed .* ms before the end .*'hidden state': byte 4096 of 5242880" "$work/use_after_free.txt" ||
    fail "use_after_free: $(cat "$work/use_after_free.txt")"
grep -q '100 bytes past the end of the live block' "$work/overrun.txt" ||
    fail "overrun: $(cat "$work/overrun.txt")"
expect 1 "$BERM" report "$work/overrun.json" --address 0x10
grep -q 'confidence: medium' "$work/out" || fail 'a foreign address is no certain finding'

# A process's number stands for the file that berm record leaves.
(cd "$work" && cp leak.json berm.4711.json && "$BERM" report 4711) | head -n 1 | grep -q leak ||
    fail 'berm report PID'

# Two recordings of one process.
expect 0 "$BERM" diff "$work/leak.json" "$work/leak.json"
python3 - "$work/leak.json" "$work/before.json" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
device = r["devices"][0]
device["events"] = []
freed = [row for row in device["blocks"] if row[3] == 1][-5:]
for row in freed:
    row[2:6] = [0, 0, 0, 0]
json.dump(r, open(sys.argv[2], "w"), separators=(",", ":"))
PY
expect 1 "$BERM" diff --json "$work/before.json" "$work/leak.json"
is_json
json "sum(g['came'] for g in r['groups']) == 5 and r['gone_bytes'] == 0"
expect 0 "$BERM" diff "$work/leak.json" "$work/before.json"
bad 'of process' "$BERM" diff "$work/leak.json" "$work/peak.json"
bad 'two recordings' "$BERM" diff "$work/leak.json"
bad 'no FILE given' "$BERM" report
bad 'is no recording' "$BERM" report "$0"
bad 'no address' "$BERM" report "$work/leak.json" --address here
finish
