# SPDX-License-Identifier: Apache-2.0
"""Several consumers in one process: one heap, a tag each, totals that add up, and no cache on top of
berm's."""
import ctypes
import gc

import consumer_test

TAGS = ("numba", "cupy", "onnxruntime")


def totals(berm):
    """That the heap's own figures are the sums of its tags'; returns (requests, bytes) by tag."""
    stats = berm.stats()
    for name in ("blocks", "requested_bytes", "allocated_bytes"):
        for part in ("current", "total_up", "total_down"):
            summed = sum(tag[name][part] for tag in stats["tags"].values())
            assert stats[name][part] == summed, (name, part, stats[name][part], summed)
    return {name: (tag["blocks"]["current"], tag["requested_bytes"]["current"])
            for name, tag in stats["tags"].items()}


def say(berm, what):
    gc.collect()
    found = berm.stats()
    parts = [f"{name} {tag['blocks']['total_up']} requests of {tag['requested_bytes']['total_up']} bytes"
             for name, tag in found["tags"].items()]
    assert found["blocks"]["current"] == 0
    assert all(tag["blocks"]["total_up"] == tag["blocks"]["total_down"] > 0
               for tag in found["tags"].values())
    print(f"{what} in one process: {', '.join(parts)}; one heap with {found['blocks']['total_up']} "
          f"requests of {found['requested_bytes']['total_up']} bytes, as many frees, "
          f"{found['reserved_bytes']['peak'] >> 20} MiB reserved at most")


def numba_and_cupy():
    berm = consumer_test.load("cupy", "cupy_backends", but=("libnvrtc",))
    import berm.cupy
    import cupy
    from numba import cuda
    berm.cupy.install()
    a, b = cuda.device_array(3 << 20, "u1"), cupy.empty(5 << 20, "u1")
    assert totals(berm) == {"numba": (1, 3 << 20), "cupy": (1, 5 << 20)}
    shared = cupy.asarray(a)  # the same memory, by __cuda_array_interface__
    assert shared.data.ptr == a.gpu_data.device_ctypes_pointer.value
    assert totals(berm)["cupy"] == (1, 5 << 20), "nothing was copied"
    reserved = berm.stats()["reserved_bytes"]["current"]
    del a, b, shared
    gc.collect()
    assert totals(berm) == {"numba": (0, 0), "cupy": (0, 0)}
    b = cupy.empty(4 << 20, "u1")
    assert berm.stats()["reserved_bytes"]["current"] <= reserved, "what one has freed serves the other"
    assert cupy.get_default_memory_pool().total_bytes() == 0
    assert consumer_test.calls("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync") == 0
    del b
    say(berm, "Numba and CuPy")


def onnxruntime_and_c():
    berm = consumer_test.load("onnxruntime")
    import berm.ort
    import onnxruntime
    from berm import _capi
    from small_model import model
    session = onnxruntime.InferenceSession(
        model(), providers=[("CUDAExecutionProvider", berm.ort.provider_options())])
    before = totals(berm)["onnxruntime"]
    with berm.tag("mine"):
        addr = ctypes.c_uint64()
        _capi.check("alloc", _capi.library().berm_alloc(7 << 20, 0, None, ctypes.byref(addr)))
    assert totals(berm) == {"onnxruntime": before, "mine": (1, 7 << 20)}
    import numpy
    session.run(None, {"x": numpy.zeros((3, 4, 16, 16), "f")})
    assert totals(berm)["mine"] == (1, 7 << 20)
    _capi.check("free", _capi.library().berm_free(addr, 0, None))
    del session
    gc.collect()
    assert totals(berm) == {"onnxruntime": (0, 0), "mine": (0, 0)}
    say(berm, "ONNX Runtime and the C interface")


def all_three():
    berm = consumer_test.load("onnxruntime", "cupy", "cupy_backends", but=("libnvrtc",))
    import berm.cupy
    import berm.ort
    import cupy
    import numpy
    import onnxruntime
    from numba import cuda
    from small_model import model
    berm.cupy.install()
    session = onnxruntime.InferenceSession(
        model(), providers=[("CUDAExecutionProvider", berm.ort.provider_options())])
    a, b = cuda.device_array(3 << 20, "u1"), cupy.empty(5 << 20, "u1")
    session.run(None, {"x": numpy.zeros((9, 4, 16, 16), "f")})
    found = totals(berm)
    assert set(found) == set(TAGS) and found["numba"] == (1, 3 << 20) and found["cupy"] == (1, 5 << 20)
    report = berm.report()
    assert all(f"tag {name}" in report for name in TAGS), report
    del session, a, b
    gc.collect()
    say(berm, "ONNX Runtime, Numba and CuPy")


consumer_test.run({numba_and_cupy: {"NUMBA_CUDA_MEMORY_MANAGER": "berm.numba"}, onnxruntime_and_c: {},
                   all_three: {"NUMBA_CUDA_MEMORY_MANAGER": "berm.numba"}})
