# SPDX-License-Identifier: Apache-2.0
"""Files that documents name exist: `path` in backticks, and [links](path). The options of
docs/tuning.md are those of options.def."""
import re

import lint

SUFFIXES = (".c", ".h", ".hpp", ".py", ".sh", ".md", ".map", ".def", ".txt", ".json", ".so.1")
MADE_ELSEWHERE = ("build/", "lib/", "bin/", "../", "/", "http", "libberm.so", "libcuda.so.1")
TOKEN = re.compile(r"`([\w./\-]+)`|\]\(([^)#\s]+)[^)]*\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

OPTION_ROWS = "allocator/front/options.def"
OPTION_PAGE = "docs/tuning.md"
OPTION_IN_CODE = re.compile(r'^BERM_OPTION\(\w+,\s*"(\w+)"', re.MULTILINE)
OPTION_IN_PAGE = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)

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


def compare_options(problems):
    """Adds what only one of code and page has; returns how many options there are."""
    rows, page = lint.ROOT / OPTION_ROWS, lint.ROOT / OPTION_PAGE
    if not rows.exists() and not page.exists():
        return 0
    in_code = OPTION_IN_CODE.findall(rows.read_text() if rows.exists() else "")
    in_page = OPTION_IN_PAGE.findall(page.read_text() if page.exists() else "")
    problems += [f"{OPTION_PAGE}: no row for the option {option} of {OPTION_ROWS}"
                 for option in in_code if option not in in_page]
    problems += [f"{OPTION_PAGE}: a row for {option}, which {OPTION_ROWS} does not have"
                 for option in in_page if option not in in_code]
    if not in_code or len(set(in_page)) != len(in_page):
        problems.append(f"{OPTION_PAGE}: an option has two rows, or {OPTION_ROWS} has none")
    return len(in_code)


def main():
    problems = []
    count = compare_options(problems)
    for document in lint.files("*.md"):
        text = CODE_BLOCK.sub("", document.read_text())
        for quoted, link in TOKEN.findall(text):
            if link.startswith(("http", "mailto:")) or not (link or looks_like_path(quoted)):
                continue
            count += 1
            if not exists(document, quoted or link):
                problems.append(f"{lint.name(document)}: names {quoted or link}, not there")
    lint.finish("names of files and options in documents", count, problems)


main()
