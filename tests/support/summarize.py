#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what CTest ran: summarize.py REPORT.xml...

Each report is `ctest --output-junit`. A Criterion binary counts as the tests of its closing line,
any other test as one. Skips are lines "SKIP: reason", exit status 77, and cr_skip, which the closing
line leaves out (Criterion shows it with --verbose). The last line printed is
"N passed, N failed, N skipped"; the exit status is 1 if something failed or nothing ran.

CI=true           skips are shown once more, loudly, and count as failures, unless
                  tests/support/may_skip.txt has them
BERM_SKIP_FAILS   1: they count as failures without CI too; 0: they do not, in a CI that cannot fetch
                  what the tests are run with
"""
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

CLOSING = re.compile(r"Synthesis: Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+)")
COLOUR = re.compile(r"(\x1b|\[NON-XML-CHAR-0x1B\])\[[0-9;]*m")
SKIP = re.compile(r"^SKIP: *(.*?)\s*$", re.MULTILINE)
CRITERION_SKIP = re.compile(r"^\[SKIP\] [^:]+::[^:]+: (?:SKIP: )?(.*)$", re.MULTILINE)


def count_case(case):
    """Returns (passed, failed, skip reasons) of one CTest test."""
    output = COLOUR.sub("", case.findtext("system-out") or "")
    # A test may both print its reason and tell Criterion: the longer list has them all.
    reasons = max(SKIP.findall(output), CRITERION_SKIP.findall(output), key=len)
    status = case.get("status")
    if status == "notrun":
        if case.find("skipped") is not None and "SKIP_RETURN_CODE" in case.find("skipped").get(
            "message", ""
        ):
            return 0, 0, reasons[:1] or ["exit status 77, no reason given"]
        return 0, 1, []
    closing = CLOSING.search(output)
    if not closing:
        return (1, 0, reasons) if status == "run" else (0, 1, reasons)
    tested, passing, failed = map(int, closing.groups())  # crashes are among the failing
    if failed == 0 and (status != "run" or (tested == 0 and not reasons)):
        failed = 1  # a leak at exit, a crash of the runner, or a binary with no test in it
    return passing, failed, reasons


def allowed_skips():
    path = pathlib.Path(__file__).with_name("may_skip.txt")
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def main(paths):
    passed = failed = 0
    skips, failures = [], []
    for path in paths:
        preset = pathlib.Path(path).parent.name
        try:
            cases = list(xml.parse(path).getroot().iter("testcase"))
        except (OSError, xml.ParseError) as error:
            failures.append(f"{preset}: no report: {error}")
            failed += 1
            continue
        for case in cases:
            name = f"{preset}: {case.get('name')}"
            case_passed, case_failed, reasons = count_case(case)
            passed += case_passed
            failed += case_failed
            skips += [(name, reason) for reason in reasons]
            if case_failed:
                failures.append(name)
    print()
    for name, reason in skips:
        print(f"skipped  {name}: {reason}")
    allowed = allowed_skips()
    broken = [skip for skip in skips if not any(text in skip[1] for text in allowed)]
    if os.environ.get("CI") and broken:
        print(f"*** CI promises these {len(broken)}, and they were skipped:")
        for name, reason in broken:
            print(f"***      {name}: {reason}")
    if os.environ.get("BERM_SKIP_FAILS", "1" if os.environ.get("CI") else "0") == "1":
        failed += len(broken)
    for name in failures:
        print(f"FAILED   {name}")
    if passed + failed == 0:
        print("FAILED   no test ran")
    print(f"{passed} passed, {failed} failed, {len(skips)} skipped")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
