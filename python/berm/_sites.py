# SPDX-License-Identifier: Apache-2.0
"""Call sites: which line of the program asked for a block. Torch's own history of frames where the
allocator has one (berm's subclass, torch's own): exact, for all threads, 1 to 2 microseconds a
request. Behind plain hooks a dispatch mode of the thread that asked for it, some 10 an operator."""
import sys
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from berm import _graph, _live

ENTRIES = 20_000  # events that a trace keeps: reading it takes some 7 microseconds each
_SHAPES_MAX = 4
_lock = threading.Lock()
_users = 0  # of torch's history, when it was begun here
# Of what torch.compile traces, hooks are a part: there they do nothing.
_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
_noted = {}  # address: (site, operation), of the mode


def is_recorded():
    """Whether torch keeps a history now."""
    try:
        return torch._C._cuda_isHistoryEnabled()
    except RuntimeError:  # plain hooks
        return False


def noted(address):
    """What a mode noted of the tensor that had this address last; ""."""
    return _noted.get(address, ("", ""))[0]


def shapes(values):
    """The shapes of the first tensors among arguments, in words."""
    found = []
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, torch.Tensor) and len(found) < _SHAPES_MAX:
                found.append(f"({', '.join(map(str, each.shape))})")
    return " ".join(found)


def _addresses(values):
    """Where the memory of the tensors among values begins."""
    found = set()
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            memory = _graph.storage(torch, each) if isinstance(each, torch.Tensor) else None
            if memory is not None:
                found.add(memory[0])
    return found


class Operators(TorchDispatchMode):
    """Notes for each operator of this thread its name and the shapes it was given, as metadata of
    torch's history, or, where there is none, by itself; `after` is called with them."""

    @classmethod
    def ignore_compile_internals(cls):
        """torch.compile works as without it; of what is compiled the operators are not told."""
        return True

    def __init__(self, after=None):
        super().__init__()
        self._after = after
        self._set = getattr(torch.cuda.memory, "_set_memory_metadata", None) \
            if is_recorded() else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        text = f"{func} {shapes((*args, *kwargs.values()))}"
        if self._set is not None:
            self._set(text)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        site = _live.site_of_frame(sys._getframe(1))
        taken = _addresses((*args, *kwargs.values()))
        for address in _addresses(result if isinstance(result, (list, tuple)) else (result,)) - taken:
            _noted[address] = (site, text)
        if self._after is not None:
            self._after(text, site)
        return result


class Modules:
    """Notes which module runs, and the shapes it was given, as metadata of torch's history."""

    def __init__(self):
        self._set = torch.cuda.memory._set_memory_metadata
        self._running = threading.local()
        self._names = {}  # id of a module: its name
        hooks = torch.nn.modules.module
        self._handles = [hooks.register_module_forward_pre_hook(self._before),
                         hooks.register_module_forward_hook(self._ended, always_call=True)]

    def _before(self, module, inputs):
        if _is_compiling():
            return
        stack = self._running.__dict__.setdefault("stack", [])
        if not stack:
            root = type(module).__name__
            self._names.update((id(child), f"{root}.{name}" if name else root)
                               for name, child in module.named_modules())
        name = self._names.get(id(module), type(module).__name__)
        stack.append(f"{name} ({type(module).__name__}) {shapes(inputs)}")
        self._set(stack[-1])

    def _ended(self, *_):
        if _is_compiling():
            return
        stack = self._running.__dict__.setdefault("stack", [])
        if stack:
            stack.pop()
        self._set(stack[-1] if stack else "")

    def end(self):
        for handle in self._handles:
            handle.remove()


class Sites:
    """What sites() returns: end() ends the recording; a context manager does."""

    def __init__(self, entries):
        global _users
        self._mode, self._is_user = None, False
        if _live.is_berm(torch) == "hooks":
            self._mode = Operators()
            self._mode.__enter__()
            return
        with _lock:
            if _users == 0 and is_recorded():
                return  # the program records itself
            _users += 1
            self._is_user = True
            if _users == 1 or entries:
                _begin(entries)

    def end(self):
        """Ends it, where it was begun here; what was recorded of live blocks is dropped."""
        global _users
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
        if not self._is_user:
            return
        self._is_user = False
        with _lock:
            _users -= 1
            if _users == 0:
                torch.cuda.memory._record_memory_history(None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def _begin(entries):
    torch.cuda.memory._record_memory_history(
        enabled="all" if entries else "state", context="alloc" if entries else "state",
        stacks="python", max_entries=entries or 1)
    torch.empty(1, device="cuda")
    torch.cuda.memory._snapshot()  # the first one with frames takes a second: not within a request


def sites(entries=0):
    """Records from now on which line of the program asks for each block: holders() and watch() tell
    it, as "file:line function", the innermost frame that is not torch's, berm's or the standard
    library's (nor, where there is another, an installed package's).

    entries  events that torch's trace keeps besides, for torch.cuda.memory._snapshot(); 0: none

    Under berm's subclass and torch's own allocator this is torch's history of frames: a microsecond
    or two a request, all threads. Behind plain hooks it is a dispatch mode of the calling thread.
    Starts CUDA. A recording that the program has begun itself is left as it is."""
    if not torch.backends.cuda.is_built():
        return _Nothing()
    torch.cuda.init()
    return Sites(entries)


class _Nothing:
    """A recording where there is no CUDA."""

    def end(self):
        """Nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
