# SPDX-License-Identifier: Apache-2.0
# A program with the rights of another user takes no options from its caller's environment.
. "$(dirname "$0")/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: a sanitized library cannot be linked into a plain program'
    exit 77
fi
if [ "$(id -u)" -ne 0 ]; then
    echo 'SKIP: not root: no program can be given to another user'
    exit 77
fi
cc -std=gnu11 -I"$BERM_SOURCE/include" "$BERM_SOURCE/tests/cli/secure.c" "$BERM_LIBDIR/libberm.a" \
    -o "$work/secure" -lpthread -ldl || fail 'does not build'
export BERM_CONF=no_such_option:1,abort_conf:true
expect 0 "$work/secure"
grep -qx 'plain BERM_ERROR_OPTION_UNKNOWN' "$work/out" || fail "plain: $(cat "$work/out")"
printf 'no_such_option:1\n' >"$work/conf"
chmod 755 "$work"
BERM_CONF=abort_conf:true BERM_CONF_FILE=$work/conf expect 0 "$work/secure"
grep -qx 'plain BERM_ERROR_OPTION_UNKNOWN' "$work/out" || fail "plain, file: $(cat "$work/out")"
chown nobody "$work/secure" && chmod u+s "$work/secure"
expect 0 "$work/secure"
if grep -q '^plain' "$work/out"; then
    echo 'SKIP: no setuid programs in this folder'
    exit 77
fi
grep -qx 'secure BERM_\(OK\|ERROR_NO_DRIVER\)' "$work/out" || fail "secure: $(cat "$work/out")"
BERM_CONF=abort_conf:true BERM_CONF_FILE=$work/conf expect 0 "$work/secure"
grep -qx 'secure BERM_\(OK\|ERROR_NO_DRIVER\)' "$work/out" || fail "secure, file: $(cat "$work/out")"
finish
