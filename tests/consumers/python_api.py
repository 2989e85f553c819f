# SPDX-License-Identifier: Apache-2.0
"""The Python package's own functions, on a simulated device of 1 GiB that LD_LIBRARY_PATH has."""
import ctypes
import json
import os
import pathlib
import tempfile

import berm
from berm import _capi

MIB = 1 << 20


def alloc(size, stream=None):
    addr = ctypes.c_uint64()
    _capi.check("alloc", _capi.library().berm_alloc(size, 0, stream, ctypes.byref(addr)))
    return addr.value


def free(addr, stream=None):
    _capi.check("free", _capi.library().berm_free(addr, 0, stream))


def refused(status, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except berm.BermError as error:
        assert getattr(error, "status", None) == status, (error, error.__dict__)
        assert "\n" not in str(error)
        return
    raise AssertionError(f"{function} was not refused")


def statuses():
    """The numbers that the package knows are the library's."""
    names = {value: name for name, value in vars(_capi).items() if name.startswith("ERROR_")}
    for value, name in names.items():
        assert _capi.library().berm_status_name(value).decode() == f"BERM_{name}", (value, name)


def figures():
    empty = berm.stats()
    assert empty["reserved_bytes"]["current"] == 0 and empty["limit_bytes"] is None
    a, b = alloc(3 * MIB), alloc(700)
    stats = berm.stats()
    assert stats["requested_bytes"] == {"current": 3 * MIB + 700, "peak": 3 * MIB + 700,
                                        "total_up": 3 * MIB + 700, "total_down": 0}, stats
    assert stats["blocks"]["current"] == 2 and stats["driver_calls"]["create"] > 0
    assert stats["ladder"]["mapped"] > 0 and stats["cached_bytes"] < stats["reserved_bytes"]["current"]
    assert 0 < berm.largest_free() < berm.largest_obtainable() <= 1024 * MIB
    info = berm.device_info()
    assert info["memory_bytes"] == 1024 * MIB and info["is_simulated"] == 1 and info["name"]
    assert berm.device_count() == 1
    free(b)
    berm.peaks_reset()
    assert berm.stats()["requested_bytes"]["peak"] == 3 * MIB
    free(a)
    assert berm.trim() > 0 and berm.stats()["reserved_bytes"]["current"] == 0
    refused("BERM_ERROR_DEVICE", berm.stats, 64)
    refused("BERM_ERROR_DEVICE", berm.device_info, 7)
    refused("BERM_ERROR_STATE", berm.start, "headroom:5")


def limits():
    berm.limit(0, 16 * MIB)
    assert berm.stats()["limit_bytes"] == 16 * MIB
    refused("BERM_ERROR_LIMIT", alloc, 64 * MIB)
    berm.limit(0, None)
    assert berm.stats()["limit_bytes"] is None
    refused(None, berm.limit, 0, -1)


def tags():
    with berm.tag("outer"):
        a = alloc(1000)
        with berm.tag("größer"):
            b = alloc(2 * MIB)
    c = alloc(500)
    found = berm.tags()
    assert list(found) == ["outer", "größer"]
    assert found["größer"]["requested_bytes"]["current"] == 2 * MIB
    assert berm.stats()["tags"] == found and "tag outer" in berm.report()
    for addr in (a, b, c):
        free(addr)
    assert berm.tags()["outer"]["blocks"] == {"current": 0, "total_up": 1, "total_down": 1}
    for wrong in ("", "x" * 48, "a\nb"):
        refused("BERM_ERROR_ARGUMENT", berm.tag(wrong).__enter__)
    try:
        with berm.tag("outer"):
            raise KeyError
    except KeyError:
        pass
    refused("BERM_ERROR_STATE", _capi.check, "pop", _capi.library().berm_tag_pop())


def snapshots():
    a = alloc(5 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "berm.json")
        found = berm.snapshot(path)
        assert json.loads(path.read_text()) == found
    device = found["devices"][0]
    assert device["statistics"]["requested_bytes"]["current"] == 5 * MIB
    report = berm.report()
    assert "5.0 MiB  in 1 blocks" in report, report
    free(a)


def pools():
    first, second = berm.Pool(), berm.Pool(traits=("private",))
    with first, second:
        a = alloc(2 * MIB)  # the newest route wins
        assert (first.stats()["blocks"], second.stats()["blocks"]) == (0, 1)
    with first:
        b = alloc(2 * MIB)
        c = alloc(2 * MIB, ctypes.c_void_p(-1))  # names no stream
    assert first.stats()["blocks"] == 1 and first.stats()["uses"] == 1
    for addr in (a, b, c):
        free(addr)
    for pool in (first, second):
        pool.release()
    refused("BERM_ERROR_POOL_UNKNOWN", first.stats)
    refused(None, first.__enter__)
    refused(None, berm.Pool, 0, ("soft",))
    refused("BERM_ERROR_ARGUMENT", berm.Pool, 0, ("private", "use_on_oom"))


def wrong_values():
    """What C cannot hold is refused, not cut off; what is no number or text likewise."""
    for device in (1 << 32, 1 << 80, -(1 << 31) - 1, 0.0, "0", None, object()):
        for function in (berm.stats, berm.device_info, berm.trim, berm.largest_free, berm.tags,
                         berm.largest_obtainable, berm.peaks_reset, berm.report, berm.Pool):
            if function is not berm.tags or device is not None:
                refused(None, function, device)
    for size in (-1, 1 << 64, 1.5):
        refused(None, berm.trim, 0, size)
    for name in (None, 5, b"x", "a\0b", "\udcff"):
        refused(None, berm.tag(name).__enter__)
        refused(None, berm.start, name)


def end():
    a = alloc(100)
    assert berm.shutdown() == 1
    refused("BERM_ERROR_SHUTDOWN", berm.stats)
    assert a and _capi.library().berm_free(a, 0, None) == _capi.ERROR_SHUTDOWN
    berm.start("headroom:5")
    child = os.fork()
    if child == 0:
        try:
            refused("BERM_ERROR_FORKED", berm.stats)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert berm.shutdown() == 0


assert {name for name in berm.__all__ if not getattr(berm, name).__doc__} == set()
TESTS = (statuses, figures, limits, tags, snapshots, pools, wrong_values, end)
for test in TESTS:
    test()
print(f"{len(TESTS)} tests of the package, berm {berm.version()}")
