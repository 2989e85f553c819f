# SPDX-License-Identifier: Apache-2.0
"""berm from Python: its figures, its memory under PyTorch, CuPy, Numba and ONNX Runtime, and programs
on a simulated CUDA device.

    import berm
    berm.stats()            # of device 0; berm.report() as text, berm.snapshot() in full
    with berm.tag("model A"):
        ...

Importing this package loads nothing; libberm is loaded by the first call. One heap a device serves
everything in the process. `python -m berm --check` says what is installed here that it can serve.
Adapters are modules: berm.torch, berm.cupy, berm.numba, berm.ort."""
from berm._memory import (BermError, Pool, device_count, device_info, largest_free,
                          largest_obtainable, limit, peaks_reset, report, shutdown, snapshot, start,
                          stats, tag, tags, trim, version)

__all__ = ["BermError", "Pool", "device_count", "device_info", "largest_free", "largest_obtainable",
           "limit", "peaks_reset", "report", "shutdown", "snapshot", "start", "stats", "tag", "tags",
           "trim", "version"]
