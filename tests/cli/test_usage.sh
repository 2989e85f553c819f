# SPDX-License-Identifier: Apache-2.0
# Help, version, bad usage: exit codes and one line that says what.
. "$(dirname "$0")/lib.sh"

expect 0 "$BERM" --help
grep -q replay "$work/out" || fail "help does not list replay"
expect 0 "$BERM" replay --help
grep -q "^  pytorch " "$work/out" || fail "help does not list the allocators"
expect 0 "$BERM" --version
grep -qx 'berm [0-9]*\.[0-9]*\.[0-9]*' "$work/out" || fail "version"
expect 0 "$BERM" replay nothing --help
grep -q 'usage: berm replay' "$work/out" || fail "help after an argument"
expect 0 "$BERM" fit --help
grep -q -e '--series\|--device\|; 80G' "$work/out" && fail "help of fit has what does not apply"
for command in replay fit; do
    expect 0 "$BERM" $command --help
    grep -q '^Columns:' "$work/out" || fail "help of $command explains no columns"
done
for command in replay fit gen stress bench plot calibrate info conf; do
    expect 0 "$BERM" $command --help
    grep -q "usage: berm $command" "$work/out" || fail "help of $command"
    bad "no option '--nothing'" "$BERM" $command --nothing
done
expect 2 "$BERM"
expect 2 "$BERM" nothing
grep -q "no command 'nothing'" "$work/err" || fail "unknown command"

printf 'event_index,op,id,size_bytes,stream\n0,alloc,1,512,0\n' >"$work/t.csv"
bad 'no TRACE' "$BERM" replay
bad 'needs a value' "$BERM" replay "$work/t.csv" --allocator
bad "no allocator 'x'" "$BERM" replay --allocator x "$work/t.csv"
bad 'no list' "$BERM" replay --allocator pytorch, "$work/t.csv"
bad 'capacity' "$BERM" replay --capacity 12Q "$work/t.csv"
bad 'capacity' "$BERM" replay --capacity -1 "$work/t.csv"
bad 'capacity' "$BERM" replay --capacity 99999999T "$work/t.csv"
bad 'cannot have 1 byte of memory: at least one granule, 2097152 bytes' \
    "$BERM" replay --capacity 1 "$work/t.csv"
bad 'cannot have 1048576 bytes' "$BERM" replay --capacity 1M "$work/t.csv"
bad '--headroom and --conf headroom' "$BERM" replay --conf headroom:5 --headroom 7 "$work/t.csv"
bad '--limit and --conf limit' "$BERM" replay --conf log:warn,limit:5G --limit 7G "$work/t.csv"
bad '--headroom and --conf headroom' "$BERM" bench --quick --conf headroom:5 --headroom 7
expect 0 "$BERM" replay --allocator pytorch --headroom 5 "$work/t.csv"
grep -q 'headroom means nothing' "$work/err" || fail "an ignored option is passed over in silence"
expect 0 "$BERM" replay --allocator pytorch,berm --headroom 5 --conf '' "$work/t.csv"
[ -s "$work/err" ] && fail "a warning without a reason: $(cat "$work/err")"
bad 'headroom' "$BERM" replay --headroom nan "$work/t.csv"
bad 'headroom' "$BERM" replay --headroom -3 "$work/t.csv"
bad 'repeat' "$BERM" replay --repeat 0 "$work/t.csv"
bad 'repeat' "$BERM" replay --repeat 10001 "$work/t.csv"
bad 'check' "$BERM" replay --check some "$work/t.csv"
bad 'scale' "$BERM" replay --scale 0 "$work/t.csv"
bad 'sim, cuda or cuda:N' "$BERM" replay --device gpu "$work/t.csv"
bad 'latency' "$BERM" replay --latency "$work/none" "$work/t.csv"
printf 'create.base_ns=x\n' >"$work/latency"
bad 'latency:1: expected' "$BERM" replay --latency "$work/latency" "$work/t.csv"
bad "unknown option 'nonsense'" "$BERM" replay --allocator berm --conf nonsense:1 "$work/t.csv"
bad 'headroom' "$BERM" replay --allocator berm --conf headroom:x "$work/t.csv"
bad 'pytorch: option' "$BERM" replay --allocator pytorch --conf x:y "$work/t.csv"
bad 'naive: the only option' "$BERM" replay --allocator naive --conf x:y "$work/t.csv"
bad 'no options' "$BERM" replay --allocator cudamalloc --conf x:y "$work/t.csv"
bad 'simulated device only' "$BERM" replay --device cuda --capacity 1G "$work/t.csv"
# The first of two allocators is fine, the second refuses: nothing may be on standard output.
bad 'no options' "$BERM" replay --json --allocator pytorch,cudamalloc --conf max_split_size_mb:64 \
    "$work/t.csv"

# Output that cannot be written is an error.
if [ -e /dev/full ]; then
    status=0
    "$BERM" --help >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 2 ] || fail "full output: exit $status"
fi
finish
