# SPDX-License-Identifier: Apache-2.0
"""berm as the allocator of TensorRT's Python bindings:

    import berm.tensorrt, tensorrt
    runtime = tensorrt.Runtime(logger)
    runtime.gpu_allocator = berm.tensorrt.allocator()

Every request goes through Python then. Programs in C++ use include/berm_tensorrt.hpp, where none
does. What it does is said there, and in docs/adapters/tensorrt.md."""
from berm import _blocks

_RESIZABLE = 1  # the bit of AllocatorFlag.RESIZABLE


def _stream_of(stream):
    """TensorRT's own methods without a stream pass the null stream on: it counts as none."""
    return int(stream) if stream else _blocks.NO_STREAM


def _address_of(memory):
    """Bindings pass ints, some releases capsules' addresses as None for null."""
    return 0 if memory is None else int(memory)


def _made_class(base):
    """The class over the installed bindings' IGpuAsyncAllocator or IGpuAllocator: all its methods must be
    there, or the bindings cannot call them."""
    no_stream = _blocks.NO_STREAM
    stream_of, address_of = _stream_of, _address_of

    class Allocator(base):
        """Serves TensorRT from berm; see berm.tensorrt.allocator."""

        def __init__(self, blocks, alignment):
            base.__init__(self)
            self.blocks, self.alignment = blocks, alignment

        def allocate_async(self, size, alignment, flags, stream):
            """The address of a block, or 0: what the bindings take for null."""
            if size == 0:
                return 0
            addr, _ = self.blocks.alloc(size, max(alignment, self.alignment), stream_of(stream),
                                        bool(int(flags) & _RESIZABLE))
            return addr

        def allocate(self, size, alignment, flags):
            """Without a stream."""
            return self.allocate_async(size, alignment, flags, 0)

        def reallocate(self, address, alignment, new_size):
            """The same address where the block has that alignment and could grow to new_size, else
            0: it stays."""
            addr = address_of(address)
            if addr == 0:
                return self.allocate_async(new_size, alignment, _RESIZABLE, 0)
            is_aligned = alignment == 0 or addr % alignment == 0
            return addr if new_size > 0 and is_aligned and self.blocks.grow(addr, new_size) else 0

        def deallocate_async(self, memory, stream):
            """Whether it was a live block; None and 0 are allowed."""
            return self.blocks.free(address_of(memory), stream_of(stream))

        def deallocate(self, memory):
            """Without a stream."""
            return self.blocks.free(address_of(memory), no_stream)

        def close(self):
            """Ends it: when no runtime, builder, engine or context uses it any more."""
            self.blocks.close()

    return Allocator


def allocator(tensorrt=None, device=None, pool=(0, 0), alignment=512, quiet=False):
    """An allocator to set as gpu_allocator of a tensorrt.Runtime or tensorrt.Builder. Keep it for
    as long as those, their engines and contexts live.

    tensorrt: the module, for those that are not called so (tensorrt_rtx, tensorrt_lean); None
        imports tensorrt.
    device: the ordinal; None: the device that is current when TensorRT asks.
    pool: the id of a pool made with berm_pool_create; (0, 0): the default pool.
    alignment: the least of every block, in bytes, a power of two.
    quiet: requests that fail are not reported: builders try sizes that do not fit.

    Errors: ImportError without tensorrt, berm._lib.BermError without libberm."""
    if tensorrt is None:
        import tensorrt
    # Since 10 there is one whose methods with a stream are called.
    base = getattr(tensorrt, "IGpuAsyncAllocator", tensorrt.IGpuAllocator)
    return _made_class(base)(_blocks.Blocks(device, pool, quiet), alignment)
