# SPDX-License-Identifier: Apache-2.0
# The whole matrix of shipped recordings and generated programs (`./run check-traces` has those
# beside the repository too): no hazard, no leak, no failed check.
. "$(dirname "$0")/lib.sh"

audits=200
[ -n "${BERM_SANITIZE:-}" ] && audits=40
expect 0 "$BERM" stress traces --audits $audits
cat "$work/out"
grep -q '^540 runs, 0 with findings: .* 0 hazards, 0 leaks, 0 failed checks$' "$work/out" ||
    fail "the total is another"
finish
