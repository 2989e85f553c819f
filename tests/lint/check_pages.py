# SPDX-License-Identifier: Apache-2.0
"""The manual pages name every subcommand, option, function and call that there is, groff has nothing
to say of them, and the shells' completions offer the subcommands and options that --help has."""
import json
import os
import re
import shutil
import subprocess

import lint

PAGES = {"berm": 1, "libberm": 3, "berm.conf": 5, "berm-preload": 7}


def ask(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def plain(path):
    """The words of a page, without roff's escapes."""
    return path.read_text().replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")


def command_names(berm):
    names = re.findall(r"^  ([a-z]+) +\S", ask(berm, "--help"), re.MULTILINE)
    return {name: set(re.findall(r"(?<!\w)--[a-z][\w-]*", "\n".join(
        line for line in ask(berm, name, "--help").splitlines()
        if re.match(r"\s+(-\w, )?--", line)))) for name in names}


def wanted(berm):
    """page: the names that it must have"""
    commands = command_names(berm)
    options = json.loads(ask(berm, "conf", "--json"))["options"]
    folder = lint.ROOT / "adapters/preload"
    calls = re.findall(r"^PRELOAD_ENTRY\w*\((\w+),|^PRELOAD_API (\w+)\(|^PRELOAD_OPTION\(\w+, \"(\w+)\"",
                       "\n".join((folder / name).read_text()
                                 for name in ("entries.def", "runtime.h", "option.def")), re.MULTILINE)
    return commands, {
        "berm": {f"berm {name}" for name in commands}.union(*commands.values()),
        "libberm": lint.public_functions(),
        "berm.conf": {option["name"] for option in options},
        "berm-preload": {name for names in calls for name in names if name}}


def completed(script, *words):
    """What bash offers after these words."""
    program = (f"source {script}; COMP_WORDS=({' '.join(map(repr, words))}); "
               "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _berm; printf '%s\\n' \"${COMPREPLY[@]}\"")
    return set(ask("bash", "-c", program).split())


def completion_problems(folder, commands):
    script = folder / "bash/berm"
    for begin in ("", "re", "x"):
        right = {name for name in [*commands, "--help", "--version"] if name.startswith(begin)}
        if completed(script, "berm", begin) != right:
            yield f"bash: `berm {begin}` offers {completed(script, 'berm', begin)}"
    for name, options in commands.items():
        if completed(script, "berm", name, "--") != options | {"--help"}:
            yield f"bash: `berm {name} --` offers {completed(script, 'berm', name, '--')}"
        for shell in ("zsh/_berm", "fish/berm.fish"):
            text = (folder / shell).read_text()
            dashes = "-l " if shell.startswith("fish") else "--"
            for option in options:
                if not re.search(rf"{name}\b.*{dashes}{option[2:]}\b", text):
                    yield f"{shell}: no {option} of berm {name}"
    for shell, path in (("zsh", "zsh/_berm"), ("fish", "fish/berm.fish")):
        if shutil.which(shell):
            status, output = lint.run([shell, "-n", str(folder / path)])
            if status != 0:
                yield output


def main():
    if os.environ.get("BERM_SANITIZE"):
        lint.skip("pages are not made with a sanitizer")
    lint.need_tool("groff")
    folder = lint.built("pages")
    commands, names = wanted(str(lint.built("bin/berm")))
    problems = list(completion_problems(folder, commands))
    for page, section in PAGES.items():
        path = folder / f"man/man{section}/{page}.{section}"
        text = plain(path)
        problems += [f"{page}({section}): no {name}" for name in sorted(names[page])
                     if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
        _, output = lint.run(["groff", "-man", "-ww", "-Tutf8", "-z", str(path)])
        problems += [output] if output else []
    lint.finish("names in manual pages", sum(map(len, names.values())), problems)


main()
