# SPDX-License-Identifier: Apache-2.0
"""berm as CuPy's memory.

    import berm.cupy
    berm.cupy.install()

Imports cupy. Memory is allocated and freed by C functions of libberm_cupy.so, in the order of CuPy's
current stream; no pool of CuPy's is put on top. docs/adapters/cupy.md."""
import contextlib
import ctypes
from typing import Callable, Iterator

import cupy
from cupy.cuda.memory import OutOfMemoryError
from cupy_backends.cuda import stream as _cupy_stream

from berm import _capi, _memory

BermError = _capi.BermError
TAG = "cupy"


class _Parameter(ctypes.Structure):  # berm_cupy_t
    _fields_ = [("stream", ctypes.c_void_p)]


_kept = []  # what CuPy has addresses of, for the life of the process
_allocator = None


def _stream_function() -> int:
    """The address of CuPy's own function that gives a device's current stream."""
    capsule = getattr(_cupy_stream, "__pyx_capi__", {}).get("get_stream_ptr")
    if capsule is None:
        raise BermError(f"CuPy {cupy.__version__} does not say which stream is current to C code: "
                        "13 and newer do")
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name = get_name(capsule)
    if name != b"intptr_t (int)":
        raise BermError(f"CuPy {cupy.__version__} has its get_stream_ptr as {name.decode()}, not as "
                        "intptr_t (int)")
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(capsule, name)


def allocator() -> Callable[[int], "cupy.cuda.MemoryPointer"]:
    """A function for cupy.cuda.set_allocator and using_allocator: takes a number of bytes and gives
    a MemoryPointer. It raises CuPy's OutOfMemoryError where berm has no memory.
    Raises BermError: libberm is not found, or this CuPy is too old."""
    global _allocator
    if _allocator is not None:
        return _allocator
    library = _capi.companion("cupy")
    parameter = _Parameter(_stream_function())
    _kept.append(parameter)
    native = cupy.cuda.CFunctionAllocator(
        ctypes.addressof(parameter), _capi.address(library.berm_cupy_malloc),
        _capi.address(library.berm_cupy_free), library)

    def allocate(size: int) -> "cupy.cuda.MemoryPointer":
        pointer = native.malloc(size)
        if pointer.ptr == 0 and size > 0:
            found = _memory.stats(cupy.cuda.runtime.getDevice())
            raise OutOfMemoryError(size, found["reserved_bytes"]["current"],
                                   found["limit_bytes"] or 0)
        return pointer

    _allocator = allocate
    return allocate


def install() -> None:
    """Makes berm the memory of all CuPy arrays made from now on, in every thread. Arrays that live
    already keep theirs. Raises BermError as allocator()."""
    cupy.cuda.set_allocator(allocator())


@contextlib.contextmanager
def using() -> Iterator[None]:
    """The same for the calling thread, while it is open. Raises BermError as allocator()."""
    with cupy.cuda.using_allocator(allocator()):
        yield
