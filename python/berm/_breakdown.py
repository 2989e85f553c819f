# SPDX-License-Identifier: Apache-2.0
"""What a device's memory is used for: berm.torch.breakdown()."""
import ctypes
import gc
import os
import re

import torch

from berm import _collect, _graph, _live
from berm._lib import BermError

# In this order: a block is of the first that claims it.
KINDS = ("weights", "gradients", "optimizer", "kv_cache", "activations", "tensors", "workspaces",
         "unknown")
OTHERS = ("awaited", "cached", "context", "outside")
_WORDS = {
    "weights": "parameters and buffers of modules", "gradients": ".grad of parameters",
    "optimizer": "state of optimizers", "kv_cache": "keys and values of caches, by class or tag",
    "activations": "saved by autograd, or on the way to it", "tensors": "other tensors of Python's",
    "workspaces": "cuBLAS: blocks of its size that are no tensor",
    "unknown": "no tensor of Python's", "awaited": "freed, a stream may use it still",
    "cached": "held by the allocator, free", "context": "CUDA context, modules and libraries",
    "outside": "other processes, and what is not told"}
_CACHE_CLASS = re.compile(r"(?i)kv_?cache|key_?value|(static|dynamic|paged|sliding\w*|hybrid)_?cache|"
                          r"past_?key")
_CACHE_TAG = re.compile(r"(?i)\bkv\b|kv[_ -]?cache")
_DEPTH, _OBJECTS = 4, 50_000
_WORKSPACE_SHARE = 64 << 10  # how far a workspace may be from its size


class Breakdown(dict):
    """Bytes by kind, which add up to used_bytes; `tags`: bytes of blocks by berm.tag()."""
    device, used_bytes, total_bytes = 0, 0, 0
    tags = {}

    def __str__(self):
        lines = [f"GPU {self.device}: {self.used_bytes / 2**20:.1f} MiB of "
                 f"{self.total_bytes / 2**20:.1f} MiB used"]
        lines += [f"  {name:<12}{size / 2**20:10.1f} MiB  {_WORDS[name]}" for name, size in self.items()
                  if size]
        lines += [f"  tag {name:<8}{size / 2**20:10.1f} MiB  (in the above)"
                  for name, size in self.tags.items()]
        return "\n".join(lines)


class _Claims:
    """Which kind each block is of."""

    def __init__(self, blocks):
        self.blocks, self.kinds = blocks, {}

    def tensor(self, kind, tensor):
        """A tensor or what it is made of."""
        if isinstance(tensor, torch.Tensor):
            for part in _graph.parts(tensor):
                memory = _graph.storage(torch, part)
                if memory is not None:
                    self.address(kind, memory[0])

    def address(self, kind, address):
        block = self.blocks.at(address)
        if block is not None:
            self.kinds.setdefault(block.address, kind)

    def within(self, kind, root):
        """All tensors that an object leads to, by what Python's collector sees; not far."""
        level, seen = [root], {id(root)}
        for _ in range(_DEPTH):
            following = []
            for each in gc.get_referents(*level):
                if id(each) in seen or len(seen) > _OBJECTS or callable(each):
                    continue
                seen.add(id(each))
                if issubclass(type(each), torch.Tensor):
                    self.tensor(kind, each)
                else:
                    following.append(each)
            level = following


def _of_modules(claims, objects):
    for module in _graph.of_class(objects, torch.nn.Module):
        own = vars(module)
        for members in (own.get("_parameters"), own.get("_buffers")):
            for tensor in list((members or {}).values()):
                claims.tensor("weights", tensor)
    for tensor in _graph.of_class(objects, torch.nn.Parameter):
        claims.tensor("weights", tensor)


def _of_training(claims, objects):
    for parameter in _graph.of_class(objects, torch.nn.Parameter):
        if parameter.grad is not None:
            claims.tensor("gradients", parameter.grad)
    for optimizer in _graph.of_class(objects, torch.optim.Optimizer):
        for state in list(vars(optimizer).get("state", {}).values()):
            for value in list(state.values()) if isinstance(state, dict) else ():
                claims.tensor("optimizer", value)


def _of_caches(claims, objects, more):
    for block in claims.blocks.all:
        if _CACHE_TAG.search(block.tag):
            claims.kinds.setdefault(block.address, "kv_cache")
    for found in more:
        claims.tensor("kv_cache", found)
        claims.within("kv_cache", found)
    for found in objects:
        kind = type(found)
        if _CACHE_CLASS.search(kind.__name__) and not issubclass(kind, (type, torch.nn.Module)):
            claims.within("kv_cache", found)


def _of_graphs(claims, live):
    roots = [tensor for tensor, *_ in live if tensor.requires_grad and not tensor.is_leaf]
    for saved in _graph.Graph(roots).saved(torch):
        claims.address("activations", saved.address)
    for tensor in roots:
        claims.tensor("activations", tensor)


def _workspace_sizes(device):
    """Bytes that torch asks for its cuBLAS workspaces, by its settings and defaults."""
    is_hopper = torch.cuda.get_device_capability(device)[0] >= 9
    sizes = {32 << 20 if is_hopper else (4096 * 2 + 16 * 8) << 10}
    for text in (os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),):
        pairs = [int(number) for number in re.findall(r"\d+", text)]
        sizes.add(sum(size * count for size, count in zip(pairs[::2], pairs[1::2])) << 10)
    named = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    sizes.add((int(named) if named.isdigit() else 32 << 10 if is_hopper else 1 << 10) << 10)
    return sizes - {0}


def _of_libraries(claims, device):
    sizes = _workspace_sizes(device)
    for block in claims.blocks.all:
        if any(0 <= block.size - size <= _WORKSPACE_SHARE for size in sizes):
            claims.kinds.setdefault(block.address, "workspaces")


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, since its second version."""
    _fields_ = [("pid", ctypes.c_uint), ("used_bytes", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


def _process_bytes(device):
    """What NVML says that this process holds of a device; None: it does not tell (a container's
    numbers of processes are others, WDDM, MIG)."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return None
        handle, count = ctypes.c_void_p(), ctypes.c_uint(256)
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        if nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) != 0:
            return None
        found = (_Process * count.value)()
        status = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found)
    except (OSError, AttributeError):
        return None
    if status != 0:
        return None
    return next((each.used_bytes for each in found[:count.value]
                 if each.pid == os.getpid() and each.used_bytes < 2**63), None)


def _context_bytes(device, reserved):
    simulated = _collect._context_bytes(device)
    if simulated:
        return simulated
    used = _process_bytes(device)
    return max(used - reserved, 0) if used is not None else 0


def breakdown(device=None, kv_cache=()):
    """What a CUDA device's memory is used for: {kind: bytes}, a Breakdown, which prints itself. The
    kinds add up to what the device says is used (used_bytes).

    device    its ordinal; None: the current one
    kv_cache  objects (caches, lists, tensors) whose tensors are a KV cache, beside those found

    weights, gradients, optimizer: tensors of the modules and optimizers that live. kv_cache: blocks
    with a tag such as "kv cache" (berm.tag()), what objects of classes such as DynamicCache lead
    to, and `kv_cache`. activations: what autograd has saved, and tensors on the way. tensors: all
    others of Python's. workspaces: blocks of cuBLAS's size that are no tensor. unknown: other blocks
    of no tensor. Each with what its blocks are rounded up by. awaited, cached: of the allocator.
    context: what NVML says of this process beyond the allocator's, or the simulated device; where
    neither tells it is in `outside`, the rest: other processes, libraries' own memory.

    Walks over all objects of Python's (some 0.1 s). Other threads go on: what they change meanwhile
    shows in `outside`, or in a kind. Raises BermError: CUDA was not initialised."""
    if not torch.cuda.is_initialized():
        raise BermError("berm.torch.breakdown: CUDA is not initialised: nothing is used yet")
    device = torch.cuda.current_device() if device is None else device
    objects = gc.get_objects()
    live = _graph.tensors(torch, objects, device)
    free, total = torch.cuda.mem_get_info(device)
    figures = {name: current for name, (current, _) in _live.figures(torch, device).items()}
    claims = _Claims(_live.blocks(torch, device))
    _live.tags_set(torch, claims.blocks)
    _of_modules(claims, objects)
    _of_training(claims, objects)
    _of_caches(claims, objects, (kv_cache,) if isinstance(kv_cache, torch.Tensor) else kv_cache)
    del objects
    _of_graphs(claims, live)
    for tensor, address, _ in live:
        claims.address("tensors", address)
    _of_libraries(claims, device)
    return _sum(claims, figures, device, total - free, total)


def _sum(claims, figures, device, used, total):
    found = Breakdown.fromkeys((*KINDS, *OTHERS), 0)
    found.tags = {}
    for block in claims.blocks.all:
        if block.state == _live.LIVE:
            found[claims.kinds.get(block.address, "unknown")] += block.size
            if block.tag:
                found.tags[block.tag] = found.tags.get(block.tag, 0) + block.size
        else:
            found["awaited"] += block.size
    held = sum(found.values())
    found["cached"] = max(figures["reserved"] - held, 0)
    found["context"] = min(_context_bytes(device, figures["reserved"]),
                           max(used - held - found["cached"], 0))
    found["outside"] = used - sum(found.values())
    found.device, found.used_bytes, found.total_bytes = device, used, total
    return found
