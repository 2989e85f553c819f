# SPDX-License-Identifier: Apache-2.0
"""Blocks of berm's for adapters that consumers call from Python: plain ctypes, no copy of any
state. Nothing is loaded before the first Blocks is made."""
import ctypes

from berm import _lib

# A consumer that names no stream; include/berm.h.
NO_STREAM = 2**64 - 1
RESIZABLE = 128
OK = 0
POOL_UNKNOWN = "BERM_ERROR_POOL_UNKNOWN"


class _PoolId(ctypes.Structure):
    _fields_ = [("high", ctypes.c_uint64), ("low", ctypes.c_uint64)]


class _PoolOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("traits", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("source", ctypes.c_void_p * 4)]


class Blocks:
    """Requests for one consumer.

    device: the ordinal, or None: the device that is current in the thread that asks.
    pool: two ints, the id of a pool made with berm_pool_create; (0, 0) is the default pool.
    quiet: requests that fail are not reported."""

    def __init__(self, device=None, pool=(0, 0), quiet=False):
        self._device, self._pool, self._quiet = device, _PoolId(*pool), quiet
        self._library = library = ctypes.CDLL(str(_lib.library()))
        self._alloc = library.berm_alloc_from
        self._alloc.argtypes = [_PoolId, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int,
                                ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]
        self._free = library.berm_free
        self._free.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p]
        self._grow = library.berm_block_grow
        self._grow.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        self._enable = library.berm_report_enable
        self._enable.argtypes, self._enable.restype = [ctypes.c_bool], ctypes.c_bool
        self._create = library.berm_pool_create
        self._create.argtypes = [ctypes.c_int, _PoolId, ctypes.POINTER(_PoolOptions)]
        self._release = library.berm_pool_release
        self._release.argtypes = [ctypes.c_int, _PoolId]
        self._message = library.berm_error_message
        self._message.restype = ctypes.c_char_p
        self._status_name = library.berm_status_name
        self._status_name.restype = ctypes.c_char_p
        self._made = []  # devices on which there is the pool of blocks that grow
        # What is looked up here is there while the interpreter shuts down, when modules are not.
        self._number, self._reference = ctypes.c_uint64, ctypes.byref

    def message(self):
        """berm's line about this thread's last failure."""
        return self._message().decode()

    def current_device(self):
        """The ordinal that requests go to now."""
        if self._device is not None:
            return self._device
        device = ctypes.c_int(0)
        driver = ctypes.CDLL("libcuda.so.1")
        return device.value if driver.cuCtxGetDevice(ctypes.byref(device)) == 0 else 0

    def alloc(self, size_bytes, alignment, stream=NO_STREAM, resizable=False):
        """The address of a block, 0 where there is none, and the status, 0 for success."""
        device = self.current_device()
        was_enabled = self._enable(not self._quiet)
        addr = self._number(0)
        status = self._alloc_resizable(size_bytes, alignment, device, stream, addr) \
            if resizable else None
        if status is None:
            status = self._alloc(self._pool, size_bytes, alignment, device, stream,
                                 self._reference(addr))
        self._enable(was_enabled)
        return addr.value, status

    def _alloc_resizable(self, size_bytes, alignment, device, stream, addr):
        """None: memory of this device cannot grow."""
        pool = _PoolId(0x5452542d67726f77, id(self))
        for _ in range(2):
            status = self._alloc(pool, size_bytes, alignment, device, stream,
                                 self._reference(addr))
            if self._status_name(status).decode() != POOL_UNKNOWN:
                return status
            options = _PoolOptions(ctypes.sizeof(_PoolOptions), RESIZABLE)
            if self._create(device, pool, ctypes.byref(options)) != OK:
                return None
            self._made.append(device)
        return None

    def grow(self, addr, size_bytes):
        """Whether the block has that size now."""
        was_enabled = self._enable(not self._quiet)
        status = self._grow(addr, size_bytes)
        self._enable(was_enabled)
        return status == 0

    def free(self, addr, stream=NO_STREAM):
        """Whether it was a live block."""
        return self._free(addr, -1, stream) == 0

    def close(self):
        """Gives the pool of blocks that grow up; blocks that live stay valid."""
        while self._made:
            self._release(self._made.pop(), _PoolId(0x5452542d67726f77, id(self)))
