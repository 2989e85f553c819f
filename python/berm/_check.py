# SPDX-License-Identifier: Apache-2.0
"""What `python -m berm --check` finds. No consumer is imported, and no device is touched beyond
asking the driver how many there are."""
import importlib.metadata
import importlib.util
import pathlib
import re
from typing import Any, Dict, List, Optional

from berm import _capi, _lib, _memory

# What berm serves: the packages that bring it, the module to look for, the least version, the
# adapter's library if it has one, and how.
CONSUMERS = (
    ("PyTorch", ("torch",), "torch", (2, 13), "torch", "berm.torch.install()"),
    ("ONNX Runtime", ("onnxruntime-gpu",), "onnxruntime", (1, 16), "ort",
     'providers=[("CUDAExecutionProvider", berm.ort.provider_options())]'),
    ("CuPy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "cupy", (13, 0), "cupy",
     "berm.cupy.install()"),
    ("Numba", ("numba-cuda",), "numba", (0, 1), None,
     "NUMBA_CUDA_MEMORY_MANAGER=berm.numba, or berm.numba.install()"),
    ("RMM", ("rmm-cu13", "rmm-cu12"), "rmm", (23, 0), None, "berm.rmm.install()"),
    ("TensorRT", ("tensorrt_cu13_bindings", "tensorrt_cu12_bindings"), "tensorrt_bindings", (8, 6),
     None, "runtime.gpu_allocator = berm.tensorrt.allocator()"),
)


def library() -> Dict[str, Any]:
    """Where libberm is, whether it loads, and its version."""
    try:
        return {"path": str(_lib.library()), "loads": True, "version": _memory.version(),
                "problem": None}
    except _capi.BermError as error:
        return {"path": None, "loads": False, "version": None, "problem": str(error)}


def devices() -> Dict[str, Any]:
    """How many devices the driver has, and whether they are simulated."""
    try:
        count = _memory.device_count()
        info = _memory.device_info(0) if count > 0 else {}
    except _capi.BermError as error:
        return {"count": 0, "name": None, "is_simulated": False, "has_vmm": False,
                "problem": str(error)}
    return {"count": count, "name": info.get("name"),
            "is_simulated": bool(info.get("is_simulated")), "has_vmm": bool(info.get("has_vmm")),
            "problem": None}


def _installed(packages) -> Optional[str]:
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


def _numbers(version: str):
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _problem(module: str, version: str, least, adapter: Optional[str]) -> Optional[str]:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return f"its module {module} is not found"
    if _numbers(version) < least:
        return f"version {'.'.join(map(str, least))} or newer is needed"
    built = pathlib.Path(spec.submodule_search_locations[0], "version.py")
    if module == "torch" and built.exists() and re.search(
            r"^cuda\b.*= None", built.read_text(encoding="utf-8"), re.MULTILINE):
        return "it is no CUDA build"
    try:
        if adapter is not None:
            _lib.library(f"libberm_{adapter}.so")
    except _capi.BermError as error:
        return str(error)
    return None


def consumers() -> List[Dict[str, Any]]:
    """Every consumer that berm knows: installed or not, its version, whether it can be served, and
    how or why not."""
    found = []
    for name, packages, module, least, adapter, how in CONSUMERS:
        version = _installed(packages)
        problem = None if version is None else _problem(module, version, least, adapter)
        found.append({"name": name, "version": version, "served": version is not None and not problem,
                      "how": how, "problem": problem})
    return found


def check() -> Dict[str, Any]:
    """All of it; "ok" where libberm loads and every consumer that is installed can be served."""
    found = {"library": library(), "devices": None, "consumers": consumers()}
    if found["library"]["loads"]:
        found["devices"] = devices()
    found["ok"] = found["library"]["loads"] and not any(one["problem"] for one in found["consumers"])
    return found


def text(found: Dict[str, Any]) -> str:
    """The same for people."""
    lines = []
    if found["library"]["loads"]:
        lines.append(f"berm {found['library']['version']}: {found['library']['path']}")
    else:
        lines.append(f"berm: {found['library']['problem']}")
    device = found["devices"]
    if device is not None and device["count"] > 0:
        kind = ", simulated" if device["is_simulated"] else ""
        lines.append(f"{device['count']} GPU(s), the first: {device['name']}{kind}" + (
            "" if device["has_vmm"] else ", without virtual memory management"))
    elif device is not None:
        lines.append(f"no GPU: {device['problem'] or 'the driver has none'}")
    for one in found["consumers"]:
        if one["version"] is None:
            lines.append(f"{one['name']:<13} not installed")
        elif one["problem"]:
            lines.append(f"{one['name']:<13} {one['version']:<10} cannot be served: {one['problem']}")
        else:
            lines.append(f"{one['name']:<13} {one['version']:<10} {one['how']}")
    return "\n".join(lines) + "\n"
