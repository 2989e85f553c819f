# SPDX-License-Identifier: Apache-2.0
# berm gen: determinism, what it writes can be replayed, bad options.
. "$(dirname "$0")/lib.sh"

expect 0 "$BERM" gen random --operations 500 --max-size 1M --seed 3
cp "$work/out" "$work/a.csv"
head -1 "$work/a.csv" | grep -qx 'event_index,op,id,size_bytes,stream' || fail "head line"
[ "$(wc -l <"$work/a.csv")" -eq 501 ] || fail "500 events wanted"
expect 0 "$BERM" gen random --operations 500 --max-size 1M --seed 3 -o "$work/b.csv"
[ -s "$work/out" ] && fail "output with -o"
cmp -s "$work/a.csv" "$work/b.csv" || fail "the same seed gave another trace"
expect 0 "$BERM" gen random --operations 500 --max-size 1M --seed 4
cmp -s "$work/a.csv" "$work/out" && fail "another seed gave the same trace"

expect 0 "$BERM" gen random --operations 300 --sizes log --streams 3 --live-cap 1G --json \
    --output "$work/c.csv.gz"
is_json
json "r['events'] == 300 and r['streams'] == 3 and r['peak_live_bytes'] <= 1 << 30"
for trace in a.csv c.csv.gz; do
    expect 0 "$BERM" replay --check full --allocator pytorch,naive,cudamalloc "$work/$trace"
done

bad 'no such kind' "$BERM" gen nothing
bad 'no KIND' "$BERM" gen
bad 'more than one' "$BERM" gen random random
bad 'operations' "$BERM" gen random --operations 0
bad 'max-size' "$BERM" gen random --max-size 1X
bad 'sizes' "$BERM" gen random --sizes normal
bad 'streams' "$BERM" gen random --streams 0
bad 'seed' "$BERM" gen random --seed -1
bad 'needs --output' "$BERM" gen random --json
bad "$work/none/t.csv" "$BERM" gen random -o "$work/none/t.csv"
bad '(--max-size) exceeds the cap on live bytes (--live-cap)' \
    "$BERM" gen random --max-size 2G --live-cap 1G -o "$work/x.csv"
finish
