# SPDX-License-Identifier: Apache-2.0
"""Where the values of device tensors are, for berm._values: on the host, beside the device (Mirror),
or in the device's own memory, where that has contents (Memory)."""
import ctypes
import threading

_FLOAT_BYTES = 64 << 10
_OTHER_BYTES = 1 << 20  # of integers and booleans: tokens, masks and indices decide what a program does
_SWEEP = 8192


class Unreachable(Exception):
    """The tensor has no storage of its own (a wrapper, a fake one)."""


def _storage(tensor):
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError) as error:
        raise Unreachable from error


def view(torch, storage, tensor):
    """A CPU tensor over `storage` with the shape of `tensor`."""
    made = torch.empty(0, dtype=tensor.dtype, device="cpu")
    made.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor.is_conj():
        made = made.conj()
    return torch._neg_view(made) if tensor.is_neg() else made


class _Entry:
    """The values of one storage. Invariant: `weak` is a weak reference that is given back by the
    table only, so the number of a storage (its key) is not another's while the entry is there."""
    __slots__ = ("weak", "nbytes", "addr", "bytes", "is_known")

    def __init__(self, storage, is_known):
        self.weak = storage._weak_ref()
        self.nbytes = storage.nbytes()
        self.addr = storage.data_ptr()
        self.bytes = None  # a CPU storage; None: zeros
        self.is_known = is_known


class Mirror:
    """Values of small tensors, by storage. What is not known reads as zeros. Any thread."""

    def __init__(self, torch):
        self._torch = torch
        self._entries = {}
        self._by_addr = {}
        self._lock = threading.Lock()
        self._made = 0

    def holds(self, tensor):
        """Whether the tensor is small enough to be kept."""
        dtype = tensor.dtype
        limit = _FLOAT_BYTES if dtype.is_floating_point or dtype.is_complex else _OTHER_BYTES
        if tensor.nbytes > limit and 0 not in tensor.stride():
            return False
        return _storage(tensor).nbytes() <= limit

    def fresh(self, tensor, is_known):
        """A storage that an operator made."""
        self._entry(_storage(tensor)).is_known = is_known

    def _entry(self, storage):
        key, nbytes = storage._cdata, storage.nbytes()
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(storage, False)
            with self._lock:
                self._entries[key] = entry
                self._by_addr[entry.addr] = entry
                self._made += 1
                if self._made >= _SWEEP:
                    self._sweep()
        elif entry.nbytes != nbytes or entry.addr != storage.data_ptr():
            with self._lock:  # resized: what it held is gone
                entry.nbytes, entry.addr = nbytes, storage.data_ptr()
                entry.bytes, entry.is_known = None, False
                self._by_addr[entry.addr] = entry
        return entry

    def _sweep(self):
        """Drops the entries of dead storages; the lock is held."""
        storage = self._torch.UntypedStorage
        self._made = 0
        for key, entry in list(self._entries.items()):
            if storage._expired(entry.weak):
                del self._entries[key]
                if self._by_addr.get(entry.addr) is entry:
                    del self._by_addr[entry.addr]
                storage._free_weak_ref(entry.weak)

    def _bytes(self, entry):
        if entry.bytes is None:
            entry.bytes = self._torch.zeros(
                entry.nbytes, dtype=self._torch.uint8, device="cpu").untyped_storage()
        return entry.bytes

    def host(self, tensor):
        """The CPU tensor that has the values of `tensor`; writing it writes them."""
        return view(self._torch, self._bytes(self._entry(_storage(tensor))), tensor)

    def is_known(self, tensor):
        return self._entry(_storage(tensor)).is_known

    def wrote(self, tensor, is_known, is_whole):
        """`tensor` was written; `is_whole`: all of what it is, without reading it."""
        entry = self._entry(_storage(tensor))
        if is_whole and tensor.numel() * tensor.element_size() >= entry.nbytes:
            entry.is_known = is_known
        else:
            entry.is_known = entry.is_known and is_known

    # --- by address: what collectives read and write -------------------------------------------

    def _at(self, addr, nbytes):
        """The entry of those bytes, and where they are in it; None where there is none."""
        with self._lock:
            entry = self._by_addr.get(addr)
            candidates = [entry] if entry is not None else list(self._by_addr.values())
        expired = self._torch.UntypedStorage._expired
        for entry in candidates:
            if entry.addr <= addr and addr + nbytes <= entry.addr + entry.nbytes and \
                    not expired(entry.weak):
                return entry, addr - entry.addr
        return None, 0

    def read_bytes(self, addr, data, nbytes):
        """Copies known values to host memory at `data`; False: not known."""
        entry, offset = self._at(addr, nbytes)
        if entry is None or not entry.is_known:
            return False
        ctypes.memmove(data, self._bytes(entry).data_ptr() + offset, nbytes)
        return True

    def write_bytes(self, addr, data, nbytes):
        """Takes values from host memory at `data`; None: they are unknown from now on."""
        entry, offset = self._at(addr, nbytes)
        if entry is None:
            return
        if data is None:
            entry.is_known = False
            return
        ctypes.memmove(self._bytes(entry).data_ptr() + offset, data, nbytes)
        if nbytes == entry.nbytes:
            entry.is_known = True


class Memory:
    """Values in device memory itself (SIMCUDA_BACKED): everything is held, and known but for what
    an operator without a CPU counterpart made."""

    def __init__(self, torch):
        self._torch = torch
        self._make = torch._C._construct_storage_from_data_pointer
        self._cpu = torch.device("cpu")

    def holds(self, tensor):
        return _storage(tensor).data_ptr() != 0 or tensor.numel() == 0

    def fresh(self, tensor, is_known):
        """Nothing to keep: the memory has them."""

    def host(self, tensor):
        storage = _storage(tensor)
        addr, nbytes = storage.data_ptr(), storage.nbytes()
        if addr == 0 or nbytes == 0:
            return self._torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype,
                                             device="cpu")
        return view(self._torch, self._make(addr, self._cpu, nbytes), tensor)

    def is_known(self, tensor):
        return True

    def wrote(self, tensor, is_known, is_whole):
        """As fresh."""
