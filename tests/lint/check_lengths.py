# SPDX-License-Identifier: Apache-2.0
"""A function fits a screen (60 lines), a file is one noun (600 lines). lengths_allow.txt holds the
exceptions, with reasons; an exception that is no longer needed is an error too."""
import re

import lint

FUNCTION_MAX = 60
FILE_MAX = 600
NAME = re.compile(r"(\w+)\s*\(")


def functions(lines):
    """Yields (name, number of lines) of each definition in a file as clang-format leaves it: the
    signature starts in column 0 and ends in ") {", the body ends with "}" in column 0."""
    first = None  # line of the signature
    body = False
    for number, line in enumerate(lines):
        if body:
            if line.startswith("}"):
                match = NAME.search(lines[first])
                yield (match.group(1) if match else "?"), number - first + 1
                first, body = None, False
            continue
        if re.match(r"[A-Za-z_]", line):
            first = number
        if first is not None and line.endswith(") {"):
            body = True
        elif line.endswith((";", "}")) or not line:
            first = None


def main():
    allowed = lint.table("lengths_allow.txt")
    problems, used = [], set()

    def check(key, lines, most):
        if lines <= most:
            return
        limit = int(allowed[key].split(",")[0]) if key in allowed else most
        used.add(key)
        if lines > limit:
            problems.append(f"{key}: {lines} lines, at most {limit}")

    paths = lint.files("*.c", "*.h")
    count = 0
    for path in paths:
        lines = path.read_text().splitlines()
        check(lint.name(path), len(lines), FILE_MAX)
        for function, length in functions(lines):
            count += 1
            check(f"{lint.name(path)}/{function}", length, FUNCTION_MAX)
    problems += [f"lengths_allow.txt: {key} needs no exception" for key in set(allowed) - used]
    lint.finish(f"{len(paths)} files, functions", count, problems)


main()
