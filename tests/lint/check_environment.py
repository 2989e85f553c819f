# SPDX-License-Identifier: Apache-2.0
"""Libraries ask for the environment by secure_getenv: a program with the rights of another user is
not steered by whoever starts it."""
import re

import lint

LIBRARIES = ("allocator", "adapters", "simcuda", "include")
PLAIN = re.compile(r"\bgetenv\(")

count, problems = 0, []
for path in lint.files("*.c", "*.h", "*.cpp", "*.hpp", under=LIBRARIES):
    count += 1
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if PLAIN.search(line):
            problems.append(f"{lint.name(path)}:{number}: getenv: secure_getenv it must be")
lint.finish("files of libraries", count, problems)
