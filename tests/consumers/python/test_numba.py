# SPDX-License-Identifier: Apache-2.0
"""Real numba-cuda with berm as its memory manager: device arrays, views, kernels (which do nothing
here), host arrays that a kernel is given, and IPC handles where the backing has them."""
import ctypes
import multiprocessing
import pickle

import consumer_test

PLUGIN = {"NUMBA_CUDA_MEMORY_MANAGER": "berm.numba"}


def start():
    berm = consumer_test.load()
    from numba import cuda
    return berm, cuda


def arrays():
    import numpy
    berm, cuda = start()
    a = cuda.to_device(numpy.arange(1000, dtype="f"))
    assert type(cuda.current_context().memory_manager).__module__ == "berm.numba"
    assert consumer_test.counted(berm, "numba") == (1, 4000, 0, 1)
    view = a[10:20]
    del a
    assert consumer_test.counted(berm, "numba")[3] == 1, "a view keeps the array"
    b = cuda.device_array((1000, 1000))
    assert b.copy_to_host().shape == (1000, 1000)
    free, total = cuda.current_context().get_memory_info()
    assert total == berm.device_info()["memory_bytes"]
    assert total - free == berm.stats()["active_bytes"]["current"], "what is cached counts as free"
    assert consumer_test.calls("cuMemAlloc_v2", "cuMemAllocAsync") == 0, "nothing goes past berm"
    del b, view
    consumer_test.finish(berm, "numba-cuda", "numba", "device arrays by the EMM plugin", least=2)


def kernels():
    import numpy
    berm, cuda = start()

    @cuda.jit
    def add(values):
        i = cuda.grid(1)
        if i < values.size:
            values[i] += 1

    a = cuda.to_device(numpy.zeros(1000, "f"))
    add[32, 32](a)
    before = consumer_test.counted(berm, "numba")[0]
    add[32, 32](numpy.zeros(1000, "f"))
    cuda.synchronize()
    assert consumer_test.counted(berm, "numba")[0] == before + 1, "the host array's copy is berm's"
    assert consumer_test.calls("cuLaunchKernel", "cuLaunchKernelEx") == 2
    assert consumer_test.calls("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync") == 0
    del a
    consumer_test.finish(berm, "numba-cuda", "numba", "two kernels, one given a host array", least=2)


def out_of_memory():
    berm, cuda = start()
    from numba.cuda.cudadrv.driver import CudaAPIError
    a = cuda.device_array(1000)
    for size in (1 << 40, 1 << 62, (1 << 63) - 1):  # of the device, and of all there is
        try:
            cuda.device_array(size, "u1")
        except CudaAPIError as error:
            assert error.code == 2, error
        else:
            raise AssertionError("more than the device has was given")
    del a
    consumer_test.finish(berm, "numba-cuda", "numba", "a request beyond the device is Numba's error")


def second_device():
    berm, cuda = start()
    a = cuda.device_array(1000, "u1")
    cuda.select_device(1)
    b = cuda.device_array(3000, "u1")
    assert [consumer_test.counted(berm, "numba", device)[1] for device in (0, 1)] == [1000, 3000]
    del a, b
    consumer_test.finish(berm, "numba-cuda", "numba", "an array on the first of two GPUs")
    consumer_test.finish(berm, "numba-cuda", "numba", "an array on the second of two GPUs", device=1)


def _reader(pickled, pipe):
    """The other process: reads four values of the array by its handle."""
    consumer_test.load()
    driver = ctypes.CDLL("libcuda.so.1")
    from numba import cuda
    handle = pickle.loads(pickled)
    opened = handle.open(cuda.current_context())
    data = (ctypes.c_float * 4)()
    status = driver.cuMemcpyDtoH_v2(ctypes.byref(data), ctypes.c_uint64(int(opened.handle)),
                                    ctypes.c_size_t(16))
    pipe.send((status, list(data)))
    handle.close()


def ipc():
    import numpy
    berm, cuda = start()
    first = cuda.device_array(1000, "f")
    a = cuda.to_device(numpy.arange(1000, dtype="f"))
    handle = cuda.current_context().memory_manager.get_ipc_handle(a.gpu_data)
    assert handle.offset > 0, "blocks share an allocation of the driver"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_reader, args=(pickle.dumps(handle), theirs))
    process.start()
    assert ours.poll(60), "the other process says nothing"
    status, data = ours.recv()
    process.join()
    assert status == 0 and data == [0, 1, 2, 3], (status, data)
    handle.base = None
    del first, a, handle
    consumer_test.finish(berm, "numba-cuda", "numba", "an array opened by another process", least=2)


def ipc_refused():
    berm, cuda = start()
    a = cuda.device_array(1000)
    try:
        a.get_ipc_handle()
    except berm.BermError as error:
        assert "backing:plain" in str(error), error
    else:
        raise AssertionError("memory that can be moved has no handle")
    del a
    consumer_test.finish(berm, "numba-cuda", "numba", "an IPC handle of mapped memory is refused")


def install():
    berm, cuda = start()
    import berm.numba
    berm.numba.install()
    berm.numba.install()
    a = cuda.device_array(10)
    assert consumer_test.counted(berm, "numba")[3] == 1
    del a
    consumer_test.finish(berm, "numba-cuda", "numba", "berm.numba.install()")


def install_too_late():
    berm, cuda = start()
    cuda.device_array(10)
    import berm.numba
    try:
        berm.numba.install()
    except berm.BermError as error:
        assert "already" in str(error)
    else:
        raise AssertionError("Numba had a context")


if __name__ == "__main__":
    consumer_test.run({arrays: PLUGIN, kernels: PLUGIN, out_of_memory: PLUGIN,
                       ipc: {**PLUGIN, "BERM_CONF": "backing:plain", "SIMCUDA_BACKED": "1"},
                       ipc_refused: PLUGIN, second_device: {**PLUGIN, "SIMCUDA_DEVICES": "2"}, install: {}, install_too_late: {}})
