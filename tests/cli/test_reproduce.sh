# SPDX-License-Identifier: Apache-2.0
# A recording of a failure fails again, at the same request, when it is replayed with as much memory;
# berm fit says how much would have been enough, and with that it does not fail. Recordings of several
# processes are one report.
. "$(dirname "$0")/lib.sh"
cases=$BERM_BUILD/cases

# record NAME RANK [VARIABLE=VALUE...]
record() {
    local name=$1 rank=$2
    shift 2
    env SIMCUDA_MEMORY=256M RANK="$rank" "$@" \
        BERM_CONF="driver:$BERM_LIBCUDA_SIM,log:error,recording:$work/rank%r-%h.json" \
        "$cases/case_$name" >"$work/out" 2>"$work/err"
}

host=$(hostname)
host=${host%%.*}
record real_shortage 0
file=$work/rank0-$host.json
[ -f "$file" ] || fail "no recording of rank 0 on $host: $(ls "$work")"
expect 0 "$BERM" export "$file" --format replay
last=$(tail -n 1 "$work/out")
wanted=$(echo "$last" | cut -d, -f4)
echo "$last" | grep -q ',oom,' || fail "the last event is '$last'"
index=$(echo "$last" | cut -d, -f1)

# Without the option the failure is passed over, as it is part of what happened.
expect 0 "$BERM" replay "$file" --capacity 256M
expect 1 "$BERM" replay "$file" --capacity 256M --with-failed --json
is_json
json "not r['completed'] and r['oom_size_bytes'] == $wanted and r['oom_event'] == $index"
expect 0 "$BERM" fit "$file" --with-failed --json
is_json
enough=$(python3 -c "import json; r = json.load(open('$work/out')); print((r[0] if isinstance(r, list) else r)['min_capacity_bytes'])")
[ "$enough" -gt $((256 << 20)) ] || fail "$enough bytes would be enough"
expect 0 "$BERM" replay "$file" --capacity "$enough" --with-failed
expect 1 "$BERM" replay "$file" --capacity $((enough - (2 << 20))) --with-failed
record outside 2
bad 'no request failed in it' "$BERM" replay "$work/rank2-$host.json" --with-failed

# The job: rank 1 fails after rank 0, rank 2 does not.
record leak 1
expect 1 "$BERM" report "$work/rank1-$host.json" "$work/rank2-$host.json" "$file"
head -n 1 "$work/out" |
    grep -q "^verdict: real shortage (confidence: high), first on rank 0 of $host; 2 of 3 ranks failed" ||
    fail "$(cat "$work/out")"
grep -q '^rank 2 differs: live 1[0-9][0-9]' "$work/out" || fail "$(cat "$work/out")"
expect 1 "$BERM" report --json "$work"/rank*.json
is_json
json "r['first_rank'] == '0' and [k['rank'] for k in r['ranks']] == ['0', '1', '2']"
json "[k['verdict'] for k in r['ranks']] == ['real shortage', 'leak', 'nothing failed']"
json "r['ranks'][0]['failed_after_ms'] == 0 and r['ranks'][1]['failed_after_ms'] > 0"
json "r['ranks'][2]['failed_after_ms'] is None and all(d['rank'] == '2' for d in r['differ'])"
expect 0 "$BERM" report "$work/rank2-$host.json" "$work/rank2-$host.json"
head -n 1 "$work/out" | grep -q '^verdict: nothing failed on any of 2 ranks' || fail "$(cat "$work/out")"
bad 'takes one FILE' "$BERM" report "$file" "$file" --address 0x10
bad 'is no recording' "$BERM" report "$file" "$0"

# A recording of before there were ranks is read.
sed 's/"rank":"[^"]*","host":"[^"]*",//' "$file" >"$work/old.json"
grep -q '"rank"' "$work/old.json" && fail 'the members are still there'
expect 1 "$BERM" report "$work/old.json"
finish
