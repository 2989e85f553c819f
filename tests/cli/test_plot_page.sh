# SPDX-License-Identifier: Apache-2.0
# berm plot of a recording: a page that needs no other file, with the recording's own figures; a
# stranger's text cannot get out of its place; many blocks make no endless page.
. "$(dirname "$0")/lib.sh"
export BERM_CONF=driver:$BERM_LIBCUDA_SIM SIMCUDA_MEMORY=256M
for case in leak fragmentation outside; do
    SIMCUDA_OUTSIDE=$([ $case = outside ] && echo 140M || echo 0) \
        BERM_CONF=$BERM_CONF,recording:$work/$case.json,call_sites:on \
        "$BERM_BUILD/cases/case_$case" >/dev/null 2>&1
    expect 0 "$BERM" plot "$work/$case.json" -o "$work/$case.html"
done
unset BERM_CONF SIMCUDA_MEMORY
bad 'drawn as a page' "$BERM" plot "$work/leak.json" -o "$work/leak.svg"
[ -e "$work/leak.svg" ] && fail 'a picture was left'

cat >"$work/check.py" <<'PY'
"""A page is well-formed, loads nothing, and says what the recording says."""
import html.parser
import json
import sys

VOID = {"meta", "input", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.figures, self.verdict, self.text = [], {}, None, []
        self.rects = 0

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert tag not in ("script", "link", "img", "iframe", "object"), tag
        assert not [name for name in found if name.startswith("on") or name in ("src", "href")], found
        if tag not in VOID:
            self.open.append(tag)
        if "data-name" in found:
            self.figures[found["data-name"]] = int(found["data-bytes"])
        self.verdict = found.get("data-verdict", self.verdict)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)


page = Page()
text = open(sys.argv[1], encoding="utf-8").read()
page.feed(text)
page.close()
assert page.open == [], page.open
assert "http" not in text.replace("http-equiv", ""), "names a place elsewhere"
recording = json.load(open(sys.argv[2], encoding="utf-8"))
figures = recording["devices"][0]["figures"]
for name, wanted in (("memory", "memory_bytes"), ("free", "driver_free_bytes"),
                     ("reserved", "reserved_bytes"), ("requested", "requested_bytes"),
                     ("cached", "cached_bytes")):
    assert page.figures[name] == figures[wanted], (name, page.figures[name], figures[wanted])
assert 0 < page.figures["largest_free"] <= figures["cached_bytes"], page.figures
assert page.verdict == sys.argv[3], page.verdict
for word in sys.argv[4:]:
    assert word in " ".join(page.text), word
assert text.count("<rect") < 12000
PY
page() { python3 "$work/check.py" "$@" >"$work/out" 2>&1 || fail "page of $1: $(tail -1 "$work/out")"; }
page "$work/leak.html" "$work/leak.json" leak outputs weights 'leak.c:'
page "$work/fragmentation.html" "$work/fragmentation.json" fragmentation 'no tag' 'fragmentation.c:'
page "$work/outside.html" "$work/outside.json" outside

# A stranger's tag, path and text.
sed 's|"outputs"|"</td><script>alert(1)</script>"|; s|"weights"|"a\\u0022 onclick=x <b>"|' \
    "$work/leak.json" >"$work/hostile.json"
expect 0 "$BERM" plot "$work/hostile.json" -o "$work/hostile.html"
page "$work/hostile.html" "$work/hostile.json" leak '<script>alert(1)'
cp "$work/leak.json" "$work/<b>&.json"
expect 0 "$BERM" plot "$work/<b>&.json" -o "$work/name.html"
page "$work/name.html" "$work/leak.json" leak '<b>&.json'

# 50,000 blocks of 512 bytes.
cat >"$work/many.py" <<'PY'
import json
import sys
recording = json.load(open(sys.argv[1]))
device = recording["devices"][0]
count, each = 50000, 512
size = -(-count * each // (2 << 20)) * (2 << 20)
base = 1 << 47
device["segments"] = [[base, size, 0, 0, 0, 0, count + 1]]
device["blocks"] = [[base + i * each, each, 500, 1, i + 1, 0, 0] for i in range(count)]
device["blocks"].append([base + count * each, size - count * each, 0, 0, 0, 0, 0])
device["events"] = []
device["figures"].update(requested_bytes=500 * count, allocated_bytes=each * count,
                         active_bytes=each * count, reserved_bytes=size,
                         cached_bytes=size - each * count, requests=count)
json.dump(recording, open(sys.argv[2], "w"))
PY
python3 "$work/many.py" "$work/leak.json" "$work/many.json"
expect 0 timeout 60 "$BERM" plot "$work/many.json" -o "$work/many.html"
[ "$(wc -c <"$work/many.html")" -lt 8000000 ] || fail "a page of $(wc -c <"$work/many.html") bytes"

# What a browser makes of it, where there is one. The picture is kept beside the build.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ] && [ $failures -eq 0 ]; then
    echo 'SKIP: no Chromium to open the page with'
    exit 77
fi
browse() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" "$@"; }
if [ -n "$browser" ]; then
    browse --dump-dom "file://$work/leak.html" >"$work/dom.html" 2>"$work/err" ||
        fail "the browser: $(tail -2 "$work/err")"
    page "$work/dom.html" "$work/leak.json" leak outputs
    browse --window-size=1100,1900 --screenshot="$BERM_BUILD/plot_page.png" \
        "file://$work/leak.html" >/dev/null 2>&1
    [ "$(wc -c <"$BERM_BUILD/plot_page.png")" -gt 20000 ] || fail 'no picture of the page'
    browse --print-to-pdf="$work/leak.pdf" "file://$work/leak.html" >/dev/null 2>&1
    head -c 4 "$work/leak.pdf" | grep -q '%PDF' || fail 'it does not print'
fi
finish
