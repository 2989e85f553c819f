# SPDX-License-Identifier: Apache-2.0
"""The counts of `./run test` (tests/support/summarize.py) on reports made by hand."""
import os
import pathlib
import subprocess
import sys
import tempfile

import lint

SCRIPT = lint.ROOT / "tests/support/summarize.py"
SKIPPED = '<skipped message="SKIP_RETURN_CODE=77"/>'


def case(status, output, extra=""):
    return (f'<testcase name="t" status="{status}">{extra}'
            f"<system-out>{output}</system-out></testcase>")


def closing(tested, passing, failing, crashing=0):
    return (f"[====] Synthesis: Tested: {tested} | Passing: {passing} | Failing: {failing} "
            f"| Crashing: {crashing} ")


# (cases, environment, closing line, exit status)
EXAMPLES = [
    (case("run", "fine"), {}, "1 passed, 0 failed, 0 skipped", 0),
    (case("fail", "bad"), {}, "0 passed, 1 failed, 0 skipped", 1),
    (case("run", closing(5, 5, 0)), {}, "5 passed, 0 failed, 0 skipped", 0),
    (case("fail", closing(5, 3, 2, 1)), {}, "3 passed, 2 failed, 0 skipped", 1),
    (case("fail", closing(5, 5, 0) + "LeakSanitizer"), {}, "5 passed, 1 failed, 0 skipped", 1),
    (case("run", closing(0, 0, 0)), {}, "0 passed, 1 failed, 0 skipped", 1),
    (case("run", "SKIP: no GPU\n" + closing(2, 2, 0)), {}, "2 passed, 0 failed, 1 skipped", 0),
    (case("run", "[SKIP] a::b: no GPU\n" + closing(0, 0, 0)), {}, "0 passed, 0 failed, 1 skipped",
     1),
    (case("run", "SKIP: x\n[SKIP] a::b: SKIP: x\n[SKIP] a::c: x\n" + closing(2, 2, 0)), {},
     "2 passed, 0 failed, 2 skipped", 0),
    (case("notrun", "SKIP: no GPU", SKIPPED), {}, "0 passed, 0 failed, 1 skipped", 1),
    (case("notrun", ""), {}, "0 passed, 1 failed, 0 skipped", 1),
    (case("run", "ok") + case("notrun", "SKIP: tool", SKIPPED), {"BERM_SKIP_FAILS": "1"},
     "1 passed, 1 failed, 1 skipped", 1),
    (case("run", "ok") + case("notrun", "SKIP: tool", SKIPPED), {"CI": "true"},
     "1 passed, 1 failed, 1 skipped", 1),
    (case("run", "ok") + case("notrun", "SKIP: no GPU", SKIPPED), {"CI": "true"},
     "1 passed, 0 failed, 1 skipped", 0),
    (case("run", "ok") + case("notrun", "SKIP: tool", SKIPPED),
     {"CI": "true", "BERM_SKIP_FAILS": "0"}, "1 passed, 0 failed, 1 skipped", 0),
    (case("run", "ok") + case("notrun", "SKIP: tool", SKIPPED), {}, "1 passed, 0 failed, 1 skipped",
     0),
    ("", {}, "0 passed, 0 failed, 0 skipped", 1),
    ("<cut", {}, "0 passed, 1 failed, 0 skipped", 1),
]

outside = {name: value for name, value in os.environ.items()
           if name not in ("CI", "BERM_SKIP_FAILS")}
problems = []
for cases, environment, last_line, exit_status in EXAMPLES:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "ctest.xml"
        report.write_text(f"<testsuite>{cases}</testsuite>")
        done = subprocess.run([sys.executable, "-B", str(SCRIPT), str(report)], text=True,
                              env={**outside, **environment}, stdout=subprocess.PIPE,
                              check=False)
    if done.stdout.splitlines()[-1] != last_line or done.returncode != exit_status:
        problems.append(f"{cases}: expected {last_line}, {exit_status}; "
                        f"got {done.returncode}:\n{done.stdout}")
lint.finish("examples", len(EXAMPLES), problems)
