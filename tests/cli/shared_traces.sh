# SPDX-License-Identifier: Apache-2.0
# Shared by the tests on the real recordings beside the repository; skips where there are none.
. "$(dirname "$0")/lib.sh"

if [ -z "${BERM_SHARED:-}" ] || [ ! -d "$BERM_SHARED/traces" ]; then
    echo 'SKIP: no recordings beside the repository (in ../shared/traces)'
    exit 77
fi
traces=$BERM_SHARED/traces

# check_run ALLOCATOR FILE LIVE_MIB: the peak of live, within 1 MiB, and a clean run.
check_run() {
    expect 0 "$BERM" replay --json --allocator "$1" "$traces/$2"
    json "r['completed'] and r['hazards'] == 0 and r['leaked_blocks'] == 0"
    json "abs(r['peak_live_bytes'] / 2**20 - $3) <= 1"
}

# torch FILE LIVE_MIB RESERVED_MIB: what PyTorch itself had reserved at most.
torch() {
    check_run pytorch "$1" "$2"
    json "abs(r['peak_reserved_bytes'] / 2**20 / $3 - 1) <= 0.005"
    python3 -c "
import json
r = json.load(open('$work/out'))
print('pytorch', '$1', round(r['peak_reserved_bytes'] / 2**20, 1), 'of $3 MiB')"
}

# berm FILE LIVE_MIB RATIO: reserved over live at most.
berm() {
    check_run berm "$1" "$2"
    json "r['reserved_over_live'] <= $3"
    python3 -c "
import json
r = json.load(open('$work/out'))
print('berm', '$1', r['reserved_over_live'], 'bound $3')"
}

# minimalloc: lines of NAME PEAK, the peaks in units of 2^20, at 64 KiB a unit.
minimalloc() {
    local name peak
    while read -r name peak; do
        expect 0 "$BERM" replay --json --allocator pytorch --capacity 4T --scale 65536 \
            "$traces/minimalloc_$name.csv"
        json "abs(r['peak_live_bytes'] / 2**36 - $peak) < 0.001"
    done
}
