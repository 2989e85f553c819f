# SPDX-License-Identifier: Apache-2.0
# berm stress contents: every byte of libberm's blocks is right under each switch of the device, and
# what is wrong on purpose is found.
. "$(dirname "$0")/lib.sh"

most=20000
[ -n "${BERM_SANITIZE:-}" ] && most=2000
operations=$most

stress() {
    expect "$1" "$BERM" stress contents --json --operations $operations "${@:2}"
    is_json
}

for switch in '' '--drains-map' '--dependent-launch 100' '--granule 2M --capacity 128M' \
    '--conf headroom:0,thread_cache:off --latency slow' '--conf remap:off --latency fast' \
    '--conf remap:alias' '--conf remap:alias,headroom:0 --dependent-launch 100' \
    '--conf remap:alias,sync_edits:on --faults-page-edits' \
    '--conf sync_edits:on --faults-page-edits --drains-map'; do
    case $switch in # those that are about moves of pages have most
    *granule* | *conf*) operations=$((most / 4)) ;;
    *) operations=$most ;;
    esac
    stress 0 $switch
    json "r['operations'] == $operations and r['good'] and r['wrong_bytes'] == 0"
    json "r['hazards'] == 0 and r['kernels_not_run'] == 0 and r['leaked'] == 0"
    json "r['verified_bytes'] > r['written_bytes'] > 100 * $operations * 100"
    json "r['live_peak_bytes'] > 0.75 * r['capacity_bytes']"
    json "min(r['frees_elsewhere'], r['frees_on_none'], r['uses_elsewhere']) > 0"
    [ $operations -ge 5000 ] && json "r['refused'] > 0"
    case $switch in
    *remap:off*) json "r['moved_bytes'] == 0" ;;
    *--granule*) json "r['moved_bytes'] > 0" ;;
    *) json "r['moved_bytes'] > $operations * 10000" ;;
    esac
done

operations=2000
stress 1 --mistake byte
json "r['wrong_bytes'] == 1 and '1 wrong byte from offset' in r['first_wrong'] and not r['good']"
stress 1 --mistake order
json "r['hazards'] > 0 and 'not ordered' in r['first_hazard']"
stress 0 --mistake order --expect-hazard
stress 1 --expect-hazard
# A device that faults on page-table edits under work (Volta) needs sync_edits.
stress 1 --faults-page-edits
json "r['hazards'] > 0 and 'edits the page table' in r['first_hazard'] and r['failure']"

expect 0 "$BERM" stress contents --operations 1000
grep -q ': 0 wrong bytes$' "$work/out" || fail "text: $(cat "$work/out")"
grep -qx '0 hazards' "$work/out" || fail "text: $(cat "$work/out")"
expect 1 "$BERM" stress contents --operations 1000 --mistake byte
grep -q '^WRONG: block ' "$work/out" || fail "text: $(cat "$work/out")"

bad 'no KIND' "$BERM" stress
bad "no kind 'x'" "$BERM" stress x
bad 'more than one' "$BERM" stress contents contents
bad 'needs a value' "$BERM" stress contents --seed
bad "operations does not take '0'" "$BERM" stress contents --operations 0
bad "mistake does not take 'x'" "$BERM" stress contents --mistake x
bad "granule does not take '3M'" "$BERM" stress contents --granule 3M
bad "granule does not take '32K'" "$BERM" stress contents --granule 32K
bad "dependent-launch does not take 'x'" "$BERM" stress contents --dependent-launch x
bad 'cannot have' "$BERM" stress contents --capacity 100K
bad 'nor a readable file' "$BERM" stress contents --latency "$work/none"
bad 'no option' "$BERM" stress contents --nothing
bad 'remap' "$BERM" stress contents --conf remap:never
finish
