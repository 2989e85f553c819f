# SPDX-License-Identifier: Apache-2.0
"""RMM's real Python package, with berm as its resource: run by test_rmm_python.sh on the simulated
device. Memory is asked of the resource itself: RMM's buffers ask a CUDA runtime that is linked into
librmm, and takes no simulated driver.

usage: python.py SIMCUDA"""
import ctypes
import pathlib
import sys

driver = ctypes.CDLL(str(pathlib.Path(sys.argv[1]) / "libcuda.so.1"), ctypes.RTLD_GLOBAL)

import rmm.mr  # noqa: E402
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream  # noqa: E402

import berm.rmm  # noqa: E402

_STATS_BYTES = range(560, 2048, 8)  # sizeof(berm_stats_t), which grows at its end


class OwnStream:
    """A stream of another library's, by the protocol that RMM takes."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def berm_blocks():
    """Of libberm: (live blocks, allocated so far, freed so far, bytes so far)."""
    from berm import _lib
    library = ctypes.CDLL(str(_lib.library()))
    for size in _STATS_BYTES:
        stats = (ctypes.c_uint64 * (size // 8))(size)
        if library.berm_stats_read(0, stats) == 0:
            return stats[18], stats[20], stats[21], stats[4]
    raise AssertionError("berm_stats_read takes no size that is known here")


def stream_make():
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return Stream(OwnStream(stream.value))


def main():
    own = stream_make()
    resource = berm.rmm.resource()
    assert isinstance(resource, rmm.mr.CallbackMemoryResource)
    taken = [(resource.allocate(size, stream), size, stream)
             for size in (1, 1000, 3 << 20) for stream in (DEFAULT_STREAM, own)]
    assert len({addr for addr, *_ in taken}) == 6 and all(addr % 256 == 0 for addr, *_ in taken)
    assert berm_blocks()[0] == 6
    for addr, size, stream in taken:
        resource.deallocate(addr, size, stream)
    again = resource.allocate(3 << 20, own)
    assert again == taken[-1][0], "a stream's memory serves it at once"
    resource.deallocate(again, 3 << 20, own)
    try:
        resource.allocate(1 << 40, own)
        raise AssertionError("a terabyte was to be had")
    except MemoryError as error:
        assert "wanted on device 0" in str(error) or "std::bad_alloc" in str(error), error
    # What RMM puts around a resource takes this one.
    limiting = rmm.mr.StatisticsResourceAdaptor(resource)
    addr = limiting.allocate(5000, own)
    assert limiting.allocation_counts.current_bytes == 5000 and berm_blocks()[0] == 1
    limiting.deallocate(addr, 5000, own)
    live, up, down, size_bytes = berm_blocks()
    assert live == 0 and up == down == 8, (live, up, down)
    print(f"rmm {rmm.__version__}: {up} allocations of {size_bytes} bytes reached berm, "
          f"{down} frees")


main()
