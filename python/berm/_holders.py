# SPDX-License-Identifier: Apache-2.0
"""Who keeps device memory: berm.torch.holders()."""
import gc
import time

import torch

from berm import _graph, _live, _names, _sites
from berm._lib import BermError

TARGETS_MAX = 600  # storages of one walk
_WALK_SECONDS_MIN = 0.2
_LOG_LEAST = 8  # members of a list that may be a log
_VIEW_SHARE = 0.5  # of a storage; what is smaller is a view that keeps the whole
_FIX = "run it under torch.inference_mode(), or keep what .detach() returns"


def mib(size_bytes):
    return f"{size_bytes / 2**20:.1f} MiB"


class Holder:
    """Who keeps some memory.

    name     the way to it, as a person would write it: "service.outputs[*]"; "" where Python knows
             of none
    why      a line: in what it is kept, and what of that is a mistake
    site     "file:line function" that allocated it; "" where no call sites are recorded (sites())
    size_bytes, tensors  of all that is kept in the same way
    names    further ways to the first of them"""

    def __init__(self, name, why, site, size_bytes, names=()):
        self.name, self.why, self.site, self.size_bytes = name, why, site, size_bytes
        self.names, self.tensors, self.is_of_graph = list(names), 1, False

    def __repr__(self):
        return f"Holder({self.name!r}, {self.why!r}, {self.site!r}, {self.size_bytes})"

    def __str__(self):
        count = f"{self.tensors} tensor{'s' if self.tensors > 1 else ''}"
        lines = [f"{mib(self.size_bytes):>12}  {count:<12}{self.name or '(no name in Python)'}",
                 f"{'':14}{self.why}"]
        if self.site:
            lines.append(f"{'':14}allocated at {self.site}")
        lines += [f"{'':14}also {name}" for name in self.names]
        return "\n".join(lines)


class Holders(list):
    """Those found, most bytes first. is_complete: the walk was not cut short by its limits."""
    is_complete = True

    def __str__(self):
        text = "\n".join(map(str, self)) or "nothing is kept"
        return text if self.is_complete else \
            text + "\n(the walk was cut short: more names may exist; seconds= gives it more time)"


class _Memory:
    """What is known of one storage."""

    def __init__(self, address, size):
        self.address, self.size = address, size
        self.tensors = []  # Python objects with that memory
        self.saved = []  # (node, root tensor) of graphs that have saved it
        self.grad_of = None


class _Look:
    """All tensors of a moment, and a walk from those that are asked about."""

    def __init__(self, device, seconds):
        self.deadline = time.monotonic() + seconds
        # They stay alive meanwhile, so that an id is of one object.
        self.objects = gc.get_objects()
        self.before = set(map(id, self.objects))
        self.live = _graph.tensors(torch, self.objects, device)
        self.memories = {}
        for tensor, address, size in self.live:
            self.memories.setdefault(address, _Memory(address, size)).tensors.append(tensor)
        self.roots = [tensor for tensor, *_ in self.live if tensor.requires_grad]
        graph = _graph.Graph(self.roots, self.deadline)
        self.is_complete = graph.is_complete
        self.kept_by = {}  # id of a root: bytes that its graph has saved, weights apart
        for each in graph.saved(torch):
            memory = self.memories.setdefault(each.address, _Memory(each.address, each.size))
            root = self.roots[each.root]
            memory.saved.append((each.node, root))
            if not any(isinstance(tensor, torch.nn.Parameter) for tensor in memory.tensors):
                self.kept_by[id(root)] = self.kept_by.get(id(root), 0) + each.size
        self._find_grads()
        self.walk = None

    def _find_grads(self):
        for owner in self.roots:
            if owner.is_leaf and owner.grad is not None:
                memory = _graph.storage(torch, owner.grad)
                if memory is not None:
                    self.memories.setdefault(memory[0], _Memory(*memory)).grad_of = owner

    def at(self, address):
        """The storage that has this address, or None."""
        for memory in self.memories.values():
            if memory.address <= address < memory.address + memory.size:
                return memory
        return None

    def begin(self, memories):
        """Walks from all objects that may tell who keeps these."""
        targets = {}
        for memory in memories:
            for tensor in (*memory.tensors, *(root for _, root in memory.saved), memory.grad_of):
                if tensor is not None:
                    targets[id(tensor)] = tensor
        self.walk = _names.Walk(list(targets.values()),
                                max(self.deadline - time.monotonic(), _WALK_SECONDS_MIN),
                                self.before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Drops all: the objects of a moment lead to each other, and to this."""
        if self.walk is not None:
            self.walk.close()
        for each in (self.objects, self.live, self.roots):
            each.clear()
        self.before, self.memories = set(), {}

    # --- reasons ---------------------------------------------------------------------------------

    def _why_named(self, tensor, path, size):
        reasons = []
        if _names.is_hook(path.text):
            reasons.append("kept by a hook of a module")
        if path.closure:
            reasons.append(f"kept by a closure: {path.closure}")
        if isinstance(tensor, torch.nn.Parameter):
            reasons.append("a weight")
        elif tensor.grad_fn is not None:
            kept = self.kept_by.get(id(tensor), 0)
            reasons.append("stored without detach(): its autograd graph is kept alive" +
                           (f", and in it {mib(kept)} for a backward pass" if kept else "") +
                           f"; {_FIX}")
        own = tensor.numel() * tensor.element_size()
        if own < size * _VIEW_SHARE:
            reasons.append(f"a view of {own} bytes keeps all {size}; keep what .clone() returns")
        if path.container:
            text = f"in {path.container}"
            if "entr" in path.container:
                text += ", which is a cache if nothing is ever taken out: give it a bound"
            elif int(path.container.rsplit(" ", 1)[-1]) >= _LOG_LEAST:
                text += ", a log if nothing is ever taken out: keep .cpu() of it, or give it a bound"
            reasons.append(text)
        reasons += {"local": [f"a variable of a function that runs: {path.place}"],
                    "exception": [f"a variable of a function that ended, kept by an exception's "
                                  f"traceback: {path.place}"],
                    "suspended": [f"a variable of a generator or coroutine that waits: {path.place}"],
                    }.get(path.kind, [] if reasons else [f"a {path.kind} name ({path.place})"])
        return "; ".join(reasons)

    def _of_tensors(self, memory):
        found = []
        for tensor in memory.tensors:
            for path in self.walk.paths(tensor):
                found.append((path, self._why_named(tensor, path, memory.size)))
        return sorted(found, key=lambda each: not each[0].is_program)

    def _of_graph(self, memory):
        for node, root in memory.saved:
            for path in self.walk.paths(root):
                return path.text, (f"saved by {node} for a backward pass of {path.text}" +
                                   (f", which is in {path.container}" if path.container else "") +
                                   (f", kept by a closure: {path.closure}" if path.closure else "") +
                                   f": an autograd graph is kept alive; {_FIX}")
        if memory.saved:
            return "", (f"saved by {memory.saved[0][0]} for a backward pass: an autograd graph is kept "
                        "alive by an object without a name")
        return None

    def _of_nobody(self, memory):
        if not memory.tensors:
            return "", "no tensor of Python's: a library's workspace, or an object of C++"
        if not self.walk.is_complete:
            return "", "the walk ended before a name was found"
        if any(self.walk.is_referred(tensor) for tensor in memory.tensors):
            return "", "a reference cycle that no name leads to: gc.collect() frees it"
        return "", "no object of Python's refers to it: a temporary value, or held by C++"

    def holder(self, memory, site):
        """The Holder of one storage."""
        named, size = self._of_tensors(memory), memory.size
        if memory.grad_of is not None:
            for path in self.walk.paths(memory.grad_of):
                return Holder(path.text + ".grad", "a gradient: zero_grad(set_to_none=True) drops it",
                              site, size)
        graph = self._of_graph(memory)
        if named and (graph is None or named[0][0].is_program):
            names, why = [path.text for path, _ in named[1:]], named[0][1]
            if not _names.is_hook(named[0][0].text) and any(map(_names.is_hook, names)):
                why += "; a hook of a module holds it too"
            if graph and graph[0]:
                names.append(f"the graph of {graph[0]}")
            return Holder(named[0][0].text, why, site, size, dict.fromkeys(names))
        found = Holder(*(graph or self._of_nobody(memory)), site, size)
        found.is_of_graph = graph is not None
        return found


def _site(blocks, address):
    block = blocks.at(address)
    return _live.site(_live.plain(block.frames)) if block is not None and block.frames else \
        _sites.noted(address)


def _grouped(holders, top):
    """Members of one container as one: the reason is that of what is in the container itself."""
    groups = {}
    for each in holders:
        groups.setdefault((_names.pattern(each.name), each.site if not each.name else ""),
                          []).append(each)
    found = []
    for (name, _), members in groups.items():
        first = next((each for each in members if not each.is_of_graph), members[0])
        if len(members) > 1:
            first.name, first.names = name, []
        first.size_bytes, first.tensors = sum(each.size_bytes for each in members), len(members)
        found.append(first)
    return sorted(found, key=lambda each: -each.size_bytes)[:top]


def _unknown(blocks, memories):
    """Blocks in which no tensor lives, as memories."""
    taken = {block.address for block in map(blocks.at, memories) if block is not None}
    return [_Memory(block.address, block.requested) for block in blocks.all
            if block.state == _live.LIVE and block.address not in taken]


def _top(top, device, seconds):
    with _Look(device, seconds) as look:
        blocks = _live.blocks(torch, device)
        memories = [*look.memories.values(), *_unknown(blocks, look.memories)]
        memories = sorted(memories, key=lambda memory: -memory.size)[:TARGETS_MAX]
        look.begin(memories)
        found = Holders(_grouped([look.holder(each, _site(blocks, each.address))
                                  for each in memories], top))
        found.is_complete = look.is_complete and look.walk.is_complete
    return found


def _of_one(look, memory, blocks):
    look.begin([memory])
    found = Holders([look.holder(memory, _site(blocks, memory.address))])
    found.is_complete = look.is_complete and look.walk.is_complete
    return found


def _of_host(tensor, seconds):
    """A tensor without device memory: names only."""
    with _Look(None, seconds) as look:
        memory = _Memory(0, tensor.numel() * tensor.element_size())
        memory.tensors = [tensor]
        return _of_one(look, memory, _live.Blocks(()))


def holders(what=None, top=10, device=None, seconds=10.0):
    """Who keeps memory of a CUDA device, by the names of Python's variables, and why: a list of
    Holder, which prints itself. It does not begin, wait for or change anything on the device.

    what     a tensor, or an address of device memory; None: the `top` ways in which most is kept,
             members of one container as one
    device   its ordinal; None: the current one
    seconds  at most about so long; what is cut short says so (is_complete)

    It walks over what Python's garbage collector tracks (objects that gc.freeze() has put aside are
    not seen), the variables of functions that run, and autograd's graphs. Names are of the moment:
    other threads go on. Call sites: sites(). Raises BermError: an address of no live block."""
    if what is None:
        if not torch.cuda.is_initialized():
            return Holders()
        return _top(top, torch.cuda.current_device() if device is None else device, seconds)
    if isinstance(what, torch.Tensor):
        memory = _graph.storage(torch, _graph.parts(what)[0])
        if memory is None:
            return _of_host(what, seconds)
        address, where = memory[0], _graph.parts(what)[0].device.index
    else:
        if not isinstance(what, int):
            raise BermError(f"berm.torch.holders: {what!r}: a tensor, or an address of device memory")
        address, where = what, torch.cuda.current_device() if device is None and \
            torch.cuda.is_initialized() else device or 0
    with _Look(None, seconds) as look:
        blocks = _live.blocks(torch, where)
        memory, block = look.at(address), blocks.at(address)
        if memory is None:
            if block is None or block.state != _live.LIVE:
                raise BermError(f"berm.torch.holders: no live block has the address {address:#x}")
            memory = _Memory(block.address, block.requested)
        return _of_one(look, memory, blocks)
