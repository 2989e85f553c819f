# SPDX-License-Identifier: Apache-2.0
# berm info and berm conf: with no driver, on the simulated device, as JSON.
. "$(dirname "$0")/lib.sh"

export BERM_CONF=driver:/nonexistent/libcuda.so.1
expect 0 "$BERM" info
[ "$(cat "$work/out")" = 'no CUDA driver' ] || fail "no driver: $(cat "$work/out")"
expect 0 "$BERM" info --json
is_json
json "r['devices'] == [] and r['driver_version'] is None"
# The simulated device is there whatever BERM_CONF says.
expect 0 "$BERM" info --device sim --json --capacity 24G
is_json
json "len(r['devices']) == 1 and r['devices'][0]['simulated'] and r['devices'][0]['vmm']"
json "r['devices'][0]['memory_bytes'] == 24 << 30 and r['devices'][0]['granule_bytes'] == 2 << 20"
expect 0 "$BERM" info --device sim
grep -q 'granule_bytes: 2097152' "$work/out" || fail "table: $(cat "$work/out")"
bad 'sim, cuda or cuda:N' "$BERM" info --device gpu
bad 'no argument' "$BERM" info x
bad 'sim only' "$BERM" info --capacity 1G
unset BERM_CONF

expect 0 "$BERM" conf --json
is_json
json "{'headroom', 'limit', 'driver'} <= {x['name'] for x in r['options']}"
json "all(x['text'] and x['kind'] and x['range'] for x in r['options'])"
expect 0 "$BERM" conf
grep -q '^headroom  (percent' "$work/out" || fail "table: $(head -3 "$work/out")"
bad 'no argument' "$BERM" conf x
export BERM_CONF=headroom:x
bad 'headroom' "$BERM" info
finish
