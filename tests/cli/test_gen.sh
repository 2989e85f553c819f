# SPDX-License-Identifier: Apache-2.0
# berm gen: determinism, what it writes can be replayed, bad options.
. "$(dirname "$0")/lib.sh"

expect 0 "$BERM" gen random --operations 500 --max-size 1M --seed 3
cp "$work/out" "$work/a.csv"
head -1 "$work/a.csv" | grep -qx 'event_index,op,id,size_bytes,stream' || fail "head line"
[ "$(wc -l <"$work/a.csv")" -eq 501 ] || fail "500 events wanted"
expect 0 "$BERM" gen random --operations 500 --max-size 1M --seed 3 -o "$work/b.csv"
[ -s "$work/out" ] && fail "output with -o"
cmp -s "$work/a.csv" "$work/b.csv" || fail "the same seed gave another trace"
expect 0 "$BERM" gen random --operations 500 --max-size 1M --seed 4
cmp -s "$work/a.csv" "$work/out" && fail "another seed gave the same trace"

expect 0 "$BERM" gen random --operations 300 --sizes log --streams 3 --live-cap 1G --json \
    --output "$work/c.csv.gz"
is_json
json "r['events'] == 300 and r['streams'] == 3 and r['peak_live_bytes'] <= 1 << 30"
for trace in a.csv c.csv.gz; do
    expect 0 "$BERM" replay --check full --allocator pytorch,naive,cudamalloc "$work/$trace"
done

# Each kind at its defaults has the figures of the help.
"$BERM" gen --help >"$work/help" || fail "help"
for kind in random gpt-train llm-serve diffusion multi-model; do
    expect 0 "$BERM" gen $kind --json -o "$work/k.csv.gz"
    is_json
    read -r _ events peak end _ < <(grep "^  $kind .* " "$work/help" | tail -1)
    json "r['kind'] == '$kind' and r['events'] == $events"
    json "abs(r['peak_live_bytes'] / 2**20 - $peak) < 0.06"
    json "abs(r['live_end_bytes'] / 2**20 - $end) < 0.06"
    json "r['streams'] == 1 and 1000 <= r['events'] <= 200000"
done
for streams in 1 4 16; do
    for options in "gpt-train --layers 4 --hidden 256 --iterations 2 --moe 50 --recompute --change 5" \
        "gpt-train --layers 3 --hidden 128 --stages 3 --micro-batches 5 --offload" \
        "llm-serve --requests 20 --answer 20 --kv blocks --chunk 500 --no-prefix" \
        "llm-serve --requests 12 --answer 20 --live-cap 16G --lag 5 --iterations 2" \
        "diffusion --requests 3 --steps 1" "multi-model --requests 8 --live-cap 15G --seed 3"; do
        expect 0 "$BERM" gen $options --streams $streams -o "$work/k.csv"
        grep -q free_done "$work/k.csv" && lags=yes || lags=no
        [ $streams = 1 ] && [ $lags = yes ] && fail "blocks lag on one stream: $options"
        [ $streams != 1 ] && [ $lags = no ] && fail "no block lags on $streams streams: $options"
        expect 0 "$BERM" replay --allocator berm,expandable "$work/k.csv"
    done
done

bad 'takes no --iterations' "$BERM" gen random --iterations 2
bad 'takes no --kv' "$BERM" gen gpt-train --kv blocks
bad "kv does not take 'x'" "$BERM" gen llm-serve --kv x
bad "change does not take '101'" "$BERM" gen gpt-train --change 101
bad "hidden does not take '100'" "$BERM" gen gpt-train --hidden 100
bad 'no multiple of 128' "$BERM" gen gpt-train --hidden 200
bad "answer does not take '3000'" "$BERM" gen llm-serve --answer 3000
bad "stages does not take '0'" "$BERM" gen gpt-train --stages 0
bad "lag does not take '0'" "$BERM" gen diffusion --lag 0
bad "no option '--recomputed'" "$BERM" gen gpt-train --recomputed
bad 'no such kind' "$BERM" gen nothing
bad 'no KIND' "$BERM" gen
bad 'more than one' "$BERM" gen random random
bad 'operations' "$BERM" gen random --operations 0
bad 'max-size' "$BERM" gen random --max-size 1X
bad 'sizes' "$BERM" gen random --sizes normal
bad 'streams' "$BERM" gen random --streams 0
bad 'seed' "$BERM" gen random --seed -1
bad 'needs --output' "$BERM" gen random --json
bad "$work/none/t.csv" "$BERM" gen random -o "$work/none/t.csv"
bad '(--max-size) exceeds the cap on live bytes (--live-cap)' \
    "$BERM" gen random --max-size 2G --live-cap 1G -o "$work/x.csv"
finish
