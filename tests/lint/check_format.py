# SPDX-License-Identifier: Apache-2.0
"""All C files are as clang-format leaves them. Versions differ, so only version 14 is asked."""
import shutil

import lint

tool = shutil.which("clang-format-14") or shutil.which("clang-format")
if not tool:
    lint.skip("clang-format is not installed")
if "version 14." not in lint.run([tool, "--version"])[1]:
    lint.skip("clang-format is not version 14")
paths = lint.files("*.c", "*.h", "*.hpp", "*.cpp")
problems = lint.run_all([[tool, "--dry-run", "-Werror", str(path)] for path in paths])
lint.finish("formatted files", len(paths), problems)
