# SPDX-License-Identifier: Apache-2.0
"""berm as the memory of ONNX Runtime's CUDA provider.

    import berm.ort, onnxruntime
    session = onnxruntime.InferenceSession(
        "model.onnx", providers=[("CUDAExecutionProvider", berm.ort.provider_options())])

ONNX Runtime then puts no arena of its own on top: gpu_mem_limit and the other options of its arena
mean nothing (berm.limit() is the limit). From C: adapters/ort/berm_ort.h, docs/adapters/onnxruntime.md.
This module imports nothing of ONNX Runtime."""
import ctypes
from typing import Dict, Optional

from berm import _capi

TAG = "onnxruntime"


def provider_options(device: int = 0, **options) -> Dict[str, str]:
    """The options of CUDAExecutionProvider under which berm is its memory.

    device   ordinal, from 0
    options  more options of the provider, as they are; but user_compute_stream, which ONNX Runtime
             does not take together with allocation functions (an allocator that is registered,
             from C, it does)

    ONNX Runtime does not say on which stream it uses what it asks for: memory has no pending work
    when it is given, and waits for what is queued on the device after its free.
    Raises BermError: libberm_ort.so is not found, or an option is one of those named above."""
    library = _capi.companion("ort")
    made = {
        "device_id": device,
        "gpu_external_alloc": _capi.address(library.berm_ort_alloc),
        "gpu_external_free": _capi.address(library.berm_ort_free),
        "gpu_external_empty_cache": _capi.address(library.berm_ort_empty_cache),
    }
    for name, value in options.items():
        if name in made:
            raise _capi.BermError(f"berm.ort: the option {name} is set by provider_options()")
        if name in ("user_compute_stream", "has_user_compute_stream"):
            raise _capi.BermError(f"berm.ort: ONNX Runtime does not take {name} with allocation "
                                  "functions")
        made[name] = value
    return {name: str(value) for name, value in made.items()}


def bind_stream(stream: Optional[int], device: int = 0) -> None:
    """From now on what ONNX Runtime allocates on the device (0 to 63), and frees, is in the order of
    the stream (its handle), and waits for nothing; None: of none. Only where all sessions of the
    device use that stream alone. Raises BermError (device)."""
    bind = _capi.companion("ort").berm_ort_stream_bind
    bind.argtypes = [ctypes.c_int, ctypes.c_void_p]
    handle = _capi.STREAM_NONE if stream is None else stream
    if bind(device, handle) != _capi.OK:
        raise _capi.BermError(f"berm.ort.bind_stream: device {device} is none of 0 to 63")
