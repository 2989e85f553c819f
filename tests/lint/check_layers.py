# SPDX-License-Identifier: Apache-2.0
"""Every #include goes to a folder that layers.txt allows; cuda.h is included by nobody."""
import re

import lint

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# Real CUDA headers: berm spells the driver's ABI itself, in base/cuda_abi.h. Headers that users
# compile into programs of theirs include what those programs have.
FORBIDDEN = re.compile(r"^(cuda|cuda_runtime|cuda_runtime_api|nvml)\.h$")
FORBIDDEN_ALLOWED = {"tests/lint/cuda_abi_check.cpp", "stress/real/check_abi.cpp",
                     "include/berm_tensorrt.hpp"}

LAYERS = {folder: allowed.split() for folder, allowed in lint.table("layers.txt").items()}


def is_in(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    matches = [folder for folder in LAYERS if is_in(path, folder)]
    return max(matches, key=len, default=None)


def resolve(path, target):
    """The repository's file that `target` means in `path`, or None."""
    for folder in [path.parent] + [lint.ROOT / root for root in lint.INCLUDE_ROOTS]:
        candidate = (folder / target).resolve()
        if candidate.is_file() and candidate.is_relative_to(lint.ROOT):
            return lint.name(candidate)
    return None


def check(path, quote, target):
    """Returns what is wrong with one include, or None."""
    own = layer_of(lint.name(path))
    if own is None:
        return "the folder is not in tests/lint/layers.txt"
    if FORBIDDEN.match(target) and lint.name(path) not in FORBIDDEN_ALLOWED:
        return f"includes {target}; use base/cuda_abi.h"
    found = resolve(path, target)
    if found is None:
        return f'includes "{target}", which is not there' if quote == '"' else None
    if any(is_in(found, folder) for folder in [own] + LAYERS[own]):
        return None
    return f"{own} may not include {found}"


def main():
    problems = []
    count = 0
    for path in lint.files("*.c", "*.h", "*.hpp", "*.cpp"):
        for quote, target in INCLUDE.findall(path.read_text()):
            count += 1
            wrong = check(path, quote, target)
            if wrong:
                problems.append(f"{lint.name(path)}: {wrong}")
    lint.finish("includes", count, problems)


main()
