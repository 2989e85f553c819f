# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the CUDA libraries that an installed PyTorch needs, on a machine without a GPU.

They are made for one torch (`make`, with gcc, in seconds), kept in a folder, and loaded by path
before torch is imported (`load`), so that torch finds them loaded already. Where the folders lie:
BERM_CACHE_DIR; else build/standins of the source tree; else $XDG_CACHE_HOME/berm (~/.cache/berm).
Nothing here imports torch. Not thread-safe: to be called once, early."""
import ctypes
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

_PACKAGE = pathlib.Path(__file__).resolve().parent
_TREE = _PACKAGE.parent.parent  # of a source tree; installed, LIBDIR/berm
_loaded = []  # for the life of the process


class StandinsError(RuntimeError):
    """Why there are no stand-ins, and what to do, in a line."""


def torch_folder():
    """The folder of the torch that `import torch` would load, or None; nothing is imported."""
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.origin).parent if spec is not None and spec.origin else None


def torch_lacks():
    """What is wrong with the torch that `import torch` would load, in words; None: it is a CUDA build.
    Nothing is imported."""
    folder = torch_folder()
    if folder is None:
        return f"{sys.executable} has no torch: install a CUDA build of it"
    version = folder / "version.py"
    text = version.read_text(encoding="utf-8") if version.exists() else ""
    if re.search(r"^cuda\b.*= *['\"]\d", text, re.MULTILINE):
        return None
    return f"torch in {folder} is a build without CUDA: install a CUDA build of it"


def find(*folders):
    """The folder of the stand-ins made for the torch in a folder, or for the packages in several
    (onnxruntime; cupy and cupy_backends), or None where there is none that is up to date."""
    folder = _folder(*folders)
    return folder if (folder / "order").exists() else None


def make(*folders):
    """The same, made where missing. Raises StandinsError: no CUDA build, no compiler, or berm is not
    built."""
    folder = find(*folders)
    if folder is not None:
        return folder
    folder = _folder(*folders)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Made aside and moved, so that two processes at once do not see each other's halves.
    aside = pathlib.Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        done = subprocess.run([sys.executable, str(_generator() / "make.py"), *map(str, folders),
                               str(_simcuda()), str(aside)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise StandinsError(done.stderr.strip())
        aside.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:  # another process was first, or an unfinished folder is in the way
            if find(*folders) is None:
                shutil.rmtree(folder, ignore_errors=True)
                aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def load(folder):
    """Loads every library that the folder's `order` names, for all of the process. Raises
    StandinsError where torch is imported already or a library does not load."""
    if "torch" in sys.modules:
        raise StandinsError("torch is imported already: the stand-ins must be loaded before it")
    folder = pathlib.Path(folder)
    for line in (folder / "order").read_text(encoding="utf-8").splitlines():
        try:
            _loaded.append(ctypes.CDLL(str(folder / line), mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            raise StandinsError(f"{folder / line} does not load: {error}") from None


def _generator():
    for folder in (_PACKAGE / "standins", _TREE / "simcuda/standins"):
        if (folder / "make.py").exists():
            return folder
    raise StandinsError("simcuda/standins/make.py is not found: berm is not installed whole")


def _simcuda():
    """The folder of the built libcuda.so.1 and its companions."""
    named = os.environ.get("BERM_SIMCUDA")
    folders = ([pathlib.Path(named)] if named else
               [_PACKAGE / "simcuda", _TREE / "build/release/lib/simcuda", _TREE / "simcuda"])
    for folder in folders:
        if (folder / "libcuda.so.1").exists():
            return folder.resolve()
    raise StandinsError(f"no libcuda.so.1 in {', '.join(map(str, folders))}: build berm (./run build), "
                        "or name its lib/simcuda in BERM_SIMCUDA")


def _cache():
    named = os.environ.get("BERM_CACHE_DIR")
    if named:
        return pathlib.Path(named) / "standins"
    if (_TREE / "simcuda/standins").is_dir():
        return _TREE / "build/standins"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "berm/standins"


def _stamp(path):
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _folder(*folders):
    """Where the stand-ins for that torch, or those packages, are kept: the name changes with them,
    with the generator and with the built libraries."""
    folders = [pathlib.Path(one).resolve() for one in folders]
    if len(folders) == 1 and folders[0].name == "torch":
        name, libraries = _torch_name(folders[0]), (folders[0] / "lib").glob("*.so*")
    else:
        name = "-".join(one.name for one in folders)
        libraries = (path for one in folders for path in one.rglob("*.so*"))
    made_of = sorted(libraries) + [
        path for folder in (_generator(), _simcuda()) for path in sorted(folder.iterdir())
        if path.is_file()]
    key = zlib.crc32("\n".join(_stamp(path) for path in made_of).encode())
    return _cache() / f"{name}-{key:08x}"


def _torch_name(torch_dir):
    version = torch_dir / "version.py"
    if not version.exists():
        raise StandinsError(f"{torch_dir} is no torch folder: it has no version.py")
    found = re.search(r"^__version__ = '([^']+)'", version.read_text(encoding="utf-8"),
                      re.MULTILINE)
    return f"torch-{found[1] if found else 'unknown'}"
