# SPDX-License-Identifier: Apache-2.0
"""TensorRT's real Python bindings, with berm as the allocator of a runtime: run by
test_tensorrt_bindings.sh on the simulated device, over the stand-in of nvinfer.cpp.

usage: bindings.py STANDINS SIMCUDA"""
import ctypes
import gc
import pathlib
import sys

standins, simcuda = map(pathlib.Path, sys.argv[1:])
for library in (simcuda / "libcuda.so.1", *sorted(standins.glob("lib*.so.11"))):
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)

import tensorrt_bindings as tensorrt  # noqa: E402

import berm.tensorrt  # noqa: E402

_STATS_BYTES = range(560, 2048, 8)  # sizeof(berm_stats_t), which grows at its end


def berm_blocks():
    """Of libberm: (live blocks, allocated so far, freed so far, bytes so far)."""
    from berm import _lib
    library = ctypes.CDLL(str(_lib.library()))
    for size in _STATS_BYTES:
        stats = (ctypes.c_uint64 * (size // 8))(size)
        if library.berm_stats_read(0, stats) == 0:
            return stats[18], stats[20], stats[21], stats[4]
    raise AssertionError("berm_stats_read takes no size that is known here")


def main():
    calls = {}
    allocator = berm.tensorrt.allocator(tensorrt, device=0, quiet=True)
    block = allocator.allocate(1 << 20, 512, 1)  # resizable
    assert allocator.reallocate(block, 512, 2 << 20) == block
    assert allocator.reallocate(block, 512, 1 << 20) == block, "a smaller size changes nothing"
    assert allocator.reallocate(block, 1 << 60, 3 << 20) == 0, "an alignment that it does not have"
    assert allocator.reallocate(block, 512, 0) == 0
    assert allocator.deallocate(block)
    assert allocator.reallocate(block, 512, 3 << 20) == 0, "a block that was freed"
    for name in ("allocate", "reallocate", "deallocate", "allocate_async", "deallocate_async"):
        def counted(*arguments, _name=name, _call=getattr(allocator, name)):
            calls[_name] = calls.get(_name, 0) + 1
            return _call(*arguments)
        setattr(allocator, name, counted)
    runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR))
    runtime.gpu_allocator = allocator
    for _ in range(3):
        assert runtime.deserialize_cuda_engine(b"engine") is None  # the stand-in makes none
    live, *_ = berm_blocks()
    assert live == 3, f"{live} blocks live, not the weights of three engines"
    del runtime
    gc.collect()
    allocator.close()
    live, up, down, size_bytes = berm_blocks()
    assert live == 0 and up == down, (live, up, down)
    # What TensorRT calls without a stream comes by the methods with one, as the null stream.
    expected = {"allocate_async": 3 * 5, "reallocate": 3 * 33, "deallocate_async": 3 * 3}
    assert calls == expected, calls
    print(f"tensorrt_cu13_bindings {tensorrt.__version__}: "
          f"{', '.join(f'{name} {count}' for name, count in sorted(calls.items()))}; "
          f"{up} allocations of {size_bytes} bytes reached berm, {down} frees")


main()
