# SPDX-License-Identifier: Apache-2.0
"""Files that documents name exist: `path` in backticks, and [links](path)."""
import re

import lint

SUFFIXES = (".c", ".h", ".hpp", ".py", ".sh", ".md", ".map", ".def", ".txt", ".json", ".so.1")
MADE_ELSEWHERE = ("build/", "lib/", "bin/", "../", "/", "http", "libberm.so", "libcuda.so.1")
TOKEN = re.compile(r"`([\w./\-]+)`|\]\(([^)#\s]+)[^)]*\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

TOP_LEVEL = {path.name for path in lint.ROOT.iterdir()}
BASE_NAMES = {path.name for path in lint.files("*")}


def looks_like_path(token):
    if token.startswith(MADE_ELSEWHERE):
        return False
    if "/" in token.rstrip("/"):
        return token.split("/")[0] in TOP_LEVEL or token.endswith(SUFFIXES)
    return token.endswith(SUFFIXES) or token.endswith("/")


def exists(document, token):
    token = token.removeprefix("./")
    roots = [document.parent] + [lint.ROOT / folder for folder in lint.INCLUDE_ROOTS]
    if any((root / token).exists() for root in roots):
        return True
    return "/" not in token and token in BASE_NAMES


def main():
    problems = []
    count = 0
    for document in lint.files("*.md"):
        text = CODE_BLOCK.sub("", document.read_text())
        for quoted, link in TOKEN.findall(text):
            if link.startswith(("http", "mailto:")) or not (link or looks_like_path(quoted)):
                continue
            count += 1
            if not exists(document, quoted or link):
                problems.append(f"{lint.name(document)}: names {quoted or link}, not there")
    lint.finish("names of files in documents", count, problems)


main()
