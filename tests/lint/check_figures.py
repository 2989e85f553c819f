# SPDX-License-Identifier: Apache-2.0
"""What documents show as output is what the command prints today. A block below the line
    <!-- output of: COMMAND; but: REGEX -->
is compared with the output of COMMAND, run in the repository's root: each of the block's lines has
to come, in this order, among the lines printed. What REGEX matches (times, mostly) may differ, and
so may white space; a line that ends in ... is the beginning of one, and one that begins with $ is
the command as it is typed. "needs torch;" before the
command: it is run only where ./run shadow-setup has been."""
import os
import re
import subprocess

import lint

BLOCK = re.compile(r"^<!-- output of: (needs torch; )?([^\n]*?)(?:; but: ([^\n]*?))? -->\n+```\w*\n(.*?)^```",
                   re.MULTILINE | re.DOTALL)
SECONDS_MAX = 280


def plain(line, but):
    return " ".join((re.sub(but, "~", line) if but else line).split())


def run(command):
    venv = lint.ROOT / "build/venv/bin"
    path = os.pathsep.join([str(lint.built("bin")), str(venv), os.environ.get("PATH", "")])
    done = subprocess.run(["bash", "-c", command], cwd=lint.ROOT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False, timeout=SECONDS_MAX, env={**os.environ, "PATH": path})
    return done.stdout


def missing_lines(block, output, but):
    """The block's lines that the output does not have where they should come."""
    printed = iter([plain(line, but) for line in output.splitlines()])
    for line in block.splitlines():
        line = plain(line, but)
        begins = line.removesuffix("...")
        if line and not line.startswith("$ ") and not any(other == line or begins != line and other.startswith(begins)
                            for other in printed):
            yield line


def main():
    if os.environ.get("BERM_SANITIZE"):
        lint.skip("a sanitizer changes what is counted")
    count, problems = 0, []
    for document in lint.files("*.md"):
        for needs_torch, command, but, block in BLOCK.findall(document.read_text()):
            if needs_torch and not (lint.ROOT / "build/venv/bin/python").exists():
                print(f"{lint.name(document)}: not run without ./run shadow-setup: {command}")
                continue
            count += 1
            output = run(command)
            line = next(missing_lines(block, output, but), None)
            if line:
                print(output)
                problems.append(f"{lint.name(document)}: `{command}` does not print: {line}")
    lint.finish("outputs in documents", count, problems)


main()
