# SPDX-License-Identifier: Apache-2.0
# berm info and berm conf: with no driver, on the simulated device, as JSON.
. "$(dirname "$0")/lib.sh"

export BERM_CONF=driver:/nonexistent/libcuda.so.1
expect 0 "$BERM" info
[ "$(head -n 1 "$work/out")" = 'no CUDA driver' ] || fail "no driver: $(cat "$work/out")"
sed -n 2p "$work/out" | grep -q '^/nonexistent/libcuda.so.1: .*berm info --device sim' ||
    fail "no driver: which, and what to do: $(cat "$work/out")"
expect 0 "$BERM" info --json
is_json
json "r['devices'] == [] and r['driver_version'] is None"
# The simulated device is there whatever BERM_CONF says.
expect 0 "$BERM" info --device sim --json --capacity 24G
is_json
json "len(r['devices']) == 1 and r['devices'][0]['simulated'] and r['devices'][0]['vmm']"
json "r['devices'][0]['memory_bytes'] == 24 << 30 and r['devices'][0]['granule_bytes'] == 2 << 20"
expect 0 "$BERM" info --device sim
grep -q '^device 0: .* (simulated)$' "$work/out" || fail "table: $(cat "$work/out")"
grep -q '^  vmm  *yes: .*granules of 2.0 MiB$' "$work/out" || fail "table: $(cat "$work/out")"
bad 'sim, cuda or cuda:N' "$BERM" info --device gpu
bad 'no argument' "$BERM" info x
bad 'sim only' "$BERM" info --capacity 1G
unset BERM_CONF

# A preset of the simulated device is what a driver says that is found by its name.
simulated=${BERM_LIBDIR:?}/simcuda
LD_LIBRARY_PATH=$simulated SIMCUDA_GPU=A100-40 expect 0 "$BERM" info
grep -q '^device 0: NVIDIA A100-SXM4-40GB (simulated)$' "$work/out" ||
    fail "preset: $(cat "$work/out")"
grep -q '^  memory  *40339 MiB, 40339 MiB of it free' "$work/out" || fail "preset: $(cat "$work/out")"
LD_LIBRARY_PATH=$simulated SIMCUDA_GPU=RTX4090-24 SIMCUDA_MEMORY=4G expect 0 "$BERM" info --json
json "r['devices'][0]['memory_bytes'] == 4 << 30 and not r['devices'][0]['rdma']"
LD_LIBRARY_PATH=$simulated SIMCUDA_GPU=A100 expect 2 "$BERM" info
grep -q 'A100 is neither T4-16, .* nor a readable file' "$work/err" ||
    fail "preset: $(cat "$work/err")"

expect 0 "$BERM" conf --json
is_json
json "{'headroom', 'limit', 'driver'} <= {x['name'] for x in r['options']}"
json "all(x['text'] and x['kind'] and x['range'] for x in r['options'])"
expect 0 "$BERM" conf
grep -q '^headroom  (percent' "$work/out" || fail "table: $(head -3 "$work/out")"
bad 'no argument' "$BERM" conf x
# Values of the environment, with no driver in reach.
printf 'headroom:7\ndriver:/in/file.so\n' >"$work/conf"
BERM_CONF_FILE=$work/conf expect 0 "$BERM" conf --json
json "{x['name']: x['value'] for x in r['options']}['headroom'] == '7'"
json "{x['name']: x['value'] for x in r['options']}['driver'] == '/in/file.so'"
BERM_CONF="headroom:5, driver : /nonexistent/x.so" BERM_CONF_FILE=$work/conf expect 0 "$BERM" conf
[ "$(grep 'now: ' "$work/out")" = $'    now: 5\n    now: /nonexistent/x.so' ] ||
    fail "values: $(grep 'now: ' "$work/out")"
[ -s "$work/err" ] && fail "conf: $(cat "$work/err")"
export BERM_CONF=headroom:x
bad 'headroom' "$BERM" info
bad 'headroom' "$BERM" conf
bad 'headroom' "$BERM" conf --json
# What is replayed does not depend on it.
printf 'event_index,op,id,size_bytes,stream\n0,alloc,1,512,0\n' >"$work/t.csv"
for command in replay fit; do
    expect 0 "$BERM" $command "$work/t.csv"
    [ -s "$work/err" ] && fail "$command read BERM_CONF: $(cat "$work/err")"
done
expect 0 "$BERM" bench --bare 1 --benchmark pair_1MiB --allocator berm
finish
