# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence: first line, or second after a #! line."""
import lint

LINE = "SPDX-License-Identifier: Apache-2.0"
NAMES = ["*.c", "*.h", "*.hpp", "*.cpp", "*.py", "*.sh", "*.cmake", "*.map", "*.def",
         "CMakeLists.txt", "run"]

paths = lint.files(*NAMES)
problems = []
for path in paths:
    lines = path.read_text().splitlines()
    at = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= at or not lines[at].endswith(LINE):
        problems.append(f"{lint.name(path)}:{at + 1}: no line '{LINE}'")
lint.finish("licence lines", len(paths), problems)
