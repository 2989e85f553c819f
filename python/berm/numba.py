# SPDX-License-Identifier: Apache-2.0
"""berm as Numba's device memory: an External Memory Management plugin.

    NUMBA_CUDA_MEMORY_MANAGER=berm.numba python program.py

or, before the program uses CUDA, berm.numba.install(). Imports numba.cuda (numba-cuda). Numba names
no stream, so memory has no pending work when it is given, and waits for what is queued on the device
after its free. docs/adapters/numba.md."""
import ctypes
import functools
import weakref

from numba import cuda
from numba.cuda.cudadrv import driver

from berm import _capi, _memory

BermError = _capi.BermError
TAG = b"numba"
# What Numba knows as an error of the driver's: there is not so much memory.
_NO_MEMORY = ("BERM_ERROR_OUT_OF_DEVICE_MEMORY", "BERM_ERROR_LIMIT", "BERM_ERROR_QUOTA",
              "BERM_ERROR_SIZE_TOO_LARGE")


def _alloc(size_bytes: int, device: int) -> int:
    library = _capi.library()
    addr = ctypes.c_uint64()
    is_tagged = library.berm_tag_push(TAG) == _capi.OK
    status = library.berm_alloc(size_bytes, device, _capi.STREAM_NONE, ctypes.byref(addr))
    error = _capi.failure(f"{size_bytes} bytes on GPU {device}", status) if status else None
    if is_tagged:
        library.berm_tag_pop()
    if error is not None and error.status in _NO_MEMORY:
        raise driver.CudaAPIError(driver.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY, str(error))
    if error is not None:
        raise error
    return addr.value


def _free(addr: int) -> None:
    status = _capi.library().berm_free(addr, _capi.DEVICE_ANY, _capi.STREAM_NONE)
    if status not in _capi.OVER:
        raise _capi.failure(f"freeing 0x{addr:x}", status)


def _memory_resource(device: int):
    """berm behind cuda.core's Device.memory_resource, through which Numba copies host arrays that a
    kernel is given."""
    from cuda.core import Buffer, MemoryResource  # pylint: disable=import-outside-toplevel

    class BermMemoryResource(MemoryResource):
        """Device memory of berm's."""
        is_device_accessible, is_host_accessible, is_managed = True, False, False
        device_id = device

        def allocate(self, size, *, stream=None):
            del stream
            return Buffer.from_handle(ptr=_alloc(size, device) if size else 0, size=size, mr=self)

        def deallocate(self, ptr, size, *, stream=None):
            del size, stream
            if int(ptr):
                _free(int(ptr))

    return BermMemoryResource()


class MemoryManager(cuda.HostOnlyCUDAMemoryManager):
    """Numba's interface for memory managers, version 1. Host memory stays Numba's own."""

    @property
    def interface_version(self) -> int:
        return 1

    def _device(self) -> int:
        return int(self.context.device.id)

    def initialize(self) -> None:
        """Called once for each context. Raises BermError: there is no driver or libberm."""
        if self.deallocations.memory_capacity == driver._SizeNotSet:  # as Numba's own does
            self.deallocations.memory_capacity = self.get_memory_info().total
        device = self.context.device
        if hasattr(device, "_dev"):  # of cuda.core
            device._dev.memory_resource = _memory_resource(self._device())

    def memalloc(self, size: int):
        """`size` bytes. Raises CudaAPIError (out of memory), as Numba's own does, or BermError."""
        addr = _alloc(size, self._device())
        return cuda.MemoryPointer(weakref.proxy(self.context), addr, size,
                                  finalizer=functools.partial(_free, addr))

    def get_memory_info(self):
        """(free, total) bytes; what berm has cached counts as free."""
        info = _memory.device_info(self._device())
        cached = _memory.stats(self._device())["cached_bytes"]
        return cuda.MemoryInfo(free=info["free_bytes"] + cached, total=info["memory_bytes"])

    def get_ipc_handle(self, memory):
        """A handle of a block for another process: only of memory that the driver can make handles
        of, all of it with BERM_CONF=backing:plain. Raises BermError otherwise."""
        handle, offset = (ctypes.c_ubyte * _capi.IPC_HANDLE_BYTES)(), ctypes.c_uint64()
        status = _capi.library().berm_ipc_export(int(memory.handle), handle, ctypes.byref(offset))
        if status == _capi.ERROR_NOT_EXPORTABLE:
            raise BermError("IPC handles are of plain memory only: start with "
                            "BERM_CONF=backing:plain")
        _capi.check("get_ipc_handle", status)
        made = driver.binding.CUipcMemHandle()
        ctypes.memmove(made.getPtr(), handle, _capi.IPC_HANDLE_BYTES)
        return cuda.IpcHandle(memory, made, memory.size,
                                self.context.device.get_device_identity(), offset=offset.value)


_numba_memory_manager = MemoryManager  # what NUMBA_CUDA_MEMORY_MANAGER looks for


def install() -> None:
    """Makes berm Numba's memory manager. To be called before CUDA is used in the process.
    Raises BermError: Numba has a context already."""
    if driver._memory_manager not in (None, MemoryManager):
        raise BermError("Numba has used CUDA already, with its own memory: call berm.numba.install() "
                        "first, or set NUMBA_CUDA_MEMORY_MANAGER=berm.numba")
    cuda.set_memory_manager(MemoryManager)
