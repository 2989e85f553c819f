# SPDX-License-Identifier: Apache-2.0
"""The PTX of stress/calibrate/kernels_ptx.c is taken by a CUDA toolkit's assembler, where one is
found, for several GPUs."""
import os
import pathlib
import re
import shutil
import tempfile

import lint

TEXTS = {"stress_kernels_ptx": ("sm_75", "sm_80", "sm_90"),
         "stress_kernels_dependent_ptx": ("sm_90", "sm_100")}
PROGRAM = """
#include <stdio.h>
#include "stress/calibrate/kernels.h"
int main(void) {
    return fputs(%s, stdout) == EOF;
}
"""


def assembler():
    for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        tool = pathlib.Path(folder or "/none") / "bin/ptxas"
        if tool.is_file():
            return str(tool)
    return shutil.which("ptxas") or lint.skip("no CUDA toolkit, whose ptxas could be asked")


def text_of(symbol, folder):
    """The text as the compiler sees it."""
    source, program = folder / f"{symbol}.c", folder / symbol
    source.write_text(PROGRAM % symbol)
    status, output = lint.run(["cc", *lint.C_FLAGS, "-o", str(program), str(source),
                               str(lint.ROOT / "stress/calibrate/kernels_ptx.c")])
    if status == 0:
        status, output = lint.run([str(program)])
    return output if status == 0 else None


def main():
    ptxas = assembler()
    lint.need_tool("cc")
    known = lint.run([ptxas, "--help"])[1]
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for symbol, targets in TEXTS.items():
            text = text_of(symbol, folder)
            if text is None or len(re.findall(r"\.entry", text)) < 2:
                problems.append(f"{symbol}: not there")
                continue
            path = folder / f"{symbol}.ptx"
            path.write_text(text)
            for target in targets:
                if f"'{target}'" not in known:
                    continue
                count += 1
                status, output = lint.run([ptxas, f"-arch={target}", "-o", "/dev/null", str(path)])
                if status != 0:
                    problems.append(f"{symbol} for {target}: {output}")
    lint.finish("assemblies of PTX", count, problems)


main()
