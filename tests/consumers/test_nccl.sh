# SPDX-License-Identifier: Apache-2.0
# The stand-in for NCCL between processes, and what it leaves behind: nothing.
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
command -v gcc >/dev/null || { echo 'SKIP: no gcc'; exit 77; }
simcuda=$BERM_LIBDIR/simcuda
expect 0 gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -I"$BERM_SOURCE" \
    -I"$BERM_SOURCE/allocator" -I"$BERM_SOURCE/simcuda/include" \
    "$BERM_SOURCE/tests/consumers/nccl_ranks.c" "$simcuda/libsimcuda_standins.so.0" \
    "$simcuda/libcuda.so.1" -Wl,-rpath,"$simcuda" -o "$work/nccl_ranks"
export SIMCUDA_MEMORY=1G
segments() { find /dev/shm -name 'simcuda-nccl-*' 2>/dev/null | sort; }
# Of ranks that were killed before all had joined: an old one is swept away, a fresh one may be of
# ranks that wait.
abandoned=/dev/shm/simcuda-nccl-test-$$
touch "$abandoned-fresh"
before=$(segments)
touch -d '1 hour ago' "$abandoned-old"
trap 'rm -rf "$work" "$abandoned"-*' EXIT
for mode in backed told plain thread gone; do
    backed=0
    case $mode in backed | thread | gone) backed=1 ;; esac
    expect 0 env SIMCUDA_BACKED=$backed timeout 60 "$work/nccl_ranks" "$mode"
done
left=$(comm -13 <(echo "$before") <(segments))
[ -z "$left" ] || fail "left behind: $left"
[ -e "$abandoned-fresh" ] || fail "swept away what may be waited for"
finish
