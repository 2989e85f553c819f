# SPDX-License-Identifier: Apache-2.0
"""Each header compiles alone: as C11 with gcc and clang, public ones as C++17 too."""
import lint

PUBLIC_FOLDERS = ("include/", "simcuda/include/")
CXX_FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
             f"-I{lint.ROOT / 'include'}", "-fsyntax-only"]

for tool in ("gcc", "g++", "clang"):
    lint.need_tool(tool)

headers = lint.files("*.h", under=("allocator", "include", "simcuda", "stress", "cli"))
headers += lint.files("*.h", under=("tests/support",))
public_use = lint.ROOT / "tests/lint/public_use.cpp"
commands = []
for header in headers:
    # -include, so that "#pragma once in main file" and unused statics are no concern.
    for compiler in ("gcc", "clang"):
        commands.append([compiler, *lint.C_FLAGS, *lint.WARNINGS, "-fsyntax-only",
                         "-include", str(header), "-x", "c", "/dev/null"])
    if lint.name(header).startswith(PUBLIC_FOLDERS):
        commands += [[compiler, *CXX_FLAGS, "-include", str(header), "-x", "c++", "/dev/null"]
                     for compiler in ("g++", "clang++")]
if public_use.is_file():
    commands += [[compiler, *CXX_FLAGS, str(public_use)] for compiler in ("g++", "clang++")]
    commands += [[compiler, *lint.C_FLAGS, *lint.WARNINGS, "-fsyntax-only", "-x", "c",
                  str(public_use)] for compiler in ("gcc", "clang")]
lint.finish("header compilations", len(commands), lint.run_all(commands))
