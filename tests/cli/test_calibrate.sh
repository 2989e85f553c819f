# SPDX-License-Identifier: Apache-2.0
# berm calibrate on the simulated device: what it measures is what the device was set to, replay with
# it costs the same, the rules hold, exit codes, JSON.
. "$(dirname "$0")/lib.sh"

calibrate() {
    expect "$1" "$BERM" calibrate --device sim --repeats 3 "${@:2}"
}

driver_us() {
    expect 0 "$BERM" replay "$work/t.csv" --repeat 2 --json --latency "$1"
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["driver_us"])' "$work/out"
}

{
    printf 'event_index,op,id,size_bytes,stream\n'
    for i in $(seq 0 19); do
        printf '%d,alloc,%d,%d,%d\n' "$i" "$i" $(((i * 7 % 11 + 1) * 3000000)) $((i % 3))
    done
    for i in $(seq 0 19); do
        printf '%d,free,%d,%d,%d\n' $((i + 20)) "$i" $(((i * 7 % 11 + 1) * 3000000)) $((i % 3))
    done
} >"$work/t.csv"

for preset in fast typical slow; do
    calibrate 0 --latency $preset --out "$work/$preset.latency"
    [ -s "$work/err" ] && fail "$preset: $(cat "$work/err")"
    grep -q '^# device: .* (simulated)$' "$work/$preset.latency" || fail "$preset: no device"
    grep -q '^# driver: CUDA [0-9]*\.[0-9]' "$work/$preset.latency" || fail "$preset: no driver"
    grep -Eq '^# date: [0-9]{4}-[0-9]{2}-[0-9]{2}$' "$work/$preset.latency" ||
        fail "$preset: no date"
    named=$(driver_us $preset)
    measured=$(driver_us "$work/$preset.latency")
    [ -n "$named" ] && [ "$named" = "$measured" ] ||
        fail "$preset: driver_us $named by name, $measured as measured"
done
[ "$(driver_us fast)" != "$(driver_us slow)" ] || fail "the trace costs nothing"

# Every part of a cost is told apart, also those that are 0 in the presets. A map always covers one
# mapping, so that mapping's cost is in its base.
cat >"$work/odd" <<'END'
preset=fast
reserve.ns_per_mib=3
address_free.base_ns=17
create.base_ns=1001
create.ns_per_mib=13
release.ns_per_mib=5
map.per_mapping_ns=70
map.ns_per_mib=2
set_access.base_ns=0
set_access.per_mapping_ns=211
set_access.ns_per_mib=9
unmap.base_ns=12345
unmap.per_mapping_ns=0
unmap.ns_per_mib=1
malloc.ns_per_mib=0
free.base_ns=1
event_record.base_ns=101
event_query.base_ns=102
stream_wait.base_ns=103
synchronize.base_ns=104
mem_info.base_ns=105
other.base_ns=106
END
calibrate 0 --latency "$work/odd" --out "$work/odd.latency" --json
is_json
for line in $(grep -v -e '^preset' -e '^map' "$work/odd") map.base_ns=2070 map.per_mapping_ns=0 \
    map.ns_per_mib=2; do
    grep -qx "$line" "$work/odd.latency" || fail "not measured: $line"
done
[ "$(grep -vc '^#' "$work/odd.latency")" -eq 45 ] || fail "not every cost is written"
json "r['simulated'] and r['repeats'] == 3 and r['granule_bytes'] == 2 << 20"
json "r['latency_file'].endswith('odd.latency')"
json "r['costs']['set_access'] == {'base_ns': 0, 'per_mapping_ns': 211, 'ns_per_mib': 9}"
json "[(t['mappings'], t['median_ns']) for t in r['timings'] if t['call'] == 'set_access' and
       t['mappings'] > 1] == [(16, 16 * 211 + 32 * 9), (256, 256 * 211 + 512 * 9)]"
json "all(t['p99_ns'] == t['median_ns'] for t in r['timings'])"
# The rules: all tested ones hold, with contents; each says which code it saw.
json "r['broken'] == 0 and len(r['rules']) >= 25"
json "[x['name'] for x in r['rules'] if x['verdict'] != 'ok'] == ['dependent_launch']"
json "all(x['result'] == x['wanted'] for x in r['rules'] if x['verdict'] == 'ok')"
json "all(x['result'] is None and x['detail'] and not x['needed'] for x in r['rules']
          if x['verdict'] == 'not tested')"
json "{'access_many', 'alias_kernels', 'map_busy', 'alias_moves', 'map_waits', 'unmap_busy'} <= {
      x['name'] for x in r['rules']}"
json "'the kernel faults' in {x['name']: x['detail'] for x in r['rules']}['unmap_busy']"
json "r['alias'] == 'passed' and 'rules' in r['alias_why']"
grep -q '^# alias: passed: ' "$work/odd.latency" || fail "no verdict on aliases in the preset"
json "{'create_beyond', 'access_several', 'unmap_several', 'unmap_between', 'remap_contents'} == {
      x['name'] for x in r['rules'] if x['needed']}"
json "{x['name']: x['wanted'] for x in r['rules']}['create_beyond'] == 2"
[ "$(driver_us "$work/odd")" = "$(driver_us "$work/odd.latency")" ] || fail "odd: other driver_us"

calibrate 0
grep -q '^cuMemSetAccess  *256  *512  *7686.00  *7686.00$' "$work/out" ||
    fail "table: $(grep SetAccess "$work/out")"
grep -q '^set_access  *6000  *30000  *0$' "$work/out" || fail "costs: $(grep set_ "$work/out")"
grep -q '^ok  *unmap_several: ' "$work/out" || fail "rules: $(cat "$work/out")"
grep -q '^remap:alias: passed: ' "$work/out" || fail "no verdict on remap:alias"
grep -q '^ok  *unmap_busy: .*(the kernel faults' "$work/out" || fail "unmap under a kernel"
grep -q '^every rule that berm needs holds$' "$work/out" || fail "no verdict"

bad 'no argument' "$BERM" calibrate x
bad 'no option' "$BERM" calibrate --x
bad 'needs a value' "$BERM" calibrate --out
bad 'sim, cuda or cuda:N' "$BERM" calibrate --device gpu
bad 'sim only' "$BERM" calibrate --latency fast
bad '1 to 10000' "$BERM" calibrate --device sim --repeats 0
bad '1 to 10000' "$BERM" calibrate --device sim --repeats 10001
bad 'nor a readable file' "$BERM" calibrate --device sim --latency "$work/none"
bad '/nonexistent/x: ' "$BERM" calibrate --device sim --repeats 1 --out /nonexistent/x
bad 'cuMemCreate failed with CUresult 2.*544 MiB' \
    "$BERM" calibrate --device sim --capacity 100M --repeats 1
finish
