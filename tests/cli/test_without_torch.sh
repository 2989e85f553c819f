# SPDX-License-Identifier: Apache-2.0
# Where no CUDA build of PyTorch is installed: every test that needs one is skipped and says why, and
# berm shadow says what is missing, in a line.
. "$(dirname "$0")/lib.sh"

# A build without CUDA, as far as can be seen without importing it; and a Python that has it.
mkdir -p "$work/site/torch"
printf "__version__ = '2.15.0+cpu'\ncuda: Optional[str] = None\n" >"$work/site/torch/version.py"
touch "$work/site/torch/__init__.py"
cat >"$work/python" <<EOF
#!/bin/sh
PYTHONPATH=$work/site\${PYTHONPATH:+:\$PYTHONPATH} exec python3 "\$@"
EOF
chmod +x "$work/python"

echo 'import torch' >"$work/program.py"
bad "torch in $work/site/torch is a build without CUDA" \
    "$BERM" shadow -- "$work/python" "$work/program.py"
# A Python with nothing installed.
expect 0 python3 -m venv --without-pip "$work/bare"
bad "bare/bin/python has no torch: install a CUDA build of it" \
    "$BERM" shadow -- "$work/bare/bin/python" "$work/program.py"
# Who only asks whether there is a torch is answered.
echo 'import importlib.util as u; assert u.find_spec("torch") is None; print("none")' \
    >"$work/program.py"
expect 2 "$BERM" shadow -- "$work/bare/bin/python" "$work/program.py"
grep -q '^none$' "$work/out" || fail "a program that looks for torch: $(cat "$work/err")"

# skips COMMAND...: exit status 77, and a reason.
skips() {
    expect 77 "$@"
    grep -q '^SKIP: .*torch' "$work/out" || fail "no reason: $* printed $(head -c 300 "$work/out")"
}
tests=0
export BERM_TORCH_PYTHON=$work/python
for program in "$BERM_SOURCE"/tests/consumers/torch/test_*.py; do
    [ "${program##*/}" != test_own_table.py ] || continue # counts what is written in the others
    [ -n "${BERM_SANITIZE:-}" ] || skips python3 -B "$program"
    tests=$((tests + 1))
done
for program in $(grep -l 'torch_python\.sh' "$BERM_SOURCE"/tests/consumers/test_*.sh); do
    [ -n "${BERM_SANITIZE:-}" ] || skips bash "$program"
    tests=$((tests + 1))
done
[ "$tests" -gt 15 ] || fail "only $tests tests of torch were found"
finish
