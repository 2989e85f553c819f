# SPDX-License-Identifier: Apache-2.0
# berm top of programs under berm run: what it says agrees with the program, a process that was
# killed leaves its last page, and nothing is left otherwise.
. "$(dirname "$0")/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: a sanitized library cannot be preloaded'
    exit 77
fi
command -v gcc >/dev/null || { echo 'SKIP: no gcc'; exit 77; }
export BERM_LIVE_DIR=$work/live SIMCUDA_DEVICES=2
mkdir "$BERM_LIVE_DIR"

bad "no option '--nothing'" "$BERM" top --nothing
bad "'x' is no process number" "$BERM" top x
bad "'1' is no number of milliseconds" "$BERM" top --interval 1
bad 'publishes no statistics' "$BERM" top --once 1
BERM_LIVE_DIR=$work/none bad 'No such file' "$BERM" top
expect 0 "$BERM" top --once
grep -q 'no process publishes statistics' "$work/out" || fail "of nothing: $(cat "$work/out")"
expect 0 "$BERM" top --once --json
is_json
json 'r == {"processes": []}'
echo 'no page' >"$BERM_LIVE_DIR/berm-live-0-1"
expect 0 "$BERM" top --json
json 'r == {"processes": []}'
rm "$BERM_LIVE_DIR/berm-live-0-1"

# Holds 100 blocks of 3 MiB on one device and one of 5 on the other, until its input ends.
cat >"$work/hold.c" <<'C'
#include <stddef.h>
#include <stdio.h>
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaSetDevice(int device);
int main(void) {
    void *pointer = NULL, *first = NULL;
    if (cudaMalloc(&first, 1 << 20) != 0)
        return 1;
    for (int i = 0; i < 100; i++)
        if (cudaMalloc(&pointer, 3 << 20) != 0)
            return 1;
    if (cudaFree(first) != 0 || cudaSetDevice(1) != 0 || cudaMalloc(&pointer, 5 << 20) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
C
expect 0 gcc -std=gnu11 -O1 "$work/hold.c" "$BERM_LIBDIR/simcuda/libcudart.so.13" \
    -Wl,-rpath,"$BERM_LIBDIR/simcuda" -o "$work/hold"

# hold: starts it under berm run, and waits until its page tells of what it has
hold() {
    rm -f "$work/in" "$work/said"
    mkfifo "$work/in"
    "$BERM" run -- "$work/hold" <"$work/in" >"$work/said" &
    holder=$!
    exec 9>"$work/in"
    for _ in $(seq 200); do
        "$BERM" top --json "$holder" >"$work/out" 2>/dev/null &&
            json_quiet '(len(r["processes"][0]["devices"]) == 2 and
                        r["processes"][0]["devices"][1]["blocks"] == 1)' && return
        sleep 0.05
    done
    fail "its page does not come: $(cat "$work/out" "$work/said")"
}
json_quiet() {
    python3 - "$work/out" "$1" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}

hold
expect 0 "$BERM" top --once --json "$holder"
is_json
json 'r["processes"][0]["running"] and r["processes"][0]["command"].endswith("/hold")'
json '(lambda d: d["requested_bytes"] == 300 << 20 and d["blocks"] == 100 and d["requests"] == 101
       and d["frees"] == 1 and d["reserved_bytes"] >= 300 << 20 and d["limit_bytes"] is None
       and d["reserved_bytes"] == d["active_bytes"] + d["cached_bytes"]
       and d["memory_bytes"] == 80 << 30)(r["processes"][0]["devices"][0])'
json 'r["processes"][0]["devices"][1]["requested_bytes"] == 5 << 20'
json '[(p["device"], p["id_low"], p["blocks"], p["requested_bytes"]) for p in r["processes"][0]["pools"]] == [
       (0, 0, 100, 300 << 20), (1, 0, 1, 5 << 20)] and r["processes"][0]["pools_left_out"] == 0'
json 'all(0 <= d["fragmentation"] <= 1 and d["requests_per_s"] >= 0 for d in r["processes"][0]["devices"] if d["cached_bytes"] > 0)'
expect 0 "$BERM" top
grep -q "^$holder .* 300.0 .*/hold" "$work/out" || fail "table: $(cat "$work/out")"

# Asked for a recording, it gives one; no link is followed, and nothing is left.
echo precious >"$work/precious"
ln -s "$work/precious" "$BERM_LIVE_DIR/berm-live-$(id -u)-$holder.json.part"
expect 0 "$BERM" report "$holder"
head -n 1 "$work/out" | grep -q '^verdict: nothing failed' || fail "$(cat "$work/out")"
grep -q '300.0 MiB in 100 blocks of at most 4 MiB' "$work/out" || fail "holders: $(cat "$work/out")"
[ "$(cat "$work/precious")" = precious ] || fail 'a link was followed'
[ "$(ls "$BERM_LIVE_DIR")" = "berm-live-$(id -u)-$holder" ] || fail "left: $(ls "$BERM_LIVE_DIR")"
exec 9>&-
wait "$holder" || fail "it failed"
[ -z "$(ls "$BERM_LIVE_DIR")" ] || fail "left behind: $(ls "$BERM_LIVE_DIR")"

hold
kill -9 "$holder"
wait "$holder" 2>/dev/null
exec 9>&-
expect 0 "$BERM" top --once --json
json '(len(r["processes"]) == 1 and not r["processes"][0]["running"] and
      r["processes"][0]["devices"][0]["requested_bytes"] == 300 << 20)'
expect 0 "$BERM" top --once
grep -q '(ended) .*/hold' "$work/out" || fail "table: $(cat "$work/out")"
bad 'no process .* of yours that publishes' "$BERM" report "$holder"
expect 0 "$BERM" top --once --clean
expect 0 "$BERM" top --json
json 'r == {"processes": []}'

# A folder that takes no page is told once, and the program runs.
BERM_LIVE_DIR=$work/none expect 0 "$BERM" run -- "$work/hold"
grep -q 'live_page: .*No such file.*berm top does not show' "$work/err" || fail "$(cat "$work/err")"
finish
