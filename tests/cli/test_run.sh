# SPDX-License-Identifier: Apache-2.0
# berm run of programs that only know cudaMalloc: which programs get what, the options, and the
# example on the simulated device, whose requests berm serves.
. "$(dirname "$0")/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: a sanitized library cannot be preloaded'
    exit 77
fi
bin=$BERM_BUILD/bin
show='echo "$LD_PRELOAD|$BERM_RUN|$BERM_PRELOAD|$LD_LIBRARY_PATH|$SIMCUDA_GPU|$SIMCUDA_MEMORY|$BERM_CONF"'
unset LD_PRELOAD BERM_LIBRARY BERM_RUN BERM_PRELOAD LD_LIBRARY_PATH SIMCUDA_GPU SIMCUDA_MEMORY BERM_CONF
gets() { grep -qx -- "$1" "$work/out" || fail "not $1: $(cat "$work/out")"; }

# By the kind of program: a shell gets both, Python the hook alone, and what is asked for goes first.
expect 0 "$BERM" run -- sh -c "$show"
gets "$BERM_LIBDIR/libberm_preload.so|1|||||live_page:on"
expect 0 "$BERM" run --torch -- sh -c "$show"
gets '|1|||||live_page:on'
expect 0 "$BERM" run --preload -- sh -c "$show"
gets "$BERM_LIBDIR/libberm_preload.so||||||live_page:on"
expect 0 "$BERM" run -- python3 -c "import os; os.system('''$show''')"
gets '|1|||||live_page:on'
printf '#!/usr/bin/env python3\nimport os\nos.system(r"""%s """)\n' "$show" >"$work/tool"
chmod +x "$work/tool"
expect 0 "$BERM" run -- "$work/tool"
gets '|1|||||live_page:on'
PATH=$work:$PATH expect 0 "$BERM" run -- tool
gets '|1|||||live_page:on'
LD_PRELOAD='' LD_LIBRARY_PATH=/x expect 0 "$BERM" run --preload --simulated --gpu L4-24 --memory 4G \
    --conf headroom:5 --preload-conf ipc:1M --stats -- sh -c "$show"
gets "$BERM_LIBDIR/libberm_preload.so||ipc:1M,stats:on|$BERM_LIBDIR/simcuda:/x|L4-24|4G|live_page:on,headroom:5"
expect 0 "$BERM" run --torch --simulated -- sh -c "$show"
gets "|simulated||$BERM_LIBDIR/simcuda|||live_page:on"

expect 0 "$BERM" run -- sh -c 'echo "$BERM_LIBRARY"'
gets "$BERM_LIBDIR"
BERM_LIBRARY=/mine expect 0 "$BERM" run -- sh -c 'echo "$BERM_LIBRARY"'
gets /mine

# berm record is berm run with a file.
expect 0 "$BERM" record --preload -o r.json --conf headroom:5 -- sh -c "$show"
gets "$BERM_LIBDIR/libberm_preload.so||||||live_page:on,headroom:5,recording:r.json"
expect 0 "$BERM" record --torch -- sh -c "$show"
gets '|1|||||live_page:on,recording:berm.%p.json'
bad "no option '--output'; see berm run" "$BERM" run --output r.json -- true
bad 'has a comma' "$BERM" record --output r,json -- true
bad 'no program given; see berm record' "$BERM" record -o r.json
bad 'needs a value' "$BERM" record -o

bad 'of a simulated device' "$BERM" run --gpu L4-24 -- true
bad "'x' is no size" "$BERM" run --simulated --memory x -- true
bad 'not used for Python' "$BERM" run --stats -- python3 -c ''
bad 'No such file' "$BERM" run -- "$work/no-such-program"
expect 3 "$BERM" run -- sh -c 'exit 3'

# The example: alone the driver serves it; under berm run berm does, with the same output but for
# what is free meanwhile.
export SIMCUDA_STRICT=1
expect 0 timeout 60 "$bin/example_cudamalloc"
cp "$work/out" "$work/alone"
expect 0 timeout 60 "$BERM" run --stats -- "$bin/example_cudamalloc"
[ "$(sed 's/free.*//' "$work/out")" = "$(sed 's/free.*//' "$work/alone")" ] ||
    fail "other output: $(cat "$work/out")"
grep -q 'all freed *free *81920 of' "$work/out" || fail "not all is free: $(cat "$work/out")"
grep -q '^berm: served 12004 requests of .*, refused 0, passed 0 to the driver; frees: served 12004, refused 0, passed 0; 0 blocks live' \
    "$work/err" || fail "figures: $(cat "$work/err")"
cat "$work/err"
expect 0 timeout 60 "$BERM" run --simulated --memory 8G --stats -- "$bin/example_cudamalloc"
grep -q 'of *8192 MiB' "$work/out" || fail "not 8 GiB: $(cat "$work/out")"
# What it asked of cudaMalloc is in a recording.
expect 0 timeout 60 "$BERM" record --simulated -o "$work/r.json" -- "$bin/example_cudamalloc"
expect 0 "$BERM" replay "$work/r.json" --json
json "r['completed'] and r['events'] == 24008"
# A device that is too small: the program is told, as by the driver.
expect 1 env BERM_CONF=log:error timeout 60 "$BERM" run --simulated --memory 512M -- \
    "$bin/example_cudamalloc"
grep -q '^cudaMalloc: out of memory' "$work/err" || fail "no error: $(cat "$work/err")"
finish
