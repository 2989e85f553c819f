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


def provider_options(device: int = 0, stream: Optional[int] = None, **options) -> Dict[str, str]:
    """The options of CUDAExecutionProvider under which berm is its memory.

    device   ordinal, from 0 to 63
    stream   the handle of the stream that the session is to use (user_compute_stream); memory is
             then reused in its order, with no wait. One for all sessions of the device. None: ONNX
             Runtime makes its own, of which berm is not told; a block that is freed waits for what
             is queued on the device.
    options  more options of the provider, as they are

    Raises BermError: libberm_ort.so is not found, or an option is one of those that are set here."""
    library = _capi.companion("ort")
    made = {
        "device_id": device,
        "gpu_external_alloc": _capi.address(library.berm_ort_alloc),
        "gpu_external_free": _capi.address(library.berm_ort_free),
        "gpu_external_empty_cache": _capi.address(library.berm_ort_empty_cache),
    }
    if stream is not None:
        bind_stream(stream, device)
        made["user_compute_stream"] = stream
    for name, value in options.items():
        if name in made:
            raise _capi.BermError(f"berm.ort: the option {name} is set by provider_options()")
        made[name] = value
    return {name: str(value) for name, value in made.items()}


def bind_stream(stream: Optional[int], device: int = 0) -> None:
    """What ONNX Runtime allocates on the device from now on is in the order of the stream (its
    handle); None: of none. Raises BermError (device)."""
    bind = _capi.companion("ort").berm_ort_stream_bind
    bind.argtypes = [ctypes.c_int, ctypes.c_void_p]
    handle = _capi.STREAM_NONE if stream is None else stream
    if bind(device, handle) != _capi.OK:
        raise _capi.BermError(f"berm.ort.bind_stream: device {device} is none of 0 to 63")
