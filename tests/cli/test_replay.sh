# SPDX-License-Identifier: Apache-2.0
# berm replay and berm fit on small traces: JSON, exit codes, bad traces.
. "$(dirname "$0")/lib.sh"

cat >"$work/t.csv" <<'CSV'
event_index,op,id,size_bytes,stream
0,alloc,1,1048576,0
1,alloc,2,3145728,0
2,free,1,1048576,0
3,alloc,3,1000,0
CSV

for allocator in berm pytorch naive cudamalloc; do
    expect 0 "$BERM" replay --json --check full --allocator $allocator "$work/t.csv"
    is_json
    json "r['allocator'] == '$allocator' and r['completed'] and r['oom_event'] is None"
    json "r['events'] == 4 and r['peak_live_bytes'] == 4194304 and r['hazards'] == 0"
    json "r['leaked_blocks'] == 0 and len(r['per_repeat']) == 1"
    json "r['host_ns_per_op']['p50'] <= r['host_ns_per_op']['p999']"
done
expect 0 "$BERM" replay --json --allocator pytorch "$work/t.csv"
json "r['peak_reserved_bytes'] == 22 << 20 and r['driver_calls']['malloc'] == 2"
json "set(r) >= set('''allocator trace events repeats completed oom_event oom_size_bytes
    peak_live_bytes peak_allocated_bytes peak_reserved_bytes reserved_over_live
    worst_reserved_over_live allocated_bytes_total moved_bytes_total per_repeat driver_calls
    driver_us host_waits host_wait_us mappings_peak va_peak_bytes largest_free_block_bytes
    largest_obtainable_bytes hazards leaked_blocks host_ns_per_op'''.split())"
json "list(r['driver_calls']) == '''reserve create map set_access unmap release address_free
    malloc free event_record event_query stream_wait synchronize other'''.split()"
json "set(r['per_repeat'][0]) == {'peak_reserved_bytes', 'moved_bytes', 'memory_calls',
    'planned_share'}"

# Backings and moves: less is moved, nothing is leaked.
for conf in backing:plain remap:off backing:plain,decay_ms:0; do
    expect 0 "$BERM" replay --json --check full --allocator berm --conf "$conf" "$work/t.csv"
    json "r['completed'] and r['moved_bytes_total'] == 0 and r['hazards'] == 0"
    json "r['leaked_blocks'] == 0 and (r['driver_calls']['malloc'] > 0) == ('plain' in '$conf')"
done

# Several: one object that holds them all, in the order asked for.
expect 0 "$BERM" replay --json --allocator pytorch,naive "$work/t.csv" "$work/t.csv"
is_json
json "[x['allocator'] for x in r['results']] == ['pytorch', 'naive'] * 2"

# For people: a row for each.
expect 0 "$BERM" replay --allocator pytorch,cudamalloc "$work/t.csv"
grep -q '^pytorch  *4.0  *22  *5.5000' "$work/out" || fail "table: $(cat "$work/out")"
grep -q '^cudamalloc .* ok$' "$work/out" || fail "table: $(cat "$work/out")"
[ -s "$work/err" ] && fail "progress without a terminal"

# Repeats and latency.
expect 0 "$BERM" replay --json --allocator pytorch --repeat 3 "$work/t.csv"
json "[x['memory_calls'] for x in r['per_repeat']] == [2, 0, 0]"
printf 'preset=fast\nmalloc.base_ns=5000000\nmalloc.ns_per_mib=0\n' >"$work/latency"
expect 0 "$BERM" replay --json --allocator pytorch --latency "$work/latency" "$work/t.csv"
json "10000 <= r['driver_us'] < 12000"

# Out of memory: exit 1, and where.
expect 1 "$BERM" replay --json --allocator pytorch --capacity 16M "$work/t.csv"
is_json
json "not r['completed'] and r['oom_event'] == 1 and r['oom_size_bytes'] == 3145728"
json "r['leaked_blocks'] == 0"
expect 1 "$BERM" replay --allocator pytorch --capacity 16M "$work/t.csv"
grep -q 'pytorch: out of memory at event 1: asked for 3.0 MiB with 1.0 MiB live, 4.0 of 16.0 MiB: 2.0 MiB reserved, largest free 1.0 MiB$' "$work/out" || fail "oom line: $(cat "$work/out")"
expect 1 "$BERM" replay --allocator berm,pytorch --capacity 2M --repeat 2 "$work/t.csv"
for allocator in berm pytorch; do
    grep -q "^$allocator: out of memory at event 1 of repeat 1: asked for 3.0 MiB with 1.0 MiB live, 4.0 of 2.0 MiB: no allocator could\$" "$work/out" || fail "oom line: $(cat "$work/out")"
done
grep -q '^berm: its own words: ' "$work/out" || fail "berm's words: $(cat "$work/out")"
expect 1 "$BERM" replay --json --allocator pytorch --limit 16M "$work/t.csv"
expect 1 "$BERM" replay --allocator pytorch --limit 16M "$work/t.csv"
grep -q '4.0 of 16.0 MiB' "$work/out" || fail "oom line with a limit: $(cat "$work/out")"

expect 0 "$BERM" fit --json --allocator pytorch "$work/t.csv"
is_json
json "r['min_capacity_bytes'] == 22 << 20 and r['peak_live_bytes'] == 4 << 20"
json "r['capacity_over_live'] == 5.5 and r['monotone']"
expect 0 "$BERM" fit --json --allocator berm,naive "$work/t.csv"
is_json
json "[x['allocator'] for x in r['results']] == ['berm', 'naive']"
expect 0 "$BERM" fit --allocator cudamalloc "$work/t.csv"
grep -q '^cudamalloc' "$work/out" || fail "fit table"
# One that does not fit takes nothing from the others.
expect 1 "$BERM" fit --allocator berm,pytorch --capacity 16M "$work/t.csv" "$work/t.csv"
[ "$(grep -c '^berm  *[0-9]* ' "$work/out")" -eq 2 ] || fail "fit: $(cat "$work/out")"
[ "$(grep -c '^pytorch  *> 16  *-' "$work/out")" -eq 2 ] || fail "fit: $(cat "$work/out")"
grep -q '^pytorch: does not finish with 16.0 MiB; give more with --capacity$' "$work/out" ||
    fail "fit: $(cat "$work/out")"
grep -q '^berm fits on [0-9]* MiB where pytorch needs more than 16$' "$work/out" ||
    fail "fit: $(cat "$work/out")"
expect 1 "$BERM" fit --json --allocator berm,pytorch --capacity 16M "$work/t.csv"
json "r['results'][0]['min_capacity_bytes'] and r['results'][1]['min_capacity_bytes'] is None"
expect 1 "$BERM" fit --allocator naive --capacity 2M "$work/t.csv"
grep -q 'no allocator could finish: peak live is 4.0 MiB, --capacity 2.0 MiB' "$work/out" ||
    fail "fit below live: $(cat "$work/out")"
expect 1 "$BERM" fit --allocator naive --limit 2M "$work/t.csv"
grep -q 'no allocator could finish: peak live is 4.0 MiB, --limit 2.0 MiB' "$work/out" ||
    fail "fit with a limit below live: $(cat "$work/out")"

# Bad traces: exit 2, one line with the place, nothing run.
bad "$work/none" "$BERM" replay "$work/none"
printf 'event_index,op,id,size_bytes,stream\n0,free,1,512,0\n' >"$work/bad.csv"
bad 'bad.csv:2' "$BERM" replay "$work/bad.csv"
bad 'bad.csv:2' "$BERM" replay --json "$work/t.csv" "$work/bad.csv"
printf '' >"$work/empty"
bad 'empty' "$BERM" replay "$work/empty"
head -c 1000 /dev/urandom >"$work/noise"
bad 'noise' "$BERM" fit "$work/noise"
bad '' "$BERM" replay "$work"
printf '\200\002cposix\nsystem\nX\004\000\000\000true\205R.' >"$work/evil.pickle"
bad 'evil.pickle' "$BERM" replay "$work/evil.pickle"

# A trace without an alloc is no success worth a ratio.
printf 'event_index,op,id,size_bytes,stream\n' >"$work/empty.csv"
expect 0 "$BERM" replay --allocator berm "$work/empty.csv"
grep -q '^berm .* - .*nothing allocated$' "$work/out" || fail "empty: $(cat "$work/out")"
finish
