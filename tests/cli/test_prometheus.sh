# SPDX-License-Identifier: Apache-2.0
# The file of the option prometheus: its form is the collector's, its figures are the program's, no
# link is followed, and it goes with the process unless that is killed.
. "$(dirname "$0")/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: a sanitized library cannot be preloaded'
    exit 77
fi
command -v gcc >/dev/null || { echo 'SKIP: no gcc'; exit 77; }
export BERM_LIVE_DIR=$work
file=$work/rank7.prom

cat >"$work/hold.c" <<'C'
#include <stddef.h>
#include <stdio.h>
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int main(void) {
    void *pointer = NULL, *first = NULL;
    if (cudaMalloc(&first, 1 << 20) != 0)
        return 1;
    for (int i = 0; i < 100; i++)
        if (cudaMalloc(&pointer, 3 << 20) != 0)
            return 1;
    if (cudaMalloc(&pointer, (size_t)1 << 50) == 0 || cudaFree(first) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
C
expect 0 gcc -std=gnu11 -O1 "$work/hold.c" "$BERM_LIBDIR/simcuda/libcudart.so.13" \
    -Wl,-rpath,"$BERM_LIBDIR/simcuda" -o "$work/hold"

# check: the file as Prometheus reads it
check() {
    python3 - "$file" "$holder" <<'PY'
import re, sys
kinds, values = {}, {}
for line in open(sys.argv[1]).read().splitlines():
    if line.startswith("# TYPE "):
        _, _, name, kind = line.split()
        assert name not in kinds and kind in ("gauge", "counter"), line
        assert (kind == "counter") == name.endswith("_total"), line
        kinds[name] = kind
    elif line.startswith("# HELP "):
        assert len(line.split()) > 4, line
    else:
        match = re.fullmatch(r'([a-z_]+)\{((?:[a-z]+="[^"\\]*",?)+)\} (\d+)', line)
        assert match and match[1] in kinds, line
        labels = dict(re.findall(r'([a-z]+)="([^"]*)"', match[2]))
        assert labels["pid"] == sys.argv[2] and labels["rank"] == "7", line
        assert ("pool" in labels) == match[1].startswith("berm_pool_"), line
        values[match[1], labels["device"], labels.get("pool")] = int(match[3])
if ("berm_blocks", "0", None) not in values or values["berm_oom_total", "0", None] != 1:
    sys.exit(1)
assert values["berm_requested_bytes", "0", None] == 300 << 20
assert values["berm_alloc_total", "0", None] == 101 and values["berm_free_total", "0", None] == 1
assert values["berm_reserved_bytes", "0", None] == (
    values["berm_active_bytes", "0", None] + values["berm_cached_bytes", "0", None])
assert values["berm_pool_allocated_bytes", "0", "default"] == values["berm_allocated_bytes", "0", None]
assert values["berm_pool_blocks", "0", "default"] == 100
assert values["berm_segments", "0", None] >= 1 and values["berm_memory_bytes", "0", None] > 1 << 30
assert set(kinds) == {key[0] for key in values}
PY
}

# hold: starts it, and waits until the file tells of what it has
hold() {
    rm -f "$work/in" "$work/said" "$file"
    mkfifo "$work/in"
    RANK=7 BERM_CONF="log:error,prometheus:$work/rank%r.prom" "$BERM" run -- "$work/hold" <"$work/in" >"$work/said" 2>"$work/err" &
    holder=$!
    exec 9>"$work/in"
    for _ in $(seq 200); do
        [ -f "$file" ] && check 2>"$work/err" && return
        sleep 0.05
    done
    fail "it does not come: $(cat "$file" "$work/err")"
}

echo precious >"$work/precious"
ln -s "$work/precious" "$file.part"
hold
[ "$(cat "$work/precious")" = precious ] || fail 'a link was followed'
exec 9>&-
wait "$holder" || fail 'it failed'
[ -e "$file" ] && fail 'left behind'
[ -e "$file.part" ] && fail 'the part is left behind'

hold
kill -9 "$holder"
wait "$holder" 2>/dev/null
exec 9>&-
check || fail 'the last one is not whole'

BERM_CONF="log:warn,prometheus:$work/none/a.prom" \
    expect 0 bash -c 'sleep 2.5 | "$0" run -- "$1"' "$BERM" "$work/hold"
[ "$(grep -c "prometheus: '$work/none/a.prom' cannot be written: No such file" "$work/err")" -eq 1 ] ||
    fail "$(cat "$work/err")"
finish
