# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of libberm_preload.so: makes their programs, and runs a case of one with and
# without the library on a strict simulated device.
: "${BERM_SOURCE:?}"
. "$BERM_SOURCE/tests/cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
command -v gcc >/dev/null || { echo 'SKIP: no gcc'; exit 77; }
simcuda=$BERM_LIBDIR/simcuda
preload=$BERM_LIBDIR/libberm_preload.so
preload_flags=(-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wconversion -Werror -O1 -g -pthread
    -I"$BERM_SOURCE" -I"$BERM_SOURCE/allocator" -I"$BERM_SOURCE/include"
    -I"$BERM_SOURCE/simcuda/include")
export SIMCUDA_STRICT=1 SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=8G

# build NAME LIBRARY...: tests/consumers/preload_NAME.c to $work/NAME
build() {
    local name=$1
    shift
    expect 0 gcc "${preload_flags[@]}" "$BERM_SOURCE/tests/consumers/preload_$name.c" "$@" \
        -Wl,-rpath,"$simcuda" -Wl,-rpath,"$work" -o "$work/$name"
}

# The line of the option stats, and one of its figures: stat served|refused|passed|freed|live
stat() {
    local line
    line=$(grep '^berm: served' "$work/err" | tail -1)
    case $1 in
    served) sed 's/.*served \([0-9]*\) requests.*/\1/' <<<"$line" ;;
    refused) sed 's/.*bytes, refused \([0-9]*\),.*/\1/' <<<"$line" ;;
    passed) sed 's/.*, passed \([0-9]*\) to the driver.*/\1/' <<<"$line" ;;
    freed) sed 's/.*frees: served \([0-9]*\),.*/\1/' <<<"$line" ;;
    live) sed 's/.*; \([0-9]*\) blocks live.*/\1/' <<<"$line" ;;
    esac
}

silent() { [ -s "$work/err" ] && fail "on standard error of $*: $(head -c 600 "$work/err")"; }

# alone PROGRAM CASE: without the library; it must pass there too, and print nothing
alone() {
    expect 0 timeout 60 "$work/$1" "$2"
    silent "$1 $2 alone"
}

# preloaded OPTIONS PROGRAM CASE: under it
preloaded() {
    expect 0 env BERM_PRELOAD="$1" BERM_CONF=log:error LD_PRELOAD="$preload" \
        timeout 60 "$work/$2" "$3"
}

# served PROGRAM CASE [OPTIONS]: all frees were of what was served, and the figures are printed
served() {
    preloaded "stats:on${3:+,$3}" "$1" "$2"
    grep -q '^berm: served [0-9]* requests' "$work/err" || fail "$1 $2: no figures"
    [ "$(stat live)" = 0 ] || fail "$1 $2: blocks live at the end: $(cat "$work/err")"
    total_served=$((total_served + $(stat served)))
    total_freed=$((total_freed + $(stat freed)))
}
total_served=0
total_freed=0
