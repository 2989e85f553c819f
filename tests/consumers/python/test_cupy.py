# SPDX-License-Identifier: Apache-2.0
"""Real CuPy arrays in berm's memory: no pool of CuPy's is on top, CuPy's current stream is the
block's, and a request that fails is CuPy's own error."""
import gc

import consumer_test

PACKAGES = ("cupy", "cupy_backends")
DRIVER_ALLOCATIONS = ("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync")


def start():
    berm = consumer_test.load(*PACKAGES)
    import berm.cupy
    import cupy
    return berm, cupy


def streams_of(berm):
    """Those that have a live block."""
    return {pool["stream"] for device in berm.snapshot()["devices"] for pool in device["pools"]
            for segment in pool["segments"] for one in segment["ranges"] if one["state"] == "live"}


def arrays():
    import numpy
    berm, cupy = start()
    berm.cupy.install()
    by_driver = consumer_test.calls(*DRIVER_ALLOCATIONS)
    a = cupy.asarray(numpy.arange(1000, dtype="f"))
    assert consumer_test.counted(berm, "cupy") == (1, 4000, 0, 1), berm.tags()
    b = cupy.empty((1000, 1000), "f")
    c, d = a + a, cupy.dot(b, b)
    e = cupy.fft.fft(a)
    assert float(b.sum()) == 0 and cupy.asnumpy(c).shape == (1000,)
    view = b[10:20]
    del b
    assert berm.tags()["cupy"]["requested_bytes"]["current"] >= 4000000, "a view keeps the array"
    assert cupy.get_default_memory_pool().total_bytes() == 0, "CuPy's pool has nothing"
    assert by_driver == consumer_test.calls(*DRIVER_ALLOCATIONS), "nothing goes past berm"
    consumer_test.no_real_libraries()
    del a, c, d, e, view
    consumer_test.finish(berm, "cupy-cuda13x", "cupy", "arrays by CFunctionAllocator", least=6)


def streams():
    berm, cupy = start()
    berm.cupy.install()
    one, other = cupy.cuda.Stream(), cupy.cuda.Stream()
    with one:
        a = cupy.empty(1 << 20, "u1")
        with other:
            b = cupy.empty(1 << 20, "u1")
    c = cupy.empty(1 << 20, "u1")
    assert streams_of(berm) == {hex(one.ptr), hex(other.ptr), "0x0"}, streams_of(berm)
    where = a.data.ptr
    with one:
        del a
        gc.collect()
        again = cupy.empty(1 << 20, "u1")
        assert again.data.ptr == where, "freed and taken in the order of one stream"
    stats = berm.stats()
    assert stats["active_bytes"] == stats["allocated_bytes"], "which waits for nothing"
    with other:
        del again
        gc.collect()
    stats = berm.stats()
    assert stats["active_bytes"]["current"] == stats["allocated_bytes"]["current"] + (1 << 20), \
        "freed while another stream was current, it waits for that one"
    del b, c
    consumer_test.finish(berm, "cupy-cuda13x", "cupy", "arrays on three streams", least=4)


def out_of_memory():
    berm, cupy = start()
    berm.cupy.install()
    berm.limit(0, 64 << 20)
    kept = cupy.empty(32 << 20, "u1")
    try:
        cupy.empty(1 << 30, "u1")
    except cupy.cuda.memory.OutOfMemoryError as error:
        assert "1,073,741,824 bytes" in str(error) and "limit set to: 67,108,864" in str(error), error
    else:
        raise AssertionError("more than the limit was given")
    assert cupy.empty(0).nbytes == 0 and berm.stats()["out_of_memory"] == 1
    del kept
    consumer_test.finish(berm, "cupy-cuda13x", "cupy", "a request beyond the limit is CuPy's error")


def one_thread_only():
    """berm.cupy.using(): elsewhere CuPy's own pool serves."""
    berm, cupy = start()
    with berm.cupy.using():
        a = cupy.empty(1000, "u1")
    b = cupy.empty(1000, "u1")
    assert consumer_test.counted(berm, "cupy")[0] == 1
    assert cupy.get_default_memory_pool().used_bytes() > 0
    del a, b
    consumer_test.finish(berm, "cupy-cuda13x", "cupy", "using()")


def pools_and_tags():
    berm, cupy = start()
    berm.cupy.install()
    with berm.Pool(traits=("use_on_oom",)) as pool:
        a = cupy.empty(3 << 20, "u1")
        assert pool.stats()["blocks"] == 1 and pool.stats()["requested_bytes"] == 3 << 20
    b = cupy.empty(3 << 20, "u1")
    assert pool.stats()["blocks"] == 1, "the route has ended"
    with pool:
        c = cupy.empty(1 << 20, "u1")
        assert pool.stats()["blocks"] == 2
        try:
            pool.release()
        except berm.BermError:
            pass
        else:
            raise AssertionError("it was open")
    pool.release()
    pool.release()
    with berm.tag("outer"):
        d = cupy.empty(100, "u1")
    assert "outer" in berm.tags() and berm.tags()["outer"]["blocks"]["total_up"] == 0, \
        "the consumer's own tag is the inner one"
    del a, b, c, d
    consumer_test.finish(berm, "cupy-cuda13x", "cupy", "pools by berm.Pool", least=4)


consumer_test.run({arrays: {}, streams: {}, out_of_memory: {}, one_thread_only: {}, pools_and_tags: {}})
