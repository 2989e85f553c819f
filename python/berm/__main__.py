# SPDX-License-Identifier: Apache-2.0
"""python -m berm: what of this Python's packages berm can serve, and how."""
import argparse
import json
import sys

from berm import _check


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m berm", description="berm from Python: says what it finds here.",
        epilog="Exit status: 0, or 1 where a consumer is installed that cannot be served, or berm "
               "does not load.")
    parser.add_argument("--check", action="store_true",
                        help="which installed consumers of device memory berm can serve, and how")
    parser.add_argument("--json", action="store_true", help="the same, as one JSON object")
    parser.add_argument("--version", action="store_true", help="libberm's version, and where it is")
    given = parser.parse_args()
    if given.version:
        library = _check.library()
        print(f"berm {library['version']}, {library['path']}" if library["loads"]
              else library["problem"])
        return 0 if library["loads"] else 1
    if not given.check:
        parser.print_usage(sys.stderr)
        return 2
    found = _check.check()
    print(json.dumps(found) if given.json else _check.text(found), end="\n" if given.json else "")
    return 0 if found["ok"] else 1


sys.exit(main())
