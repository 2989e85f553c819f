# SPDX-License-Identifier: Apache-2.0
"""Blocks that live on a device now, and figures of it, whichever allocator torch has: berm's subclass
and torch's own tell by torch.cuda.memory, berm behind plain hooks by libberm."""
import bisect
import ctypes
import os
import sys

from berm import _capi, _memory

_FORWARD = "forward"
LIVE, AWAITED = "live", "awaited"
_HERE = os.path.dirname(os.path.realpath(__file__)) + os.sep
_LIBRARY = os.sep + "site-packages" + os.sep
_STANDARD = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
_STATES = {"active_allocated": LIVE, "active_pending_free": AWAITED, "active_awaiting_free": AWAITED}


class Block:
    """One block. `frames`: of torch's history, innermost first; () where none is recorded."""
    __slots__ = ("address", "size", "requested", "state", "frames", "tag")

    def __init__(self, address, size, requested, state, frames=()):
        self.address, self.size, self.requested = address, size, requested
        self.state, self.frames, self.tag = state, frames, ""


class Blocks:
    """Those of one moment, in the order of their addresses."""

    def __init__(self, blocks):
        self.all = sorted(blocks, key=lambda block: block.address)
        self._starts = [block.address for block in self.all]

    def at(self, address):
        """The block that has this address, or None."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0 or address >= self.all[index].address + max(self.all[index].size, 1):
            return None
        return self.all[index]


# --- lines of the program ------------------------------------------------------------------------


def _torch_folder():
    torch = sys.modules.get("torch")
    return os.path.dirname(torch.__file__) + os.sep if torch is not None else "\0"


def rank(filename):
    """How much a person knows of a file: 2 the program's own, 1 an installed library's, 0 torch's,
    berm's and the standard library's."""
    if filename.startswith((_HERE, _torch_folder(), "<")) or not filename:
        return 0
    if _LIBRARY in filename:
        return 1
    return 0 if filename.startswith(_STANDARD) else 2


def _short(filename):
    return filename.removeprefix(os.getcwd() + os.sep)


def site(frames):
    """"file:line function" of the innermost frame of the program itself, or of a library where none
    is; where that is a module's forward(), with ", for" the line that called the model. "" where
    there is neither. frames: (filename, line, name), innermost first."""
    own, of_library = [], None
    for filename, line, name in frames:
        known = rank(filename)
        text = f"{_short(filename)}:{line} {name}"
        if known == 1 and of_library is None:
            of_library = text
        if known == 2 and (not own or name != _FORWARD):
            own.append(text)
            if name != _FORWARD:
                break
    return ", for ".join(own) or of_library or ""


def plain(frames):
    """Frames of torch's history as site() takes them."""
    return [(frame["filename"], frame["line"], frame["name"]) for frame in frames]


def site_of_frame(frame):
    """The same of a running frame and those that called it."""
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return site(frames)


# --- blocks --------------------------------------------------------------------------------------


def _of_snapshot(torch, device):
    for segment in torch.cuda.memory._snapshot(device)["segments"]:
        if segment["device"] != device:
            continue
        for block in segment["blocks"]:
            state = _STATES.get(block["state"])
            if state is not None:
                yield Block(block["address"], block["size"], block.get("requested_size", block["size"]),
                            state, block.get("frames") or ())


def _of_slab(address, slab):
    """The slots of a slab that live. What each asked for is not told: what it occupies is."""
    live, taken = int(slab["live"], 16), int(slab["taken"], 16)
    for slot in range(slab["slots"]):
        if taken >> slot & 1:
            state = LIVE if live >> slot & 1 else AWAITED
            yield Block(address + slot * slab["class_bytes"], slab["class_bytes"],
                        slab["class_bytes"], state)


def _of_berm(device):
    for one in _memory.snapshot().get("devices", ()):
        if one["device"] != device:
            continue
        for pool in one["pools"]:
            for segment in pool["segments"]:
                base = int(segment["base"], 16)
                for found in segment["ranges"]:
                    address = base + found["start_bytes"]
                    if "slab" in found:
                        yield from _of_slab(address, found["slab"])
                    elif found["state"] in (LIVE, "deferred", AWAITED):
                        state = LIVE if found["state"] == LIVE else AWAITED
                        yield Block(address, found["size_bytes"],
                                    found.get("requested_bytes", found["size_bytes"]), state)


def is_berm(torch):
    """Whether libberm serves torch here: "subclass", "hooks" or None (torch's own allocator)."""
    backend = torch.cuda.memory.get_allocator_backend()
    if backend == "berm":
        return "subclass"
    module = sys.modules.get("berm.torch")
    return "hooks" if module is not None and module.installed() == "hooks" else None


def blocks(torch, device):
    """What lives, and what is freed and awaited by a stream."""
    if not torch.cuda.is_initialized():
        return Blocks(())
    return Blocks(_of_berm(device) if is_berm(torch) == "hooks" else _of_snapshot(torch, device))


def tags_set(torch, found):
    """Fills the tags in (berm.tag()); does nothing where no tag was ever pushed, or without berm."""
    if is_berm(torch) is None or _capi.library().berm_tag_name(0) is None:
        return
    read, what = _capi.library().berm_whatis, _capi.sized(_capi.Whatis)
    for block in found.all:
        if read(block.address, ctypes.byref(what)) == _capi.OK and what.tag:
            block.tag = what.tag.decode()


# --- figures -------------------------------------------------------------------------------------


def figures(torch, device):
    """requested, allocated, active and reserved bytes of a device: {name: (current, peak)}."""
    names = ("requested", "allocated", "active", "reserved")
    if not torch.cuda.is_initialized():
        return {name: (0, 0) for name in names}
    if is_berm(torch) is not None:
        stats = _capi.read("berm.torch", _capi.library().berm_stats_read, _capi.Stats, device)
        return {name: (getattr(stats, f"{name}_bytes").current, getattr(stats, f"{name}_bytes").peak)
                for name in names}
    stats = torch.cuda.memory_stats(device)
    return {name: (stats.get(f"{name}_bytes.all.current", 0), stats.get(f"{name}_bytes.all.peak", 0))
            for name in names}


def peaks_reset(torch, device):
    """Sets the peaks of figures() to what is current: torch's own peaks too, they are the same."""
    if not torch.cuda.is_initialized():
        return
    if is_berm(torch) == "hooks":
        _memory.peaks_reset(device)
    else:
        torch.cuda.reset_peak_memory_stats(device)
