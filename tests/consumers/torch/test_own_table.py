# SPDX-License-Identifier: Apache-2.0
"""The table of cases in docs/adapters/pytorch.md says what the cases of test_own_*.py say. Needs no
torch. With --write it writes the table."""
import importlib
import pathlib
import sys

import own
import torch_test

DOCUMENT = torch_test.SOURCE / "docs/adapters/pytorch.md"
START, END = "<!-- cases -->\n", "<!-- end of cases -->\n"
NAMES = {"native": "native", "expandable": "expandable segments", "subclass": "berm"}


def groups():
    for path in sorted(pathlib.Path(__file__).parent.glob("test_own_*.py")):
        if path.name != pathlib.Path(__file__).name:
            yield importlib.import_module(path.stem).group


def table():
    cases = [case for group in groups() for case in group.cases]
    reasons, rows = [], []
    for case in cases:
        answers = []
        for route in own.ROUTES:
            reason = case.unmet.get(route)
            if reason is not None and reason not in reasons:
                reasons.append(reason)
            answers.append("yes" if reason is None else f"no ({reasons.index(reason) + 1})")
        rows.append(f"| {case.words} | {case.of.replace('_', chr(92) + '_')} | {' | '.join(answers)} |")
    met = [sum(route not in case.unmet for case in cases) for route in own.ROUTES]
    count = ", ".join(f"{number} under {NAMES[route]}" for number, route in zip(met, own.ROUTES))
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([f"Of {len(cases)} cases are met {count}.", "",
                      f"| behaviour | tests | {' | '.join(NAMES[route] for route in own.ROUTES)} |",
                      "|---|---|---|---|---|", *rows, "", "Why not:", "", *notes, ""])


def main():
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(START)
    there, after = rest.split(END)
    wanted = table()
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(before + START + wanted + END + after, encoding="utf-8")
        return 0
    if there != wanted:
        print(f"FAIL: the table in {DOCUMENT.name} is not that of the cases: run "
              "tests/consumers/torch/test_own_table.py --write")
        return 1
    print(f"ok: {wanted.splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
