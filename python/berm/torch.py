# SPDX-License-Identifier: Apache-2.0
"""berm as PyTorch's CUDA allocator, and who holds its memory.

    import berm.torch
    berm.torch.install()

before anything uses CUDA. Imports torch; a CUDA build of it is the user's. What works by which
route, and which settings are understood: docs/adapters/pytorch.md. install() is to be called by one
thread. What a service asks of its memory (breakdown, watch, holders, check, would_fit, admit):
docs/service.md."""
import ctypes
import functools
import os
import re
import traceback
import warnings

import torch

from berm import _lib, _subclass
from berm._admit import Fit, NotAdmitted, admit, quota, would_fit
from berm._breakdown import Breakdown, breakdown
from berm._holders import Holder, Holders, holders
from berm._inference import Finding, Findings, check
from berm._sites import sites
from berm._watch import Grown, Growth, Request, Watch, watch

__all__ = ["BermError", "Breakdown", "Finding", "Findings", "Fit", "Grown", "Growth", "Holder",
           "Holders", "NotAdmitted", "Request", "Watch", "admit", "breakdown", "check", "holders",
           "install", "installed", "quota", "sites", "watch", "would_fit"]

BermError = _lib.BermError
ROUTES = ("auto", "subclass", "hooks")

_HOOKS = {  # setter of PyTorch's object: function of libberm_torch
    "set_init_fn": "berm_torch_init",
    "set_reset_fn": "berm_torch_reset",
    "set_memory_fraction_fn": "berm_torch_memory_fraction",
    "set_base_alloc_fn": "berm_torch_base_alloc",
    "set_record_stream_fn": "berm_torch_record_stream",
    "set_begin_allocate_to_pool": "berm_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "berm_torch_end_allocate_to_pool",
    "set_release_pool": "berm_torch_release_pool",
}
_WHO_FRAMES = 6  # of the stack that is shown
# Exported by libc10 and libc10_cuda: c10::SetAllocator, and the variable that holds the current
# allocator of CUDA.
_SET_ALLOCATOR = "_ZN3c1012SetAllocatorENS_10DeviceTypeEPNS_9AllocatorEh"
_CURRENT_ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
_DEVICE_TYPE_CUDA, _PRIORITY_HIGHEST = 1, 255

_installed = None  # the route
_kept = []  # what PyTorch has addresses of, for the life of the process
_first_use = None  # the stack of the first call that initialised CUDA, if this module saw it


def _watch():
    """Remembers who initialises CUDA from now on, to be able to name it."""
    original = torch.cuda._lazy_init

    @functools.wraps(original)
    def lazy_init():
        global _first_use
        if _first_use is None and not torch.cuda.is_initialized():
            _first_use = traceback.extract_stack()[:-1]
        return original()

    torch.cuda._lazy_init = lazy_init


def _who():
    """Who initialised CUDA, in words."""
    if _first_use is None:
        return ("something that ran before berm.torch was imported: import it first, and it says "
                "who")
    inner = os.path.dirname(torch.__file__) + os.sep
    frames = [frame for frame in _first_use if not frame.filename.startswith(inner)]
    frame = (frames or _first_use)[-1]
    stack = "".join(traceback.format_list(_first_use[-_WHO_FRAMES:]))
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}\n{stack}"


def _shareable(conf):
    """The options, and that tensors can be sent to other processes, unless something says otherwise;
    without options of the caller's the subclass sees to it, when CUDA is initialised."""
    said = f"{conf},{os.environ.get('BERM_CONF', '')}"
    if re.search(r"(^|[,\s])shareable\s*:", said) or os.environ.get("BERM_CONF_FILE"):
        return conf
    return f"{conf},shareable:on".removeprefix(",")


def _conf_set(conf):
    """Starts berm with options of its own."""
    library = ctypes.CDLL(str(_lib.library()), mode=ctypes.RTLD_GLOBAL)
    _kept.append(library)
    if library.berm_init(conf.encode()) != 0:
        library.berm_error_message.restype = ctypes.c_char_p
        raise BermError(f"conf={conf!r}: {library.berm_error_message().decode()}")


def _install_hooks():
    # Else torch's NCCL watches the allocator, which this route's cannot be, and ends the process.
    os.environ.setdefault("TORCH_DIST_USE_NCCL2", "0")
    path = _lib.library("libberm_torch.so")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "berm_torch_malloc",
                                                         "berm_torch_free")
    library = ctypes.CDLL(str(path))
    _kept.extend((allocator, library))
    for setter, name in _HOOKS.items():
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)
    _look_ups_set()


def _look_ups_set():
    """torch.accelerator.memory finds its allocator by the type of device, and would find native's,
    which nobody uses: its figures would all be 0. With this it finds ours, as torch.cuda does."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    try:
        set_allocator = getattr(ctypes.CDLL(os.path.join(folder, "libc10.so")), _SET_ALLOCATOR)
        current = ctypes.c_void_p.in_dll(ctypes.CDLL(os.path.join(folder, "libc10_cuda.so")),
                                         _CURRENT_ALLOCATOR)
    except (OSError, AttributeError, ValueError):
        warnings.warn("berm: this torch does not export c10::SetAllocator: torch.accelerator.memory "
                      "gives no figures", RuntimeWarning, stacklevel=4)
        return
    set_allocator.argtypes = [ctypes.c_int8, ctypes.c_void_p, ctypes.c_uint8]
    set_allocator.restype = None
    set_allocator(_DEVICE_TYPE_CUDA, current, _PRIORITY_HIGHEST)


def install(route="auto", conf=""):
    """Makes berm the allocator of all CUDA tensors of this process; returns the route taken.

    route  "subclass": berm's own CUDAAllocator, compiled against this torch on first use, under
           which everything of torch.cuda.memory works; "hooks": the functions of libberm_torch.so,
           which need no compiler; "auto": the first, and the second with a warning where it cannot
           be built.
    conf   options of berm, in the form of BERM_CONF; "" leaves them to the environment, but that
           shareable is on, unless BERM_CONF names it or there is a BERM_CONF_FILE, so that tensors
           can be sent to other processes.

    Raises BermError, and changes nothing, where CUDA was initialised before (it says by whom), torch
    has no CUDA, berm or a compiler is missing, or another route was installed. Calling it again is
    allowed."""
    global _installed
    if route not in ROUTES:
        raise BermError(f"route={route!r} is none of {', '.join(ROUTES)}")
    if _installed is not None:
        if route in ("auto", _installed):
            return _installed
        raise BermError(f"berm is installed by route {_installed!r} already")
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise BermError(f"torch {torch.__version__} has no CUDA: install a CUDA build of it")
    if torch.cuda.is_initialized():
        raise BermError("CUDA was initialised before berm.torch.install(), and its allocator cannot "
                        f"be changed any more; by {_who()}")
    if conf:
        _conf_set(_shareable(conf) if route != "hooks" else conf)
    if route != "hooks":
        try:
            _subclass.install(torch)
            _installed = "subclass"
            return _installed
        except BermError as error:
            if route == "subclass":
                raise
            warnings.warn(f"berm: {error}; without it statistics and snapshots are not to be had",
                          RuntimeWarning, stacklevel=2)
    _install_hooks()
    _installed = "hooks"
    return _installed


def installed():
    """The route that was installed, or None."""
    return _installed


if not torch.cuda.is_initialized():
    _watch()
