# SPDX-License-Identifier: Apache-2.0
"""The hook on `import torch`. Before it, on a simulated device, the stand-ins are loaded; after it
the allocator is installed and the shadow run begins to look (berm._shadow).

The environment says what is wanted: BERM_SHADOW_FOLDER (a shadow run: where reports go),
BERM_SHADOW_ALLOCATOR (native, expandable or berm), BERM_RUN=1 (berm on the device there is),
simulated (berm on the simulated one) or device (the simulated one, and torch's own allocator)."""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


def fail(text):
    """Ends the program with one line, before anything else has run."""
    print(f"berm: {text}", file=sys.stderr)
    sys.stderr.flush()
    folder = os.environ.get("BERM_SHADOW_FOLDER")
    if folder:
        with open(os.path.join(folder, "refused"), "a", encoding="utf-8") as file:
            file.write(text + "\n")
    os._exit(2)


class _Loader(importlib.abc.Loader):
    """torch's own loader, with something after it."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        _before()
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _after(module)

    def __getattr__(self, name):  # get_code and the like, for runpy and inspect
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch as the others do, and gives it our loader. Programs may look for torch without
    importing it, and import it later."""

    def __init__(self):
        self._is_looking = False

    def find_spec(self, name, path, target=None):
        if name != "torch" or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is None and os.environ.get("BERM_SHADOW_FOLDER") and not _is_only_asked():
            fail(_lacks())
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _is_only_asked():
    """Whether somebody asks if there is a torch, rather than imports it."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not importlib.util.find_spec.__code__:
        frame = frame.f_back
    return frame is not None


def _lacks():
    from berm import _standins
    return _standins.torch_lacks()


def _see_all_ranks():
    """As many GPUs as this machine's ranks (torchrun) need, where nobody said how many."""
    ranks = max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1),
                int(os.environ.get("LOCAL_RANK") or 0) + 1)
    if ranks > 1:
        os.environ.setdefault("SIMCUDA_DEVICES", str(ranks))


def _before():
    is_simulated = os.environ.get("BERM_RUN") in ("simulated", "device")
    if not is_simulated and not os.environ.get("BERM_SHADOW_FOLDER"):
        return
    _see_all_ranks()
    from berm import _standins
    lacks = _lacks()
    if lacks is not None:
        fail(lacks)
    try:
        _standins.load(_standins.make(_standins.torch_folder()))
    except _standins.StandinsError as error:
        fail(str(error))


def _after(torch):
    if not torch.backends.cuda.is_built():
        fail(f"torch {torch.__version__} is a build without CUDA")
    if os.environ.get("BERM_SHADOW_FOLDER"):
        from berm import _shadow
        _shadow.begin(torch)
    elif os.environ.get("BERM_RUN") != "device":
        install(torch)


def install(torch):
    """berm as torch's allocator, by the widest route; ends the program where that cannot be."""
    from berm import _lib, _subclass
    try:
        _subclass.install(torch)
    except (_lib.BermError, OSError) as error:
        fail(str(error))


def begin():
    """Waits for `import torch`."""
    sys.meta_path.insert(0, _Finder())
