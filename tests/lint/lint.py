# SPDX-License-Identifier: Apache-2.0
"""What the checks of this folder share: which files there are, running a compiler over many."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

# check_self.py points the checks at a tree of its own.
ROOT = pathlib.Path(os.environ.get("BERM_LINT_ROOT") or pathlib.Path(__file__).resolve().parents[2])
NOT_OURS = {"build", ".git", "__pycache__"}

# Where #include "..." is looked for, after the file's own folder.
INCLUDE_ROOTS = ["allocator", "include", "simcuda/include", "."]
C_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE"] + [f"-I{ROOT / folder}" for folder in INCLUDE_ROOTS]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes",
            "-Wmissing-prototypes", "-Wvla", "-Werror"]


def files(*patterns, under=("",)):
    """The repository's files that match a pattern, as sorted paths."""
    found = set()
    for folder in under:
        for pattern in patterns:
            found.update((ROOT / folder).rglob(pattern))
    ours = [path for path in found if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in ours if path.is_file())


def name(path):
    return path.relative_to(ROOT).as_posix()


def c_files():
    return files("*.c", "*.h")


def table(file_name):
    """Lines "key: value" of a data file beside this one; # starts a comment."""
    rows = {}
    for line in (ROOT / "tests/lint" / file_name).read_text().splitlines():
        line = line.split("#", 1)[0].strip()
        if line:
            key, value = line.split(":", 1)
            rows[key.strip()] = value.strip()
    return rows


def public_functions(header_folder="include"):
    """Names of the functions marked BERM_API in the public headers."""
    names = set()
    for path in files("*.h", under=(header_folder,)):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        names.update(re.findall(r"BERM_API\s[^;(#]*?\b(berm_\w+)\(", text))
    return names


def run(command):
    """Returns (exit status, output of both kinds)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    return done.returncode, done.stdout


def run_all(commands):
    """Runs the commands, as many at a time as there are processors; returns outputs of failures."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [output or "failed without output"
                for status, output in pool.map(run, commands) if status != 0]


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def need_tool(tool):
    if not shutil.which(tool):
        skip(f"{tool} is not installed")


def built(path):
    """A file of the build under test."""
    folder = os.environ.get("BERM_BUILD")
    if not folder:
        skip("BERM_BUILD is not set: run this check by ctest")
    return pathlib.Path(folder) / path


def finish(what, count, problems):
    """Prints the result; a check that looked at nothing has failed."""
    for problem in problems:
        print(problem.rstrip())
    print(f"{what}: {count} checked, {len(problems)} wrong")
    sys.exit(1 if problems or count == 0 else 0)
