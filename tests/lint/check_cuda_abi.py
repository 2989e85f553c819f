# SPDX-License-Identifier: Apache-2.0
"""allocator/base/cuda_abi.h and stress/calibrate/module_abi.h agree with the toolkit's cuda.h in
every size, offset, value and function type, where a toolkit of version 13 or later is found (CUDA_HOME, /usr/local/cuda)."""
import os
import pathlib
import re
import tempfile

import lint

HEADERS = ("allocator/base/cuda_abi.h", "stress/calibrate/module_abi.h",
           "simcuda/driver/module_abi.h")
SYMBOL = re.compile(r"\b(cu[A-Z]\w*), (\d+)")


def toolkit():
    for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        header = pathlib.Path(folder or "/none") / "include/cuda.h"
        if header.is_file():
            version = re.search(r"define CUDA_VERSION (\d+)", header.read_text(errors="replace"))
            if version and int(version.group(1)) >= 13000:
                return header.parent
    return lint.skip("no CUDA toolkit of version 13 or later, whose cuda.h could be compared with")


def function_lines(text):
    """One FUNCTION line for each typedef and each "symbol, version" in its comment."""
    lines = []
    for typedef in re.findall(r"typedef berm_cu_result_t \(\*.*?;[^\n]*", text, re.DOTALL):
        ours = re.search(r"\(\*(\w+)\)", typedef).group(1)
        symbols = SYMBOL.findall(typedef.split("//", 1)[1]) if "//" in typedef else []
        for symbol, version in symbols or [("no_symbol_named_for_" + ours, "0")]:
            theirs = re.sub(r"_v\d$", "", symbol)
            lines.append(f"FUNCTION({ours}, PFN_{theirs}_v{version});\n")
    return lines


def main():
    include = toolkit()
    lint.need_tool("g++")
    text = "".join((lint.ROOT / header).read_text() for header in HEADERS)
    source = lint.ROOT / "tests/lint/cuda_abi_check.cpp"
    functions = function_lines(text)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "cuda_abi_functions.inc").write_text("".join(functions))
        status, output = lint.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror",
                                   "-Wno-invalid-offsetof", "-fsyntax-only", f"-I{folder}",
                                   f"-I{lint.ROOT}",
                                   f"-I{lint.ROOT / 'allocator'}", f"-isystem{include}",
                                   str(source)])
    problems = [output] if status != 0 else []
    constants = set(re.findall(r"^    (BERM_CU_\w+) =", text, re.MULTILINE))
    compared = source.read_text()
    for prefix, pattern in (("", "RESULT"), ("ATTR_", "ATTRIBUTE"), ("POINTER_", "POINTER")):
        names = re.findall(rf"^{pattern}\((\w+)\)", compared, re.MULTILINE)
        constants -= {f"BERM_CU_{prefix}{name}" for name in names}
    constants -= set(re.findall(r"^VALUE\((\w+),", compared, re.MULTILINE))
    problems += [f"{name} is not compared in {lint.name(source)}" for name in sorted(constants)]
    lint.finish("driver functions (and all types and values)", len(functions), problems)


main()
