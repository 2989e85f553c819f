# SPDX-License-Identifier: Apache-2.0
"""Where berm's own files are: the library, the headers, the sources that are compiled on the user's
machine, and where what is made is kept. Nothing here loads or imports anything."""
import os
import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parent
_TREE = _PACKAGE.parent.parent  # of a source tree; installed, LIBDIR/berm


class BermError(RuntimeError):
    """What is wrong and what to do, in a line."""


def _first(what, folders, name):
    # A wheel has libberm.so under its own name only: two files of it would be two heaps.
    names = (name, f"{name}.0") if name.endswith(".so") else (name,)
    for folder in folders:
        for one in names:
            if (folder / one).exists():
                return (folder / one).resolve()
    raise BermError(f"{what} is not found (no {name} in {', '.join(map(str, folders))}): build berm "
                    "with ./run build, or name its folder in BERM_LIBRARY")


def library(name="libberm.so"):
    """The path of a library of berm's. BERM_LIBRARY names the folder, or libberm.so in it."""
    named = os.environ.get("BERM_LIBRARY")
    if named:
        folder = pathlib.Path(named)
        folders = [folder if folder.is_dir() else folder.parent]
    else:
        folders = [_PACKAGE / "lib", _TREE / "build/release/lib", _TREE.parent]
    return _first(name, folders, name)


def include():
    """The folder of berm.h."""
    prefixes = [_TREE.parent.parent, _TREE.parent.parent.parent]  # of lib and of lib/x86_64-linux-gnu
    folders = [_PACKAGE / "include", _TREE / "include"]
    folders += [prefix / "include" for prefix in prefixes]
    return _first("berm.h", folders, "berm.h").parent


def adapters():
    """The folder that holds adapters/, whose C++ is compiled against the user's torch."""
    return _first("adapters/torch", [_PACKAGE / "src", _TREE], "adapters/torch").parent.parent


def cache():
    """Where what is compiled is kept: BERM_CACHE_DIR; else build/cache of a source tree; else
    $XDG_CACHE_HOME/berm (~/.cache/berm)."""
    named = os.environ.get("BERM_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    if (_TREE / "adapters/torch").is_dir():
        return _TREE / "build/cache"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "berm"
