# SPDX-License-Identifier: Apache-2.0
"""What documents tell a reader to type or call is there: subcommands of `berm` and of ./run and
their options, keys of BERM_CONF and --conf, environment variables, and public names of C and
Python. Asks the built `berm` for its help."""
import functools
import os
import re
import subprocess

import lint

PARTS = re.compile(r"^```\w*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
# `berm COMMAND ...`, `build/release/bin/berm COMMAND`, `./run COMMAND`, where a command may begin;
# up to what ends it
COMMAND = re.compile(r"(?:^|[;&|(])[ $]*(?:[A-Z_]+=\S* +)*((?:[\w./]*/)?berm|\./run(?: berm)?)"
                     r" +([a-z][\w-]*)([^\n;&|`#)]*)", re.MULTILINE)
COMMENT = re.compile(r"\s(?:#|//) .*")
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*)")
CONF = re.compile(r"(?:BERM_CONF=|--conf[ =])[\"']?([a-z_]+:[^\s\"'\]`]*)")
VARIABLE = re.compile(r"\b((?:BERM|SIMCUDA)_[A-Z][A-Z_]*[A-Z])=")
FUNCTION = re.compile(r"\b(berm_[a-z_]+)\(")
PYTHON = re.compile(r"\bberm\.((?:torch|cupy|numba|ort|rmm|tensorrt)\.)?([a-z_]+)\(")
SOURCES = ("*.c", "*.h", "*.hpp", "*.cpp", "*.py", "*.sh", "*.def", "*.txt", "run")
PROGRAM_OF_OTHERS = {"shadow", "run", "record"}  # what follows -- is not ours


@functools.cache
def help_of(*command):
    if not os.path.exists(command[0]):
        return None
    done = subprocess.run([*command, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=60)
    return done.stdout if done.returncode == 0 else None


@functools.cache
def all_sources():
    own = [path for path in lint.files(*SOURCES) if path.name != os.path.basename(__file__)]
    return "\n".join(path.read_text(errors="replace") for path in own)


@functools.cache
def option_names():
    rows = lint.ROOT / "allocator/front/options.def"
    text = rows.read_text() if rows.exists() else ""
    return set(re.findall(r'^BERM_OPTION\(\w+,\s*"(\w+)"', text, re.MULTILINE)) | {
        word for line in re.findall(r'^BERM_ALIAS\(([^)]*)', text, re.MULTILINE)
        for word in re.findall(r'"(\w+)"', line)}


def command_problem(berm, program, command, rest):
    """What is wrong with one command line, or None."""
    of_run = program == "./run"
    if of_run and command in ("bench", "rivals", "check-traces", "test", "lint"):
        text = help_of(str(lint.ROOT / "run"))
        more = {"bench": "bench", "rivals": "replay", "check-traces": "stress"}.get(command)
        text = (text or "") + ((help_of(berm, more) or "") if more else "")
    elif of_run:
        text = help_of(str(lint.ROOT / "run"))
        if f"\n  {command} " not in (text or ""):
            return f"./run {command}: no such command"
    else:
        text = help_of(berm, command)
        if text is None: # a sentence that berm printed, unless it looks like a command
            return f"berm {command}: no such command" if not rest or "--" in rest else None
    if command in PROGRAM_OF_OTHERS or " -- " in rest:
        rest = re.split(r"\s--(?:\s|$)", rest)[0]
    for option in OPTION.findall(rest):
        if option not in ("--help", "--version") and not re.search(option + r"\b", text):
            return f"{program} {command} {option}: no such option"
    return None


def problems_of(berm, text):
    """Yields (what, None or what is wrong with it) of a document's code."""
    for block, inline in PARTS.findall(text):
        code = COMMENT.sub("", (block or inline).replace("\\\n", " "))
        for program, command, rest in COMMAND.findall(code):
            yield command, command_problem(berm, program, command, rest)
        for conf in CONF.findall(code):
            for key in re.findall(r"(?:^|,)([a-z_]+):", conf):
                known = key in option_names() or f'"{key}"' in all_sources()
                yield key, None if known else f"option {key}: there is none"
        for variable in VARIABLE.findall(code):
            known = variable in all_sources()
            yield variable, None if known else f"variable {variable}: nothing reads it"
        for function in FUNCTION.findall(code):
            known = re.search(rf"\b{function}\(", all_sources())
            yield function, None if known else f"function {function}: there is none"
        for module, function in PYTHON.findall(code):
            known = re.search(rf"\b(?:def|class) {function}\b", all_sources())
            yield function, None if known else f"berm.{module}{function}: there is none"


def main():
    berm = str(lint.built("bin/berm"))
    if not os.path.exists(berm):
        lint.skip("the berm command is not built")
    count, problems = 0, []
    for document in lint.files("*.md"):
        for _, wrong in problems_of(berm, document.read_text()):
            count += 1
            if wrong:
                problems.append(f"{lint.name(document)}: {wrong}")
    lint.finish("commands, options and functions in documents", count, sorted(set(problems)))


main()
