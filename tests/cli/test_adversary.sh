# SPDX-License-Identifier: Apache-2.0
# berm stress adversary: berm keeps within its bound, others are shown beside it, bad options.
. "$(dirname "$0")/lib.sh"

adversary() {
    expect "$1" "$BERM" stress adversary --json "${@:2}"
    is_json
}
adversary 0 all --live 1G
json "[r['allocator'] for r in r['results'][:4]] == ['berm', 'pytorch', 'expandable', 'naive']"
json "len({r['adversary'] for r in r['results']}) == 7 and len(r['results']) == 28"
json "all(r['bound_bytes'] is None for r in r['results'] if r['allocator'] != 'berm')"
json "all(r['peak_reserved_bytes'] <= r['bound_bytes'] for r in r['results'] if r['bound_bytes'])"
json "all(r['hazards'] == r['leaked'] == 0 and r['failure'] == '' for r in r['results'])"
json "all(r['peak_live_bytes'] > 0.98 * 2**30 for r in r['results'])"
adversary 0 all --allocator berm --unit 256K --conf remap:alias
adversary 0 robson --allocator berm --live 1G --capacity 1026M
json "r['adversary'] == 'robson' and r['reserved_over_live'] <= 1.002 and r['good']"
adversary 1 robson --allocator expandable --live 1G --capacity 1100M
json "r['refused'] and not r['good'] and r['refused_size_bytes'] > 0"
adversary 0 robson --allocator berm,expandable --live 1G --capacity 1100M
adversary 1 robson --allocator berm --live 1G --conf remap:off
json "r['peak_reserved_bytes'] > r['bound_bytes']"
expect 1 "$BERM" stress adversary robson --allocator pytorch,naive --live 1G --capacity 1100M
grep -q '^robson, pytorch: refused .* of the capacity$' "$work/out" || fail "$(cat "$work/out")"
expect 0 "$BERM" stress adversary comb --live 256M
grep -q '^comb  *berm .* ok$' "$work/out" || fail "text: $(cat "$work/out")"
bad 'no adversary given' "$BERM" stress adversary
bad "no adversary 'x'" "$BERM" stress adversary x
bad 'more than one adversary' "$BERM" stress adversary comb robson
bad "unit does not take 'x'" "$BERM" stress adversary comb --unit x
bad 'no multiple of 512' "$BERM" stress adversary comb --unit 1000
bad 'less than 64 of them' "$BERM" stress adversary comb --live 64M
bad 'needs a value' "$BERM" stress adversary comb --live
bad "no option '--nothing'" "$BERM" stress adversary comb --nothing
bad 'nope' "$BERM" stress adversary comb --allocator nope
bad 'a process of their own' "$BERM" stress adversary comb --allocator rmm-pool
bad 'remap' "$BERM" stress adversary comb --allocator berm --conf remap:never
finish
