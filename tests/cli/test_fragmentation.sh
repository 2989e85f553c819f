# SPDX-License-Identifier: Apache-2.0
# berm bench fragmentation: CSV, JSON, the same each time and for any number of processes, agreement
# with berm replay and berm fit, its picture, bad usage.
. "$(dirname "$0")/lib.sh"
trace=$BERM_SOURCE/stress/traces/multi_stream.pickle.gz

# --- CSV ---
expect 0 "$BERM" bench fragmentation --jobs 2 "$trace"
[ -s "$work/err" ] && fail "words on standard error: $(cat "$work/err")"
cp "$work/out" "$work/one.csv"
[ "$(sed -n 1p "$work/one.csv")" = "# berm bench fragmentation --jobs 2 $trace" ] ||
    fail "first line: $(sed -n 1p "$work/one.csv")"
grep -v '^#' "$work/one.csv" | head -n 1 | grep -q '^trace,allocator,conf,latency,kind,headroom_pct,capacity_bytes,completed,' ||
    fail "head"
[ "$(grep -c '^# berm remap:.*not finished' "$work/one.csv")" -eq 12 ] || fail "no summary of 4 modes and 3 latencies"
python3 - "$work/one.csv" <<'PY' || fail 'the rows are not what they should be'
import csv, itertools, sys
rows = list(csv.DictReader(line for line in open(sys.argv[1]) if not line.startswith("#")))
modes = ["remap:passed", "remap:alias", "remap:off", "remap:passed,growth_handle:2M"]
variants = [("berm", mode) for mode in modes] + [(name, "") for name in
    ("pytorch", "expandable", "gmlake", "naive", "bfc", "cudamalloc")]
# Each allocator at each latency: five caps; five headrooms where it has the option, or one run.
for variant, latency in itertools.product(variants, ("fast", "typical", "slow")):
    own = [r for r in rows if (r["allocator"], r["conf"]) == variant and r["latency"] == latency]
    capped = [r for r in own if r["kind"] == "capped"]
    assert [r["headroom_pct"] for r in capped] == ["0", "2", "5", "10", "25"], variant
    for r in capped:
        exact = int(r["peak_live_bytes"]) * (1 + float(r["headroom_pct"]) / 100)
        assert exact <= int(r["capacity_bytes"]) < exact + (2 << 20)
        assert int(r["capacity_bytes"]) % (2 << 20) == 0
    free = [r["headroom_pct"] for r in own if r["kind"] == "uncapped"]
    assert free == (["0", "2", "5", "10", "25"] if variant[0] in ("berm", "naive") else ["default"])
for r in rows:
    figures = [r[k] for k in ("reserved_over_live", "moved_share", "host_waits", "wait_us", "driver_us")]
    if r["completed"] == "yes":
        assert "none" not in figures and float(r["reserved_over_live"]) >= 1
        assert int(r["peak_reserved_bytes"]) <= int(r["capacity_bytes"])
        assert abs(float(r["moved_share"]) - int(r["moved_bytes"]) / int(r["allocated_bytes"])) < 1e-6
    else:
        assert r["completed"] == "none" and set(figures) == {"none"}
assert any(r["completed"] == "none" for r in rows) and any(r["completed"] == "yes" for r in rows)
# berm and expandable on the same device, for each mode and latency.
common = [r for r in rows if r["kind"] == "common"]
assert len(common) == 2 * 4 * 3
for berm, other in zip(common[::2], common[1::2]):
    assert (berm["allocator"], other["allocator"]) == ("berm", "expandable")
    assert berm["capacity_bytes"] == other["capacity_bytes"] and berm["against"] == "expandable"
    time = [int(r["driver_us"]) + int(r["wait_us"]) for r in (berm, other)]
    assert abs(float(berm["ratio"]) - time[0] / time[1]) < 0.001 * float(berm["ratio"]) + 0.0001
    driver, wait = (int(berm[k]) - int(other[k]) for k in ("driver_us", "wait_us"))
    even = "always" if driver <= 0 and wait <= 0 else "never" if driver >= 0 and wait >= 0 else None
    if abs(wait) > 1 and abs(driver) > 1: # a microsecond may be rounding
        assert berm["break_even"] == even or (even is None and float(berm["break_even"]) > 0), berm
    assert berm["break_even"] != "none"
    assert other["break_even"] == "none"
# berm's share against naive's at the same cap.
for r in rows:
    if r["kind"] != "capped" or r["against"] != "naive" or r["ratio"] == "none":
        continue
    naive, = [n for n in rows if n["allocator"] == "naive" and all(n[k] == r[k] for k in
        ("kind", "latency", "headroom_pct"))]
    assert abs(float(r["ratio"]) - float(r["moved_share"]) / float(naive["moved_share"])) < 0.001
PY

# The same each time, and with any number of processes: all but the line that says the command.
expect 0 "$BERM" bench fragmentation --jobs 1 "$trace"
cmp -s <(tail -n +2 "$work/out") <(tail -n +2 "$work/one.csv") || fail 'two runs differ'

# --- JSON ---
expect 0 "$BERM" bench fragmentation --json "$trace"
is_json
json "r['command'].startswith('berm bench fragmentation --json') and len(r['traces']) == 1"
json "set(r) == {'command', 'version', 'traces', 'summary', 'points'} and len(r['summary']) == 12"
json "len(r['points']) == 3 * (10 * 5 + 5 * 5 + 5 * 1 + 8)"
json "all((p['driver_us'] is None) == (not p['completed']) for p in r['points'])"
python3 - "$work/out" "$work/one.csv" <<'PY' || fail 'JSON and CSV differ'
import csv, json, sys
points = json.load(open(sys.argv[1]))["points"]
rows = list(csv.DictReader(line for line in open(sys.argv[2]) if not line.startswith("#")))
assert len(points) == len(rows)
for p, r in zip(points, rows):
    for key in ("trace", "allocator", "conf", "latency", "kind"):
        assert p[key] == r[key]
    for key in ("capacity_bytes", "moved_bytes", "host_waits", "driver_us", "wait_us"):
        assert ("none" if p[key] is None else str(p[key])) == r[key], key
PY

# The tables of docs/results.md.
python3 "$BERM_SOURCE/stress/curves/tables.py" <"$work/out" >"$work/tables" || fail 'tables.py failed'
grep -q '^| multi_stream | `remap:alias` | 1[.][0-9]* | [0-9]* | .* = [0-9.]*; ' "$work/tables" ||
    fail "no row of the common device: $(cat "$work/tables")"
grep -q '^| `remap:off` | slow | none | none | ' "$work/tables" || fail 'a mean of a mode that moves nothing'
[ "$(grep -c '^| trace |' "$work/tables")" -eq 4 ] || fail 'not four tables of traces'

# --- what berm replay and berm fit say ---
cp "$work/out" "$work/all.json"
replay() { # KIND CONF HEADROOM OPTION...: the point and a replay agree
    local kind=$1 conf=$2 headroom=$3
    shift 3
    expect 0 "$BERM" replay --json --latency slow --conf "$conf" "$@" "$trace"
    python3 - "$work/out" "$work/all.json" "$kind" "$conf" "$headroom" <<'PY' || fail "replay differs: $kind $conf"
import json, sys
replay = json.load(open(sys.argv[1]))
point, = [p for p in json.load(open(sys.argv[2]))["points"] if
    (p["kind"], p["conf"], p["latency"], p["headroom_pct"]) == (sys.argv[3], sys.argv[4], "slow", float(sys.argv[5]))]
for mine, its in (("moved_bytes", "moved_bytes_total"), ("peak_reserved_bytes",) * 2,
                  ("host_waits",) * 2, ("driver_us",) * 2, ("wait_us", "host_wait_us"),
                  ("driver_calls",) * 2):
    assert point[mine] == replay[its], (mine, point[mine], replay[its])
PY
}
live=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["traces"][0]["peak_live_bytes"])' "$work/all.json")
capacity() { # PERCENT: of the peak of live, in whole granules
    echo $(((live * $1 / 100 + 2097151) / 2097152 * 2097152))
}
replay capped remap:passed 5 --headroom 5 --capacity "$(capacity 105)"
replay capped remap:alias 25 --headroom 25 --capacity "$(capacity 125)"
replay uncapped remap:passed 0 --headroom 0 --capacity "$(capacity 1600)"
expect 0 "$BERM" fit --json --latency fast --allocator berm,expandable --conf '' "$trace"
python3 - "$work/out" "$work/all.json" <<'PY' || fail 'the common capacity is not what berm fit finds'
import json, sys
fits = [r["min_capacity_bytes"] for r in json.load(open(sys.argv[1]))["results"]]
point = [p for p in json.load(open(sys.argv[2]))["points"] if
    (p["kind"], p["conf"], p["latency"]) == ("common", "remap:passed", "fast")][0]
assert point["capacity_bytes"] == max(fits), (point["capacity_bytes"], fits)
PY

# --- choices ---
expect 0 "$BERM" bench fragmentation --json --allocator berm,naive --mode remap:alias --mode remap:off \
    --latency typical --headroom 1,50 gen:random_1G_log_4_streams
is_json
json "[t['name'] for t in r['traces']] == ['random_1G_log_4_streams'] and r['traces'][0]['streams'] == 4"
json "len(r['points']) == 3 * 4 and all(p['kind'] != 'common' for p in r['points'])"
json "{p['conf'] for p in r['points']} == {'remap:alias', 'remap:off', ''}"
json "all(p['moved_bytes'] in (0, None) for p in r['points'] if p['conf'] == 'remap:off')"
json "[s['moved_share_over_naive']['count'] + s['moved_share_over_naive']['not_finished'] <= 1
    for s in r['summary']] == [True, True]"
printf 'id,lower,upper,size\n0,0,2,3\n1,1,3,4\n' >"$work/l.v1.csv"
expect 0 "$BERM" bench fragmentation --json --scale 1048576 --allocator bfc --latency fast "$work/l.v1.csv"
json "r['traces'][0] == {'name': 'l', 'format': 'lifetimes-csv', 'events': 4, 'streams': 1, 'peak_live_bytes': 7 << 20}"
printf 'preset=fast\ncreate.base_ns=1000000000\n' >"$work/costs"
expect 0 "$BERM" bench fragmentation --json --allocator expandable --latency "fast,$work/costs" "$trace"
json "all(p['driver_us'] > 1000000 for p in r['points'] if p['latency'] == '$work/costs' and p['completed'])"

# --- the picture ---
draw() {
    expect 0 "$BERM" plot "$1" -o "$2"
    [ -s "$work/out" ] || [ -s "$work/err" ] && fail "plot of $1 is not silent"
    return 0
}
draw "$work/one.csv" "$work/one.svg"
draw "$work/one.csv" "$work/one.html"
grep -q '^<!DOCTYPE html>' "$work/one.html" || fail 'no HTML page'
python3 - "$work/one.svg" "$work/one.csv" <<'PY' || fail 'the picture is not right'
import csv, re, sys
import xml.dom.minidom
text = open(sys.argv[1], encoding="utf-8").read()
rows = list(csv.DictReader(line for line in open(sys.argv[2]) if not line.startswith("#")))
document = xml.dom.minidom.parseString(text.encode())
assert not re.search(r"href|src=|url\(|@import|<script", text) and text.count("http") == 1
assert "nan" not in text and "inf" not in text.replace("info", "")
figures = {k: int(v) for k, v in (line.split("=") for line in
    document.getElementsByTagName("desc")[0].firstChild.data.split())}
unfinished = sum(r["completed"] == "none" for r in rows)
assert figures == {"points": len(rows), "unfinished": unfinished, "rows": 3, "traces": 1, "allocators": 10}, figures
drawn = [r for r in rows if r["kind"] != "common"]
marks = document.getElementsByTagName("circle")
# A capped point is in two drawings, an uncapped one in one.
wanted = sum((2 if r["kind"] == "capped" else 1) for r in drawn if r["completed"] == "yes")
assert len(marks) == wanted, (len(marks), wanted)
width, height = (float(document.documentElement.getAttribute(k)) for k in ("width", "height"))
for mark in marks:
    assert 0 < float(mark.getAttribute("cx")) < width and 0 < float(mark.getAttribute("cy")) < height
titles = [e.firstChild.data for e in document.getElementsByTagName("title")]
assert sum("does not finish" in t for t in titles) == sum(
    (2 if r["kind"] == "capped" else 1) for r in drawn if r["completed"] == "none")
r = next(r for r in drawn if r["allocator"] == "naive" and r["kind"] == "capped" and r["completed"] == "yes")
assert any(t.startswith(f"naive, cap {r['headroom_pct']} %\nreserved / live {float(r['reserved_over_live']):.4f}") for t in titles)
texts = "\n".join(e.firstChild.data for e in document.getElementsByTagName("text") if e.firstChild)
for word in ("multi_stream, slow; peak live", "reserved / live, no cap", "driver time and waits", "25 %",
             "berm remap:alias", "time / expandable's on the smallest common device:\nberm remap:passed "):
    assert word in texts, word
PY
head='trace,allocator,conf,latency,kind,headroom_pct,completed,peak_live_bytes,reserved_over_live,moved_share,wait_us,driver_us,ratio'
refused() { # WORD ROW
    printf '# a comment\n%s\n%s\n' "$head" "$2" >"$work/bad.csv"
    bad "$1" "$BERM" plot "$work/bad.csv" -o "$work/bad.svg"
    [ -e "$work/bad.svg" ] && fail "a picture of bad input: $2"
}
refused 'bad.csv:3: kind' 't,a,,fast,other,0,yes,1,1.0,0,0,1,none'
refused 'moved_share is no number' 't,a,,fast,capped,0,yes,1,1.0,x,0,1,none'
refused 'headroom_pct is no number' 't,a,,fast,capped,-5,yes,1,1.0,0,0,1,none'
refused 'without headroom_pct' 't,a,,fast,capped,default,yes,1,1.0,0,0,1,none'
refused 'neither yes nor none' 't,a,,fast,capped,0,no,1,1.0,0,0,1,none'
refused 'driver_us' 't,a,,fast,capped,0,yes,1,1.0,0,0,none,none'
refused 'no rows' ''
printf '%s\nt<&>,a,b:c,fast,capped,0,none,1,none,none,none,none,none\n' "$head" >"$work/none.csv"
draw "$work/none.csv" "$work/none.svg"
grep -q 't&lt;&amp;&gt;, fast' "$work/none.svg" || fail 'the name of a trace is not escaped'

# --- usage ---
bad "no allocator 'x'" "$BERM" bench fragmentation --allocator x
bad 'named twice' "$BERM" bench fragmentation --allocator naive,naive
bad 'once a process' "$BERM" bench fragmentation --allocator torch-native
bad 'ascending list' "$BERM" bench fragmentation --headroom 5,2
bad 'ascending list' "$BERM" bench fragmentation --headroom x
bad 'headroom' "$BERM" bench fragmentation --mode headroom:5
bad 'limit' "$BERM" bench fragmentation --mode limit:5G
bad 'no list' "$BERM" bench fragmentation --latency ,
bad 'nosuch' "$BERM" bench fragmentation --latency nosuch "$trace"
bad 'nosuch' "$BERM" bench fragmentation --allocator berm --mode nosuch:1 "$trace"
bad 'no generated trace' "$BERM" bench fragmentation gen:nothing
bad 'No such file' "$BERM" bench fragmentation "$work/nothing"
bad 'needs a value' "$BERM" bench fragmentation --headroom
bad "no option '--nothing'" "$BERM" bench fragmentation --nothing
bad 'jobs' "$BERM" bench fragmentation --jobs 0
bad 'scale' "$BERM" bench fragmentation --scale 0
bad 'source-device' "$BERM" bench fragmentation --source-device x
printf 'event_index,op,id,size_bytes,stream\n' >"$work/empty.csv"
expect 2 "$BERM" bench fragmentation "$work/empty.csv"
expect 0 "$BERM" bench --help
grep -q 'usage: berm bench fragmentation' "$work/out" || fail 'no help'
grep -q 'gen:random_64M' "$work/out" || fail 'the generated traces are not listed'
finish
