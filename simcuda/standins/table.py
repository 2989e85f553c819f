# SPDX-License-Identifier: Apache-2.0
"""The declaration tables (*.def): which functions a library has, and what becomes of each argument.

One statement a line, "#" starts a comment:
  library STEM            the library lib<STEM>.so.N
  prefix TEXT             names without a version that begin so are of this library
  refuse NUMBER           what a function that has no row returns: its NOT_SUPPORTED
  bad NUMBER              what a call with a handle of no object returns
  NAME(PARAMETER, ...) [work] [-> RESULT]
{a,b} in a name stands for both; "x4" after a parameter repeats it. Parameters:
  int long ptr float double complex zcomplex id   passed in (long is any whole word, id 128 bytes)
  handle handle32         an object; the first one is whose stream work goes to
  free free32             an object that the call ends
  stream                  the stream that work goes to
  set SLOT, get TYPE SLOT kept with the first handle, and read back (slot "stream" is its stream)
  out TYPE [= VALUE]      written on the host, with 0 or VALUE; TYPE: int long size ptr float double,
                          handle handle32 (a new object), or a number of bytes to clear
  result TYPE             the same, or cleared in stream order where it is device memory
  info                    result int: what a solver says of success
Where a pointer is null nothing is written. RESULT, else the status 0: void, int VALUE, size VALUE,
text TEXT, or refuse."""
import collections
import itertools
import re

Row = collections.namedtuple("Row", "name parameters is_work result line")
Parameter = collections.namedtuple("Parameter", "kind type value")

TYPES = {"int": "int", "long": "long long", "size": "unsigned long", "ptr": "void *",
         "float": "float", "double": "double"}
PASSED = {"int": "int", "long": "word", "ptr": "word", "float": "float", "double": "double",
          "complex": "complex32", "zcomplex": "complex64", "id": "id128",
          "handle": "word", "free": "word", "handle32": "unsigned", "free32": "unsigned",
          "stream": "word"}
HANDLES, FREED = ("handle", "handle32"), ("free", "free32")
RESULTS = ("void", "int", "size", "text", "refuse")


class TableError(Exception):
    """A line that is no statement of a table: FILE:LINE: what."""


class Table:
    def __init__(self, path):
        self.path, self.stem, self.prefix, self.refuse, self.bad = path, None, None, None, None
        self.rows = {}
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = re.sub(r"(^|\s)#.*", "", line).strip()
                try:
                    if line:
                        self._statement(line, number)
                except ValueError as error:
                    raise TableError(f"{path}:{number}: {error}") from None
        for field in ("stem", "prefix", "refuse", "bad"):
            if getattr(self, field) is None:
                raise TableError(f"{path}: no {field}")

    def _statement(self, line, number):
        head = re.fullmatch(r"(library|prefix|refuse|bad)\s+(\S+)", line)
        if head:
            value = head[2] if head[1] in ("library", "prefix") else int(head[2])
            setattr(self, "stem" if head[1] == "library" else head[1], value)
            return
        row = re.fullmatch(r"([\w{},]+)\(([^)]*)\)(\s+work)?(?:\s*->\s*(.+))?", line)
        if not row:
            raise ValueError(f"not a statement: {line}")
        parameters = [item for text in row[2].split(",") if text.strip()
                      for item in parse_parameter(text.strip())]
        result = parse_result(row[4])
        for name in expand(row[1]):
            if name in self.rows:
                raise ValueError(f"{name} is there twice")
            self.rows[name] = Row(name, parameters, bool(row[3]), result, number)


def expand(name):
    """a{b,c}d -> abd, acd."""
    parts = [part[1:-1].split(",") if part[:1] == "{" else [part]
             for part in re.split(r"(\{[^}]*\})", name)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def parse_parameter(text):
    repeated = re.fullmatch(r"(.*\S)\s+x(\d+)", text)
    if repeated:
        return parse_parameter(repeated[1]) * int(repeated[2])
    if text in PASSED:
        return [Parameter(text, None, None)]
    if text == "info":
        return [Parameter("result", "int", None)]
    slot = re.fullmatch(r"set\s+(\w+)", text)
    if slot:
        return [Parameter("set", "long", slot[1])]
    slot = re.fullmatch(r"get\s+(\w+)\s+(\w+)", text)
    if slot and slot[1] in TYPES:
        return [Parameter("get", slot[1], slot[2])]
    out = re.fullmatch(r"(out|result)\s+(\w+)(?:\s*=\s*(-?\w+))?", text)
    if out and (out[2] in TYPES or out[2] in HANDLES or out[2].isdigit()):
        return [Parameter(out[1], out[2], out[3])]
    raise ValueError(f"not a parameter: {text}")


def parse_result(text):
    """(kind, value): of "size 5", ("size", "5")."""
    if text is None:
        return ("status", None)
    kind, _, value = text.strip().partition(" ")
    if kind not in RESULTS:
        raise ValueError(f"not a result: {text}")
    return (kind, value.strip() or None)
