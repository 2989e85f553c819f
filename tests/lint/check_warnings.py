# SPDX-License-Identifier: Apache-2.0
"""Every source is free of warnings with clang, at the lowest and the highest check level.
(The build itself does the same with gcc.)"""
import lint

lint.need_tool("clang")
sources = lint.files("*.c")
commands = [["clang", *lint.C_FLAGS, *lint.WARNINGS, f"-DBERM_CHECK_LEVEL={level}", "-fsyntax-only",
             str(source)] for source in sources for level in (0, 3)]
lint.finish("clang compilations", len(commands), lint.run_all(commands))
