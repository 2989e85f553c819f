# SPDX-License-Identifier: Apache-2.0
"""What `berm` itself offers: figures, snapshots, tags and pools. Every function loads libberm where
it is not loaded yet; none starts it, unless it says so."""
import contextlib
import ctypes
import itertools
import json
import os
from typing import Any, Dict, Iterator, List, Optional

from berm import _capi

BermError = _capi.BermError
NO_LIMIT = 2**64 - 1

_TRAITS = {"private": 1, "exportable": 2, "pinned": 4, "plain": 8, "rdma": 16, "use_on_oom": 32,
           "no_split": 64}
# Ids of pools are the caller's to choose: these are of this module.
_POOL_HIGH = 0x6265726D << 16 | 0x7079  # "berm", "py"
_pool_numbers = itertools.count(1)


def version() -> str:
    """libberm's version, such as "0.1.0"."""
    return _capi.library().berm_version().decode()


def start(conf: str = "") -> None:
    """Starts berm with options, in the form of BERM_CONF ("key:value,key:value"); without this call
    the first allocation starts it with the environment's.
    Raises BermError: it runs already, an option is wrong, or there is no driver."""
    _capi.check("berm.start", _capi.library().berm_init(
        _capi.text("berm.start", conf)))


def shutdown() -> int:
    """Gives all memory back to the driver and ends berm; returns how many blocks were live still.
    Nothing may use berm's memory any more. Waits for the device. Raises BermError."""
    live = ctypes.c_size_t()
    _capi.check("berm.shutdown", _capi.library().berm_shutdown(ctypes.byref(live)))
    return live.value


def device_count() -> int:
    """How many devices the driver has. Starts berm. Raises BermError (no driver)."""
    count = ctypes.c_int()
    _capi.check("berm.device_count", _capi.library().berm_device_count(ctypes.byref(count)))
    return count.value


def device_info(device: int = 0) -> Dict[str, Any]:
    """What is known of a device: name, memory_bytes, free_bytes (as the driver says now),
    granule_bytes, has_vmm, is_simulated and so on. Starts berm. Raises BermError."""
    return _capi.as_dict(_capi.read("berm.device_info", _capi.library().berm_device_info_read,
                                    _capi.DeviceInfo, device))


def tags(device: int = 0) -> Dict[str, Dict[str, Dict[str, int]]]:
    """What every tag has on a device: name -> blocks, requested_bytes and allocated_bytes, each with
    current, total_up (all requests) and total_down (all frees). Raises BermError (device)."""
    library, found = _capi.library(), {}
    for index in itertools.count():
        name = library.berm_tag_name(index)
        if name is None:
            return found
        stats = _capi.as_dict(_capi.read("berm.tags", library.berm_tag_stats_read, _capi.TagStats,
                                         device, name))
        del stats["device"]
        found[name.decode()] = stats


def stats(device: int = 0) -> Dict[str, Any]:
    """The figures of a device, as berm_stats_t of berm_introspect.h has them; bytes and counts.
    requested_bytes, allocated_bytes, active_bytes, reserved_bytes and blocks have current, peak,
    total_up and total_down; limit_bytes is None where there is none; "tags" is as tags(). A device
    that was not used has zeros. Raises BermError (no such device)."""
    found = _capi.as_dict(_capi.read("berm.stats", _capi.library().berm_stats_read, _capi.Stats,
                                     device))
    if found["limit_bytes"] == NO_LIMIT:
        found["limit_bytes"] = None
    found["tags"] = tags(device)
    return found


def peaks_reset(device: int = 0) -> None:
    """Sets every peak of a device to what is current. Raises BermError (device)."""
    _capi.check("berm.peaks_reset", _capi.library().berm_stats_peaks_reset(device))


def largest_free(device: int = 0, stream: int = 0) -> int:
    """The bytes of the largest request that the stream (its handle; 0 is the legacy default stream)
    can be served without a memory call to the driver. Raises BermError."""
    size = ctypes.c_uint64()
    _capi.check("berm.largest_free", _capi.library().berm_largest_free_read(
        device, stream, ctypes.byref(size)))
    return size.value


def largest_obtainable(device: int = 0, stream: int = 0) -> int:
    """The same when berm may wait, move pages, trim, and grow to the limit. Starts berm, and opens
    the device. Raises BermError."""
    size = ctypes.c_uint64()
    _capi.check("berm.largest_obtainable", _capi.library().berm_largest_obtainable_read(
        device, stream, ctypes.byref(size)))
    return size.value


def trim(device: int = 0, keep_bytes: int = 0) -> int:
    """Gives cached memory back to the driver until at most keep_bytes of it remain; returns the
    bytes that went. Waits for streams that use freed memory. Raises BermError."""
    released = ctypes.c_uint64()
    _capi.check("berm.trim", _capi.library().berm_trim(device, keep_bytes, ctypes.byref(released)))
    return released.value


def limit(device: int, limit_bytes: Optional[int]) -> None:
    """The most bytes that berm may hold of a device; None: no limit. Raises BermError."""
    most = NO_LIMIT if limit_bytes is None else limit_bytes
    if not 0 <= most <= NO_LIMIT:
        raise BermError(f"limit_bytes={limit_bytes}: 0 to 2**64 - 1, or None")
    _capi.check("berm.limit", _capi.library().berm_limit_set(device, most))


def snapshot(path: Optional["os.PathLike[str]"] = None) -> Dict[str, Any]:
    """The state of all devices, as docs/snapshot.schema.json describes it: options, statistics,
    pools, segments, blocks, handles. With a path it is written there as well, as JSON.
    Stops all use of berm meanwhile. Raises BermError, OSError."""
    parts: List[bytes] = []

    @_capi.WRITE
    def write(_, text, length):
        parts.append(ctypes.string_at(text, length))

    _capi.check("berm.snapshot", _capi.library().berm_snapshot_write(write, None))
    text = b"".join(parts)
    if path is not None:
        with open(path, "wb") as file:
            file.write(text)
    return json.loads(text)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:12.1f} MiB"


def report(device: int = 0) -> str:
    """Where a device's memory is, as text: what berm holds and what of it is free, the limit, the
    largest free block of the default stream, and what each tag has. Raises BermError."""
    found = stats(device)
    current = {name: found[f"{name}_bytes"]["current"]
               for name in ("requested", "allocated", "active", "reserved")}
    lines = [f"berm {version()}, GPU {device}",
             f"  reserved       {_mib(current['reserved'])}  peak "
             f"{_mib(found['reserved_bytes']['peak']).strip()}",
             f"  active         {_mib(current['active'])}",
             f"  allocated      {_mib(current['allocated'])}  in {found['blocks']['current']} blocks",
             f"  requested      {_mib(current['requested'])}",
             f"  cached         {_mib(found['cached_bytes'])}",
             f"  largest free   {_mib(largest_free(device))}"]
    if found["limit_bytes"] is not None:
        lines.append(f"  limit          {_mib(found['limit_bytes'])}")
    tagged = 0
    for name, tag in found["tags"].items():
        tagged += tag["requested_bytes"]["current"]
        lines.append(f"  tag {name:<10} {_mib(tag['requested_bytes']['current'])}  in "
                     f"{tag['blocks']['current']} blocks of {tag['blocks']['total_up']} requests")
    if found["tags"]:
        lines.append(f"  no tag         {_mib(max(current['requested'] - tagged, 0))}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """While it is open, what the calling thread allocates has the tag `name` (1 to 47 bytes of
    UTF-8): stats() counts by it. Tags nest; the innermost counts, and adapters that tag with their
    consumer's name are within it. Raises BermError: a wrong name, or too many."""
    library = _capi.library()
    _capi.check("berm.tag", library.berm_tag_push(_capi.text("berm.tag", name)))
    try:
        yield
    finally:
        _capi.check("berm.tag", library.berm_tag_pop())


class Pool:
    """A pool of the caller's on one device: memory apart from the default pool's.

        with berm.Pool(device=0) as pool:   # what this thread allocates goes there
            ...
        pool.release()                      # what is live stays valid

    device  ordinal
    traits  names: "private" (its memory never serves others before the release), "exportable",
            "pinned", "plain", "rdma", "use_on_oom", "no_split"; berm.h says what they mean

    Opening it again continues it. Requests that name no stream are not routed: Numba's are such.
    Raises BermError: an unknown trait, or one that the device does not have. Not to be used by two
    threads at once."""

    def __init__(self, device: int = 0, traits: "tuple[str, ...]" = ()):
        unknown = [name for name in traits if name not in _TRAITS]
        if unknown:
            raise BermError(f"no trait {unknown[0]!r} of pools: {', '.join(_TRAITS)}")
        self.device = device
        self._id = _capi.PoolId(_POOL_HIGH << 16, next(_pool_numbers))
        options = _capi.sized(_capi.PoolOptions)
        options.traits = sum(_TRAITS[name] for name in traits)
        _capi.check("berm.Pool", _capi.library().berm_pool_create(device, self._id,
                                                                  ctypes.byref(options)))
        self._is_released = False
        self._opened = 0

    def __enter__(self) -> "Pool":
        if self._is_released:
            raise BermError("berm.Pool: it was released")
        native = _capi.companion("python")
        native.berm_python_thread.restype = ctypes.c_ssize_t
        _capi.check("berm.Pool", _capi.library().berm_pool_route_begin(
            self.device, self._id, _capi.address(native.berm_python_route_thread),
            native.berm_python_thread()))
        self._opened += 1
        return self

    def __exit__(self, *_) -> None:
        library = _capi.library()
        self._opened -= 1
        _capi.check("berm.Pool", library.berm_pool_route_end(self.device, self._id))
        # The use that the route has added.
        _capi.check("berm.Pool", library.berm_pool_release(self.device, self._id))

    def stats(self) -> Dict[str, int]:
        """blocks, requested_bytes, allocated_bytes, awaited_bytes, reserved_bytes and so on.
        Raises BermError."""
        return _capi.as_dict(_capi.read("berm.Pool.stats", _capi.library().berm_pool_stats_read,
                                        _capi.PoolStats, self.device, self._id))

    def release(self) -> None:
        """Ends the pool: what is free in it goes back, what is live when it is freed. A second call
        does nothing. Raises BermError: it is open."""
        if self._opened:
            raise BermError("berm.Pool.release: it is open")
        if not self._is_released:
            self._is_released = True
            _capi.check("berm.Pool.release", _capi.library().berm_pool_release(self.device,
                                                                               self._id))
