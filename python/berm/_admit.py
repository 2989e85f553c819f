# SPDX-License-Identifier: Apache-2.0
"""Whether a request would fit, and a guard that refuses it where it would not:
berm.torch.would_fit(), admit() and quota()."""
import contextlib
import ctypes
import math
import threading

import torch

from berm import _capi, _live, _memory
from berm._lib import BermError

_ROUNDING = 512  # what a block is rounded up to, at least
_PAGES = 2**32  # "as many as there are" for berm_obtainable_read

_lock = threading.Lock()
_quotas = {}  # (device, tag): bytes
_admitted = {}  # (device, tag): _Promise


class NotAdmitted(BermError):
    """A request was refused before it began. needed_bytes; obtainable_bytes: what could be had, after
    what others were promised; tag, quota_bytes: of the quota that refused it, or None."""

    def __init__(self, text, needed_bytes, obtainable_bytes, tag=None, quota_bytes=None):
        super().__init__(text)
        self.needed_bytes, self.obtainable_bytes = needed_bytes, obtainable_bytes
        self.tag, self.quota_bytes = tag, quota_bytes


_WAYS = ("now", "waited", "moved", "trimmed", "grown")


class Fit:
    """Whether something would fit; true where it would.

    needed_bytes
    largest_bytes  the largest request that could be had in all
    way            the cheapest: "now" (no driver call), "waited" (for streams), "moved" (pages),
                   "trimmed" (all that is free anywhere), "grown" (new memory); "" where none does
    us             what that takes, in microseconds, by published measurements of driver calls"""

    def __init__(self, needed_bytes, largest_bytes, way, us):
        self.needed_bytes, self.largest_bytes, self.way, self.us = (needed_bytes, largest_bytes, way,
                                                                    us)

    def __bool__(self):
        return bool(self.way)

    def __repr__(self):
        return f"Fit({self.needed_bytes} bytes of {self.largest_bytes}: {self.way or 'no'}" + \
            (f", {self.us} us)" if self.way else ")")


def _rounded(size):
    return -(-size // _ROUNDING) * _ROUNDING


def _wrong(what):
    return BermError(f"{what!r}: a number of bytes, a shape, or a list of shapes, none below 0")


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shape_bytes(shape, dtype):
    return _rounded(math.prod(shape) * (dtype or torch.get_default_dtype()).itemsize)


def sizes_of(what, dtype=None):
    """Bytes of each block of a number of bytes, a shape (ints), or a list of shapes. Raises
    BermError."""
    if _is_size(what):
        return [what]
    if not isinstance(what, (tuple, list)):
        raise _wrong(what)
    if what and all(map(_is_size, what)):
        return [_shape_bytes(what, dtype)]
    if all(isinstance(each, (tuple, list)) and all(map(_is_size, each)) for each in what):
        return [_shape_bytes(each, dtype) for each in what]
    raise _wrong(what)


def _device(device):
    if _live.is_berm(torch) is None:
        raise BermError("berm.torch: berm is not this process's allocator: berm.torch.install() first")
    if device is not None:
        return device
    return torch.cuda.current_device()


def _prices(device):
    stream = torch.cuda.current_stream(device).cuda_stream
    return _capi.read("berm.torch.would_fit", _capi.library().berm_obtainable_read, _capi.Prices,
                      device, stream, _PAGES)


def would_fit(what, dtype=None, device=None):
    """Whether memory for this could be had now on the current stream, and how: a Fit, true where it
    could.

    what    bytes; a shape; or a list of shapes, which are to live together: each is taken in whole
            pages, so that what is said to fit does
    dtype   of shapes; None: torch's default
    device  its ordinal; None: the current one

    A quota of the tag that this thread has pushed counts. It is of the moment: other threads take
    what is free. Allocates nothing. Raises BermError: berm is not the allocator here, or an argument
    is none of these."""
    sizes, device = [size for size in sizes_of(what, dtype) if size], _device(device)
    largest = _prices(device).grown.size_bytes
    if not sizes:
        return Fit(0, largest, _WAYS[0], 0)
    if max(sizes) >= 2**63:
        return Fit(sum(sizes), largest, "", 0)
    fit = _capi.read("berm.torch.would_fit", _capi.library().berm_would_fit, _capi.Fit, device,
                     torch.cuda.current_stream(device).cuda_stream,
                     (ctypes.c_uint64 * len(sizes))(*sizes), len(sizes))
    way = _WAYS[fit.step] if fit.step < len(_WAYS) else ""
    return Fit(sum(sizes), largest, way, fit.modelled_us if way else 0)


def quota(tag, size_bytes, device=None):
    """The most bytes that may live under a tag (berm.tag()) on a device; None: no quota. admit()
    refuses what would go beyond it, and an allocation that does fails with torch.OutOfMemoryError,
    without any other being touched. Raises BermError: it is no number of bytes, or berm is not the
    allocator here."""
    if size_bytes is not None and not _is_size(size_bytes):
        raise BermError(f"berm.torch.quota: {size_bytes!r} bytes: a whole number, 0 or more, or None")
    name, device = _capi.text("berm.torch.quota", tag), _device(device)
    with _lock:
        _capi.check("berm.torch.quota", _capi.library().berm_quota_set(
            device, name, _memory.NO_LIMIT if size_bytes is None else size_bytes))
        if size_bytes is None:
            _quotas.pop((device, tag), None)
        else:
            _quotas[device, tag] = size_bytes


def _tag_bytes(device, tag):
    stats = _memory.tags(device).get(tag)
    return stats["requested_bytes"]["current"] if stats else 0


def _live_bytes(device, tag):
    return _tag_bytes(device, tag) if tag else _live.figures(torch, device)["requested"][0]


class _Promise:
    """What requests under one tag of a device were promised and did not take yet."""

    def __init__(self, begin_bytes):
        self.bytes, self.requests, self.begin_bytes = 0, 0, begin_bytes

    def open_bytes(self, now_bytes):
        return max(self.bytes - max(now_bytes - self.begin_bytes, 0), 0)


def _promised(device):
    """What all were promised and have not taken. The lock is held."""
    return sum(promise.open_bytes(_live_bytes(where, tag))
               for (where, tag), promise in _admitted.items() if where == device)


def _text(size_bytes):
    return f"{size_bytes / 2**20:.1f} MiB"


def _refuse_quota(needed, device, tag):
    """The lock is held."""
    most = _quotas.get((device, tag))
    if most is None:
        return
    promise = _admitted.get((device, tag))
    now = _tag_bytes(device, tag)
    left = max(most - now - (promise.open_bytes(now) if promise else 0), 0)
    if needed > left:
        raise NotAdmitted(f"not admitted: {_text(needed)} are needed, and of the quota of "
                          f"{_text(most)} of {tag!r} {_text(left)} are left", needed, left, tag, most)


@contextlib.contextmanager
def admit(what, tag="", dtype=None, device=None):
    """A guard around a request: a context manager that raises NotAdmitted, before anything is
    allocated, where the memory that the request will need could not be had, or not beside what
    requests were promised that are in it still, or is more than is left of its tag's quota.

        with berm.torch.admit(estimate(request), tag="requests"):
            serve(request)

    what    bytes that the request will need at its peak; or shapes, as for would_fit()
    tag     what it allocates in this thread has this tag (berm.tag()), and its quota (quota()) binds

    A promise is not a reservation: what others allocate without a guard counts when it lives. What a
    request keeps when it ends is counted as others' progress until none is in the guard. Thread-safe.
    Raises BermError as would_fit()."""
    needed, device = sum(sizes_of(what, dtype)), _device(device)
    with _lock:
        _refuse_quota(needed, device, tag)
        promised = _promised(device)
        largest = max(_prices(device).grown.size_bytes - promised, 0)
        if needed > largest:
            others = f", beside {_text(promised)} promised to others" if promised else ""
            raise NotAdmitted(f"not admitted: {_text(needed)} are needed, and {_text(largest)} could "
                              f"be had{others}: make the request smaller, or try again later", needed,
                              largest)
        promise = _admitted.get((device, tag))
        if promise is None:
            promise = _admitted[device, tag] = _Promise(_live_bytes(device, tag))
        promise.bytes += needed
        promise.requests += 1
    try:
        with _memory.tag(tag) if tag else contextlib.nullcontext():
            yield
    finally:
        with _lock:
            promise.bytes -= needed
            promise.requests -= 1
            if promise.requests == 0:
                del _admitted[device, tag]
