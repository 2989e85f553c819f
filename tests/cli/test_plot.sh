# SPDX-License-Identifier: Apache-2.0
# berm plot: pictures are well-formed, need nothing else, and hold the figures; bad input is one line.
. "$(dirname "$0")/lib.sh"
trace=$BERM_SOURCE/stress/traces/multi_stream.pickle.gz

# draw INPUT OUTPUT: draws without a word.
draw() {
    expect 0 "$BERM" plot "$1" -o "$2"
    [ -s "$work/out" ] || [ -s "$work/err" ] && fail "plot of $1 is not silent"
    return 0
}

# picture FILE EXPRESSION: the SVG in FILE is well-formed, loads nothing, and EXPRESSION holds of
# its figures f, texts t (all joined), tooltips and elements.
picture() {
    python3 - "$1" "$2" <<'PY' || fail "not true of $1: $2"
import re, sys
import xml.dom.minidom
text = open(sys.argv[1], encoding="utf-8").read()
svg = text[text.index("<svg"):text.index("</svg>") + 6] if sys.argv[1].endswith(".html") else text
document = xml.dom.minidom.parseString(svg.encode())
def texts(tag):
    return [e.firstChild.data for e in document.getElementsByTagName(tag) if e.firstChild]
assert not re.search(r"href|src=|url\(|@import|<script", text), "loads something"
assert text.count("http") == 1, "names an address besides the namespace"
f = {k: int(v) for k, v in (line.split("=") for line in texts("desc")[0].split())}
t = "\n".join(texts("text"))
tooltips = "\n".join(texts("title"))
elements = document.getElementsByTagName("*")
paths = [e.getAttribute("d") for e in document.getElementsByTagName("path")]
assert not any("nan" in e.toxml() or "inf" in e.toxml().replace("info", "") for e in
               document.getElementsByTagName("rect") + document.getElementsByTagName("path"))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}

# --- a series ---
expect 0 "$BERM" replay --json --repeat 2 --allocator pytorch --series "$work/s<&>.csv" "$trace"
figures=$(python3 -c 'import json,sys; r=json.load(open(sys.argv[1])); print(r["peak_live_bytes"], r["peak_reserved_bytes"])' "$work/out")
read -r live reserved <<<"$figures"
draw "$work/s<&>.csv" "$work/s.svg"
picture "$work/s.svg" "f['peak_live_bytes'] == $live and f['peak_reserved_bytes'] == $reserved"
picture "$work/s.svg" "f'peak live {$live / 2**20:.1f} MiB' in t or f'peak live {$live / 2**30:.1f} GiB' in t"
picture "$work/s.svg" "'s<&>.csv' in t and 'allocated' in t and 'all 2 repeats' in t"
picture "$work/s.svg" "'reserved: peak' in tooltips and tooltips.count('events ') == 240"
draw "$work/s<&>.csv" "$work/s.html"
grep -q '^<!DOCTYPE html>' "$work/s.html" || fail 'no HTML page'

# What it cost, below: moved bytes and driver time.
expect 0 "$BERM" replay --json --headroom 0 --repeat 2 --series "$work/c.csv" "$BERM_SOURCE/stress/traces/gpt2_varlen.pickle.gz"
costs=$(tail -n 1 "$work/c.csv" | cut -d, -f7-9)
draw "$work/c.csv" "$work/c.svg"
picture "$work/c.svg" "(f['moved_bytes'], f['driver_calls'], f['driver_us']) == ($costs) and f['moved_bytes'] > 0"
picture "$work/c.svg" "'at the end: moved' in t and 'driver time' in t and 'moved, so far' in tooltips"
picture "$work/c.svg" "tooltips.count('by then moved') == 120 and tooltips.count('events ') == 240"
picture "$work/c.svg" "document.documentElement.getAttribute('height') == '692' and ' ms' in t"
# Moved bytes and time rise from the bottom of their drawing to its top or a step below.
python3 - "$work/c.svg" <<'PY' || fail 'the lines of costs do not rise within their drawing'
import re, sys
text = open(sys.argv[1]).read()
for name in ("moved", "driver"):
    d = re.search(rf'class="line {name}" d="([^"]+)"', text).group(1)
    heights = [float(y) for y in re.findall(r"V([0-9.]+)", d)]
    assert heights and heights == sorted(heights, reverse=True), name
    assert 508 <= heights[-1] < 560 and heights[0] <= 640, (name, heights[0], heights[-1])
PY
cut -d, -f1-6 "$work/c.csv" >"$work/old.csv" # as earlier versions wrote it
draw "$work/old.csv" "$work/old.svg"
picture "$work/old.svg" "'moved_bytes' not in f and 'by then' not in tooltips"
picture "$work/old.svg" "document.documentElement.getAttribute('height') == '452'"
printf 'repeat,live_bytes,allocated_bytes,reserved_bytes,moved_bytes,driver_calls,driver_us\n0,1,1,1,9,1,1\n0,1,1,1,8,1,1\n' >"$work/falls.csv"
bad 'falls.csv:3: moved_bytes is less' "$BERM" plot "$work/falls.csv" -o "$work/falls.svg"
sed -i 's/,8,1,1$/,9,1,1/' "$work/falls.csv"
draw "$work/falls.csv" "$work/falls.svg"
picture "$work/falls.svg" "f['moved_bytes'] == 9 and f['driver_us'] == 1"
picture "$work/s.html" "f['peak_live_bytes'] == $live"

# Long series are thinned, and keep a peak of one event.
python3 - "$work/long.csv" <<'PY'
import sys
with open(sys.argv[1], "w") as out:
    out.write("repeat,event,live_bytes,allocated_bytes,active_bytes,reserved_bytes\n")
    for i in range(200000):
        live = 987654321 if i == 123456 else 1000000 + i % 977
        out.write(f"0,{i},{live},{live + 512},{live + 512},1000000000\n")
PY
draw "$work/long.csv" "$work/long.svg"
picture "$work/long.svg" "f['peak_live_bytes'] == 987654321 and f['peak_live_event'] == 123456"
picture "$work/long.svg" "'941.9 MiB at event 123,456' in t and 'MiB' in t"
picture "$work/long.svg" "max(d.count('H') for d in paths) <= 2001 and len(elements) < 400"
[ "$(wc -c <"$work/long.svg")" -lt 300000 ] || fail 'the picture of a long series is large'

printf 'repeat,event,live_bytes,allocated_bytes,active_bytes,reserved_bytes\n' >"$work/bad.csv"
bad 'no rows' "$BERM" plot "$work/bad.csv" -o "$work/bad.svg"
printf '0,0,1,2,3\n' >>"$work/bad.csv"
bad 'bad.csv:2' "$BERM" plot "$work/bad.csv" -o "$work/bad.svg"
printf 'repeat,event,live_bytes,allocated_bytes,active_bytes,reserved_bytes\n0,0,0,0,0,0\n' >"$work/one.csv"
draw "$work/one.csv" "$work/one.svg"
picture "$work/one.svg" "f['events'] == 1 and f['peak_live_bytes'] == 0"

# --- a trace ---
draw "$trace" "$work/t.svg"
picture "$work/t.svg" "f['peak_live_bytes'] == $live and 'peak_reserved_bytes' not in f"
printf 'id,lower,upper,size\n0,0,2,3\n1,1,3,4\n' >"$work/l.csv"
expect 0 "$BERM" plot --scale 1024 "$work/l.csv" --output "$work/l.svg"
picture "$work/l.svg" "f['peak_live_bytes'] == 7 * 1024"
printf 'event_index,op,id,size_bytes,stream\n' >"$work/none.csv"
expect 2 "$BERM" plot "$work/none.csv" -o "$work/none.svg"

# --- a snapshot ---
snapshot() { # FILE [SED]: a small one, changed
    cat >"$1" <<'JSON'
{"schema": 1, "berm": "0.1.0", "is_running": true, "host_metadata_bytes": 1, "new": [],
 "devices": [{"device": 0, "granule_bytes": 4096, "statistics": {
   "requested_bytes": {"current": 1000}, "allocated_bytes": {"current": 1024},
   "active_bytes": {"current": 1024}, "reserved_bytes": {"current": 8192}},
  "pools": [{"stream": "0x0", "segments": [{"base": "0x7f0000000000", "span_bytes": 4503599627370496,
   "ranges": [
    {"state": "live", "start_bytes": 0, "size_bytes": 1024, "requested_bytes": 1000},
    {"state": "awaited", "start_bytes": 1024, "size_bytes": 1024},
    {"state": "free", "start_bytes": 2048, "size_bytes": 6144},
    {"state": "void", "start_bytes": 8192, "size_bytes": 4503599627362304}],
   "handles": [{"first_granule": 0, "granules": 1, "count": 2}]}]}]}]}
JSON
    [ $# -lt 2 ] || sed -i "$2" "$1"
}
snapshot "$work/n.json"
draw "$work/n.json" "$work/n.svg"
picture "$work/n.svg" "(f['live_bytes'], f['awaited_bytes'], f['free_bytes'], f['handles']) == (1024, 1024, 6144, 2)"
picture "$work/n.svg" "'live 1.0 KiB at 0x7f0000000000\nrequested 1000 B' in tooltips and 'not mapped: 4.0 PiB' in tooltips"
picture "$work/n.svg" "'segment 0x7f0000000000: 8.0 KiB mapped of 4.0 PiB' in t and 'reserved 8.0 KiB' in t"
picture "$work/n.svg" "any(d.count('v5') == 3 for d in paths)"
# As many handles as fit are neither a loop nor a large picture.
snapshot "$work/many.json" 's/"count": 2/"count": 1099511627776/'
expect 0 timeout 20 "$BERM" plot "$work/many.json" -o "$work/many.svg"
picture "$work/many.svg" "f['handles'] == 2**40 and len(elements) < 100"

refused() { # WORD SED
    snapshot "$work/r.json" "$2"
    bad "$1" "$BERM" plot "$work/r.json" -o "$work/r.svg"
    [ -e "$work/r.svg" ] && fail "a picture of bad input: $2"
}
refused 'schema 2' 's/"schema": 1/"schema": 2/'
refused 'no snapshot of berm' 's/"schema"/"other"/'
refused 'before the first use' 's/true/false/'
refused "devices\[0\].pools\[0\].segments\[0\].ranges\[1\]: unknown state 'lost'" 's/"awaited"/"lost"/'
refused 'does not begin where' 's/"start_bytes": 1024/"start_bytes": 1025/'
refused 'ends behind the segment' 's/4503599627362304/9003599627370496/'
refused 'do not fill' 's/4503599627362304/4096/'
refused 'ends behind the segment' 's/"count": 2/"count": 4611686018427387904/'
refused "no whole number 'count'" 's/"count": 2/"count": -2/'
refused "'base' is no address" 's/0x7f0000000000/7f/'
refused "'granule_bytes' is 0" 's/: 4096/: 0/'
refused 'no segments' 's/"pools": .*/"pools": []}]}/; /"ranges"/,$d'
refused "no array 'devices'" 's/"devices"/"device"/'
refused 'r.json:[0-9]*: ' 's/"pools"/pools/'
python3 -c 'print("{\"a\":" * 100000)' >"$work/deep.json"
bad 'deep.json' "$BERM" plot "$work/deep.json" -o "$work/deep.svg"

# A snapshot of the library itself.
if [ -z "${BERM_SANITIZE:-}" ]; then
    python3 - "$BERM_LIBDIR" "$work/real.json" <<'PY' || fail 'no snapshot of the library'
import ctypes, random, sys
lib = ctypes.CDLL(sys.argv[1] + "/libberm.so")
def check(status):
    assert status == 0, status
check(lib.berm_init(b"driver:" + sys.argv[1].encode() + b"/simcuda/libcuda.so.1"))
random.seed(1)
live, address, stream = [], ctypes.c_uint64(), ctypes.c_void_p(0)
for _ in range(400):
    if live and random.random() < 0.4:
        block = live.pop(random.randrange(len(live)))
        check(lib.berm_free(ctypes.c_uint64(block), -1, stream))
    else:
        size = int(2 ** random.uniform(9, 25))
        check(lib.berm_alloc(ctypes.c_uint64(size), 0, stream, ctypes.byref(address)))
        live.append(address.value)
out = open(sys.argv[2], "wb")
write_fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
write = write_fn(lambda context, text, length: out.write(ctypes.string_at(text, length)) and None)
check(lib.berm_snapshot_write(write, None))
PY
    draw "$work/real.json" "$work/real.svg"
    allocated=$(python3 -c 'import json,sys; s=json.load(open(sys.argv[1]))["devices"][0]["statistics"]; print(s["allocated_bytes"]["current"], s["reserved_bytes"]["current"])' "$work/real.json")
    read -r allocated reserved <<<"$allocated"
    picture "$work/real.svg" "f['live_bytes'] >= $allocated and f['live_bytes'] + f['awaited_bytes'] + f['free_bytes'] == $reserved"
fi

# --- usage ---
bad 'no FILE' "$BERM" plot -o "$work/x.svg"
bad 'no output' "$BERM" plot "$trace"
bad 'more than one' "$BERM" plot "$trace" "$trace" -o "$work/x.svg"
bad 'FILE.svg or FILE.html' "$BERM" plot "$trace" -o "$work/x.png"
bad 'needs a value' "$BERM" plot "$trace" -o
bad "no option '--nothing'" "$BERM" plot --nothing
bad 'scale' "$BERM" plot "$trace" -o "$work/x.svg" --scale 0
bad 'source-device' "$BERM" plot "$trace" -o "$work/x.svg" --source-device x
bad 'No such file' "$BERM" plot "$work/nothing" -o "$work/x.svg"
bad 'No such file' "$BERM" plot "$trace" -o "$work/no/x.svg"
printf 'hello\n' >"$work/text"
bad 'is no trace' "$BERM" plot "$work/text" -o "$work/x.svg"
if [ -e /dev/full ]; then
    ln -s /dev/full "$work/full.svg"
    bad 'No space' "$BERM" plot "$trace" -o "$work/full.svg"
fi
[ -e "$work/x.svg" ] && fail 'a picture in spite of bad usage'
# --- what allocators need (berm shadow --compare --json, after what the program printed) ---
cat >"$work/compare" <<'JSON'
3 steps done
{"gpu": "H100-80 <&>", "runs": [
 {"allocator": "native", "fits": true, "smallest_memory_bytes": 3145728, "processes": [{"devices": [
  {"peak_requested_bytes": 2097152, "peak_reserved_bytes": 4194304},
  {"peak_requested_bytes": 1048576, "peak_reserved_bytes": 1048576}]}]},
 {"allocator": "berm", "fits": false, "processes": [{"devices": [
  {"peak_requested_bytes": 2097152, "peak_reserved_bytes": 2097152}]}]}]}
JSON
draw "$work/compare" "$work/b.svg"
picture "$work/b.svg" "(f['native_requested_bytes'], f['native_smallest_bytes'],
    f['native_reserved_bytes'], f['berm_smallest_bytes']) == (2**21, 3 * 2**20, 2**22, 0)"
picture "$work/b.svg" "'H100-80 <&>' in t and '1.5000 of requested' in t and 'does not fit' in t"
picture "$work/b.svg" "len([e for e in elements if e.tagName == 'rect']) == 1 + 3 + 3 + 2"
printf '{"gpu": 1, "runs": []}' >"$work/none"
expect 2 "$BERM" plot "$work/none" -o "$work/n.svg"
grep -q ': 0 runs; a picture has 1 to 8' "$work/err" || fail "$(cat "$work/err")"
printf '{"gpu": 1, "runs": [' >"$work/none"
expect 2 "$BERM" plot "$work/none" -o "$work/n.svg"

finish
