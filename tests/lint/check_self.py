# SPDX-License-Identifier: Apache-2.0
"""The checks of sources find what they look for: each is run on a small tree that is right, and on
one with a single fault, which it must report."""
import os
import pathlib
import subprocess
import sys
import tempfile

import lint

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HERE = pathlib.Path(__file__).resolve().parent
GOOD = {
    ".clang-format": (HERE.parents[1] / ".clang-format").read_text(),
    "tests/lint/layers.txt": "include:\nallocator/base:\nallocator/host: allocator/base\n",
    "tests/lint/lengths_allow.txt": "# none\n",
    "include/berm.h": SPDX + "int berm_one(void);\n",
    "allocator/host/b.h": SPDX + "int host_b(void);\n",
    "allocator/base/a.h": SPDX + "int base_a(void);\n",
    "allocator/base/a.c": SPDX + '#include "base/a.h"\n\nint base_a(void) {\n    return 1;\n}\n',
    "README.md": "Look at `allocator/base/a.c` and [here](include/berm.h). `berm fit T --json`.\n"
                 "\n<!-- output of: echo 12 s, 5; but: \\d+ s -->\n```\n7 s, ...\n```\n",
}
# check: (file, text that replaces it, words of the report)
FAULTS = [
    ("layers", "allocator/base/a.c", SPDX + '#include "host/b.h"\n', "may not include"),
    ("layers", "allocator/base/a.c", SPDX + '#include "base/none.h"\n', "is not there"),
    ("layers", "allocator/base/a.c", SPDX + "#include <cuda.h>\n", "cuda_abi.h"),
    ("layers", "other/a.c", SPDX + "#include <stdio.h>\n", "is not in"),
    ("format", "allocator/base/a.c", SPDX + "int  a;\n", "clang-format"),
    ("spdx", "allocator/base/a.c", "int a;\n", "no line"),
    ("headers", "allocator/base/a.h", SPDX + "size_t base_a(void);\n", "size_t"),
    ("headers", "include/berm.h", SPDX + "int class;\n", "class"),
    ("warnings", "allocator/base/a.c", SPDX + "int base_a(void) {\n    return 1;\n}\n",
     "prototype"),
    ("lengths", "allocator/base/a.c", SPDX + "int a(void) {\n" + "    a();\n" * 59 + "}\n",
     "a.c/a: 61 lines"),
    ("lengths", "allocator/base/a.c", SPDX + "int a;\n" * 600, "a.c: 601 lines"),
    ("lengths", "tests/lint/lengths_allow.txt", "a.c: 700, why\n", "needs no exception"),
    ("environment", "allocator/base/a.c", SPDX + 'const char *a = getenv("A");\n', "a.c:2: getenv"),
    ("docs", "README.md", "Look at `allocator/base/none.c`.\n", "not there"),
    ("docs", "README.md", "Look [here](none.h).\n", "not there"),
    ("figures", "README.md", "<!-- output of: echo 2; but: 3 -->\n```\n1\n```\n",
     "`echo 2` does not print: 1"),
    ("figures", "README.md", "<!-- output of: echo 12 -->\n```\n1\n```\n", "does not print: 1"),
    ("commands", "README.md", "`berm fits --json`\n", "berm fits: no such command"),
    ("commands", "README.md", "`./run fits`\n", "./run fits: no such command"),
    ("commands", "README.md", "```\nberm fit T --jsom\n```\n", "--jsom: no such option"),
    ("commands", "README.md", "`BERM_CONF=limits:1G ./a`\n", "option limits: there is none"),
    ("commands", "README.md", "`BERM_CONT=limit:1G ./a`\n", "variable BERM_CONT: nothing"),
    ("commands", "README.md", "`berm_one()`, `berm_two()`\n", "function berm_two: there is none"),
    ("commands", "README.md", "`berm.torch.fits()`\n", "berm.torch.fits: there is none"),
]


def run(check, changed):
    """Runs a check on the good tree with `changed` laid over it."""
    with tempfile.TemporaryDirectory() as folder:
        for file_name, text in {**GOOD, **changed}.items():
            path = pathlib.Path(folder) / file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, "-B", str(HERE / f"check_{check}.py")],
                              env={**os.environ, "BERM_LINT_ROOT": folder}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout


def main():
    problems = []
    asked = set()
    for check in sorted({fault[0] for fault in FAULTS}):
        status, output = run(check, {})
        if status == 77:
            print(f"{check}: {output}")
            continue
        asked.add(check)
        if status != 0:
            problems.append(f"{check} rejects a good tree:\n{output}")
    faults = [fault for fault in FAULTS if fault[0] in asked]
    for check, file_name, text, words in faults:
        status, output = run(check, {file_name: text})
        if status != 1 or words not in output:
            problems.append(f"{check}, fault in {file_name}: no '{words}' but:\n{output}")
    lint.finish("faults", len(faults), problems)


main()
