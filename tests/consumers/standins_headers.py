# SPDX-License-Identifier: Apache-2.0
"""usage: standins_headers.py INCLUDE-FOLDER...

Compares simcuda/standins/*.def with the libraries' own headers, as far as the folders have them:
how many arguments a function takes, which of them are floating-point numbers or structures, that
what a row says is written is a pointer to as many bytes, and that every pointer to a size is
written. Prints how many functions were compared."""
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "simcuda/standins"))

import table  # pylint: disable=wrong-import-position

HEADERS = {"cublas": ["cublas_v2.h"], "cublasLt": ["cublasLt.h"], "cudnn": ["cudnn.h"],
           "cufft": ["cufft.h", "cufftXt.h"], "cusparse": ["cusparse.h"],
           "cusparseLt": ["cusparseLt.h"], "cusolver": ["cusolverDn.h"], "nvrtc": ["nvrtc.h"],
           "nccl": ["nccl.h"], "cupti": ["cupti.h"], "cufile": ["cufile.h"],
           "cudart": ["cuda_runtime_api.h"]}
PROTOTYPE = re.compile(r"([\w *]+?)\b((?:cu|nv|nccl)\w+) ?\(([^()]*)\) ?;")
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
BY_VALUE = {"float": ["float"], "double": ["double"], "cuComplex": ["complex"],
            "cuDoubleComplex": ["zcomplex"], "ncclUniqueId": ["id"], "dim3": ["long", "long"]}
SCALARS = {"int": 4, "unsigned int": 4, "uint32_t": 4, "int32_t": 4, "float": 4, "double": 8,
           "size_t": 8, "int64_t": 8, "uint64_t": 8, "long long int": 8, "void": None}
BYTES = {"int": 4, "long": 8, "size": 8, "ptr": 8, "float": 4, "double": 8, "handle": 8,
         "handle32": 4}
# Written by the library, and read by it first; nothing is kept of them.
NOT_WRITTEN = {"cuptiActivitySetAttribute"}


def prototypes(header, folders):
    """name -> list of parameter declarations; None where the header is not there."""
    if not any((folder / header).exists() for folder in folders):
        return None
    done = subprocess.run(["gcc", "-E", "-P", "-x", "c", "-"] + [f"-I{path}" for path in folders],
                          input=f"#include <{header}>\n", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return None
    text = re.sub(r"\s+", " ", ATTRIBUTE.sub("", done.stdout))
    found = {}
    for result, name, arguments in PROTOTYPE.findall(text):
        if result.strip() and "typedef" not in result and "return" not in result:
            found[name] = [item.strip() for item in arguments.split(",")
                           if item.strip() not in ("", "void")]
    return found


def expected(declaration):
    """(kinds that a parameter of this type may be, bytes behind it or None)."""
    text = re.sub(r"\b(const|struct)\b", "", declaration)
    pointers = text.count("*") + text.count("[")
    base = text.split("*")[0]
    if "*" not in text:
        base = re.sub(r"\w+\s*(\[\w*\])?$", "", text) or text
    base = " ".join(base.split())
    if pointers == 0:
        return BY_VALUE.get(base, ["word"]), None
    if pointers > 1:
        return ["pointer"], 8
    return (["const pointer"] if re.search(r"\bconst\b", declaration) else ["pointer"],
            SCALARS.get(base))


def compare_row(row, declarations):
    flat = [(kind, size, text) for text in declarations for kinds, size in [expected(text)]
            for kind in kinds]
    if len(flat) != len(row.parameters):
        return [f"takes {len(flat)} arguments, the table has {len(row.parameters)}"]
    problems = []
    for number, ((kind, size, text), parameter) in enumerate(zip(flat, row.parameters)):
        where = f"argument {number} ({text})"
        floats = ("float", "double", "complex", "zcomplex", "id")
        is_written = parameter.kind in ("out", "result", "get")
        if (kind in floats or parameter.kind in floats) and kind != parameter.kind:
            problems.append(f"{where} is passed as {kind}, the table has {parameter.kind}")
        elif is_written and kind != "pointer":
            problems.append(f"{where} cannot be written")
        elif is_written and size is not None and not parameter.type.isdigit() and \
                size != BYTES[parameter.type]:
            problems.append(f"{where} is {size} bytes, the table has {parameter.type}")
        elif kind == "pointer" and re.search(r"\bsize_t ?\*", text) and not is_written and \
                row.name not in NOT_WRITTEN:
            problems.append(f"{where} is not written by the table")
    return problems


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    folders = [pathlib.Path(path) for path in sys.argv[1:]]
    compared, absent, problems = 0, [], []
    for path in sorted((SOURCE / "simcuda/standins").glob("*.def")):
        declarations = table.Table(path)
        known = {}
        for header in HEADERS.get(declarations.stem, []):
            known.update(prototypes(header, folders) or {})
        if not known:
            absent.append(declarations.stem)
        for row in declarations.rows.values():
            if row.name in known:
                compared += 1
                problems += [f"{path.name}:{row.line}: {row.name}: {problem}"
                             for problem in compare_row(row, known[row.name])]
    print("\n".join(problems + [f"{compared} functions compared, none of {', '.join(absent)}"]))
    sys.exit(bool(problems) or compared == 0)


if __name__ == "__main__":
    main()
