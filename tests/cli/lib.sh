# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of the command. BERM is the command; each check prints what was wrong.
set -u
: "${BERM:?}" "${BERM_SOURCE:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    printf 'FAIL: %s\n' "$*"
    failures=$((failures + 1))
}

# expect STATUS COMMAND...: runs it; output goes to $work/out and $work/err.
expect() {
    local wanted=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" -eq "$wanted" ] && return
    fail "exit $status instead of $wanted: $*"
    head -c 600 "$work/out" "$work/err"
}

# One line on standard error and nothing on standard output, with a word in it.
says() {
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "not one line on standard error: $(cat "$work/err")"
    [ -s "$work/out" ] && fail "output beside the error"
    grep -q -- "$1" "$work/err" || fail "no '$1' in: $(cat "$work/err")"
}

# bad WORD COMMAND...: bad usage or input.
bad() {
    local word=$1
    shift
    expect 2 "$@"
    says "$word"
}

is_json() {
    python3 -m json.tool <"$work/out" >/dev/null || fail "no JSON: $(head -c 300 "$work/out")"
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "JSON is not one line"
}

# json EXPRESSION: a Python expression over the object `r`, which must be true.
json() {
    python3 - "$work/out" "$1" <<'PY' || fail "not true: $1"
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}

finish() {
    [ "$failures" -eq 0 ] || { printf '%d failed\n' "$failures"; exit 1; }
    exit 0
}
