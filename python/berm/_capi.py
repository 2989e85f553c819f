# SPDX-License-Identifier: Apache-2.0
"""libberm's C interface, by ctypes: what the package itself calls. Names and meanings are those of
the headers (berm.h, berm_introspect.h, berm_diagnose.h)."""
import ctypes
import functools
import operator

from berm import _lib

BermError = _lib.BermError

STREAM_NONE = -1  # BERM_STREAM_NONE
DEVICE_ANY = -1
OK = 0
ERROR_OUT_OF_DEVICE_MEMORY, ERROR_LIMIT = 10, 11
ERROR_SHUTDOWN, ERROR_FORKED = 19, 20
ERROR_NOT_EXPORTABLE = 27
IPC_HANDLE_BYTES = 64
OVER = (OK, ERROR_SHUTDOWN, ERROR_FORKED)  # of a free: nothing is left to be done

_u64, _u32, _int = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int
_addr, _stream, _text = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p


class Figure(ctypes.Structure):
    _fields_ = [(name, _u64) for name in ("current", "peak", "total_up", "total_down")]


class DriverCalls(ctypes.Structure):
    _fields_ = [(name, _u64) for name in (
        "reserve", "address_free", "create", "release", "map", "set_access", "unmap", "malloc_",
        "free_", "event_record", "event_query", "stream_wait", "synchronize", "other")]


class LadderCounts(ctypes.Structure):
    _fields_ = [(name, _u64) for name in ("caches", "frees", "pins", "mapped", "moved", "released",
                                          "pressure", "waited", "others")]


class Stats(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("device", _int), ("pools", _u32),
        ("requested_bytes", Figure), ("allocated_bytes", Figure), ("active_bytes", Figure),
        ("reserved_bytes", Figure), ("blocks", Figure),
        *((name, _u64) for name in (
            "cached_bytes", "limit_bytes", "granule_bytes", "address_bytes", "mappings",
            "mappings_peak", "moved_bytes", "moves", "host_waits", "retries", "out_of_memory",
            "poisoned_bytes", "host_metadata_bytes")),
        ("driver_calls", DriverCalls),
        *((name, _u64) for name in (
            "exported_bytes", "imports", "imported_bytes", "decay_ticks", "decayed_bytes",
            "pinned_bytes", "plans", "plans_dropped", "planned_requests", "planned_bytes",
            "planned_mappings", "planning_ns")),
        ("ladder", LadderCounts)]


class TagFigure(ctypes.Structure):
    _fields_ = [(name, _u64) for name in ("current", "total_up", "total_down")]


class TagStats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", _int), ("reserved_", _u32),
                ("blocks", TagFigure), ("requested_bytes", TagFigure),
                ("allocated_bytes", TagFigure)]


class PoolId(ctypes.Structure):
    _fields_ = [("high", _u64), ("low", _u64)]


class PoolSource(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("alloc", "free", "done", "context")]


class PoolOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("traits", _u32), ("reserved_", _u32),
                ("source", PoolSource)]


class PoolStats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", _int), ("traits", _u32),
                *((name, _u64) for name in ("uses", "routes", "parts", "blocks", "requested_bytes",
                                            "allocated_bytes", "awaited_bytes", "reserved_bytes"))]


class DeviceInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", _int), ("driver_version", _int),
                ("name", ctypes.c_char * 128),
                *((name, _u64) for name in ("memory_bytes", "free_bytes", "granule_bytes")),
                *((name, _u32) for name in ("has_vmm", "has_ctx_event", "has_rdma",
                                            "is_simulated"))]


class Whatis(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", _int), ("device", _int), ("stream", _stream),
                *((name, _u64) for name in ("block", "offset_bytes", "block_bytes",
                                            "requested_bytes", "allocation_index")),
                ("is_small", _u32), ("is_released", _u32), ("pool", PoolId), ("tag", _text)]


class Price(ctypes.Structure):
    _fields_ = [(name, _u64) for name in ("size_bytes", "pages", "modelled_us", "learned_us")]


class Prices(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t),
                *((name, Price) for name in ("now", "waited", "moved", "trimmed", "grown"))]


class Fit(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("step", _int),
                *((name, _u64) for name in ("missing_bytes", "modelled_us", "learned_us"))]


WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)

_out = ctypes.POINTER
_STATUS = {  # functions that return a status, with their parameters
    "berm_init": (_text,),
    "berm_shutdown": (_out(ctypes.c_size_t),),
    "berm_alloc": (_u64, _int, _stream, _out(_addr)),
    "berm_free": (_addr, _int, _stream),
    "berm_trim": (_int, _u64, _out(_u64)),
    "berm_limit_set": (_int, _u64),
    "berm_option_set": (_text, _text),
    "berm_pool_create": (_int, PoolId, _out(PoolOptions)),
    "berm_pool_release": (_int, PoolId),
    "berm_pool_route_begin": (_int, PoolId, ctypes.c_void_p, ctypes.c_void_p),
    "berm_pool_route_end": (_int, PoolId),
    "berm_pool_stats_read": (_int, PoolId, _out(PoolStats)),
    "berm_tag_push": (_text,),
    "berm_tag_pop": (),
    "berm_tag_stats_read": (_int, _text, _out(TagStats)),
    "berm_stats_read": (_int, _out(Stats)),
    "berm_stats_peaks_reset": (_int,),
    "berm_largest_free_read": (_int, _stream, _out(_u64)),
    "berm_largest_obtainable_read": (_int, _stream, _out(_u64)),
    "berm_quota_set": (_int, _text, _u64),
    "berm_would_fit": (_int, _stream, _out(_u64), ctypes.c_size_t, _out(Fit)),
    "berm_obtainable_read": (_int, _stream, _u64, _out(Prices)),
    "berm_whatis": (_addr, _out(Whatis)),
    "berm_snapshot_write": (WRITE, ctypes.c_void_p),
    "berm_audit": (_out(_int),),
    "berm_device_count": (_out(_int),),
    "berm_device_info_read": (_int, _out(DeviceInfo)),
    "berm_ipc_export": (_addr, _out(ctypes.c_ubyte), _out(_u64)),
}
_TEXT = {"berm_version": (), "berm_error_message": (), "berm_status_name": (_int,),
         "berm_status_text": (_int,), "berm_tag_name": (ctypes.c_size_t,)}


# Whole numbers by the C type that takes them: least, most.
_RANGES = {_int: (-2**31, 2**31 - 1), _u32: (0, 2**32 - 1), _u64: (0, 2**64 - 1),
           ctypes.c_size_t: (0, 2**64 - 1)}


def _taken(name, value, kind):
    """The value as C gets it. ctypes would cut off what a number has too much."""
    if kind not in _RANGES or isinstance(value, kind):
        return value
    least, most = _RANGES[kind]
    try:
        number = operator.index(value)
    except TypeError:
        raise BermError(f"{name}: {value!r} is not a whole number") from None
    if not least <= number <= most:
        raise BermError(f"{name}: {number} is not from {least} to {most}")
    return number


def _taking(name, function, kinds):
    """The function, for arguments that are looked at first."""
    def call(*arguments):
        return function(*(_taken(name, value, kind) for value, kind in zip(arguments, kinds)),
                        *arguments[len(kinds):])
    return call


def text(what, value):
    """A str as C gets it. Raises BermError: it is none, or C would see another."""
    if not isinstance(value, str):
        raise BermError(f"{what}: {value!r} is no str")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise BermError(f"{what}: {value!r}: {error.reason}") from None
    if b"\0" in encoded:
        raise BermError(f"{what}: {value!r} has a null character")
    return encoded


@functools.lru_cache(maxsize=None)
def library():
    """libberm, loaded on first use and never unloaded. Raises BermError where it is not found."""
    path = _lib.library()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise BermError(f"{path} does not load: {error}") from None
    for table, result in ((_STATUS, _int), (_TEXT, _text)):
        for name, parameters in table.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = parameters, result
            setattr(loaded, name, _taking(name, function, parameters))
    return loaded


@functools.lru_cache(maxsize=None)
def companion(name):
    """libberm_NAME.so, an adapter. Loaded after libberm, so that there is one heap."""
    library()
    path = _lib.library(f"libberm_{name}.so")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BermError(f"{path} does not load: {error}") from None


def address(function):
    """The address of a function of a loaded library."""
    return ctypes.cast(function, ctypes.c_void_p).value


def failure(what, status):
    """The exception for a status."""
    name, line = library().berm_status_name(status).decode(), library().berm_error_message().decode()
    text = line or library().berm_status_text(status).decode()
    error = BermError(f"{what}: {name}: {text}")
    error.status = name
    return error


def check(what, status):
    """Raises BermError, with the status's name in `status`, unless it is BERM_OK."""
    if status != OK:
        raise failure(what, status)


def sized(kind):
    """A struct whose first member is its size."""
    made = kind()
    made.size = ctypes.sizeof(kind)
    return made


def read(what, function, kind, *arguments):
    """The struct that a function fills, which it takes as its last argument."""
    made = sized(kind)
    check(what, function(*arguments, ctypes.byref(made)))
    return made


def as_dict(struct):
    """A struct as a dictionary; structs within it too."""
    found = {}
    for name, *_ in struct._fields_:
        if name == "size" or name == "reserved_":
            continue
        value = getattr(struct, name)
        if isinstance(value, ctypes.Structure):
            value = as_dict(value)
        found[name.rstrip("_")] = value.decode() if isinstance(value, bytes) else value
    return found
