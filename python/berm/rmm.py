# SPDX-License-Identifier: Apache-2.0
"""berm as a memory resource of RMM's Python package:

    import berm.rmm
    berm.rmm.install()           # what RAPIDS libraries allocate comes from berm from here on

Every request goes through Python then, as RMM says of its CallbackMemoryResource: it is for trying
things out. Programs in C++ use include/berm_rmm.hpp. docs/adapters/rmm.md says more."""
from berm import _blocks

_ALIGNMENT = 256  # what RMM promises


def _stream_of(stream):
    """The handle in an rmm.pylibrmm.stream.Stream."""
    return stream.__cuda_stream__()[1]


def resource(device=None, pool=(0, 0), rmm=None):
    """A rmm.mr.CallbackMemoryResource that gets its memory from berm.

    device: the ordinal; None: the device that is current in the thread that asks.
    pool: the id of a pool made with berm_pool_create; (0, 0): the default pool.
    rmm: the module; None imports rmm.

    A request that cannot be served raises MemoryError with berm's line. Errors: ImportError without
    rmm, berm._lib.BermError without libberm."""
    if rmm is None:
        import rmm
    blocks = _blocks.Blocks(device, pool)
    stream_of = _stream_of

    def allocate(size, stream):
        if size == 0:
            return 0
        addr, status = blocks.alloc(size, _ALIGNMENT, stream_of(stream))
        if status != 0:
            raise MemoryError(f"berm: {blocks.message()}")
        return addr

    def deallocate(ptr, size, stream):
        del size
        blocks.free(ptr, stream_of(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def install(device=None, pool=(0, 0), rmm=None):
    """Makes it the resource of the current device, and returns it. Arguments and errors as of
    resource."""
    if rmm is None:
        import rmm
    made = resource(device, pool, rmm)
    rmm.mr.set_current_device_resource(made)
    return made
