# SPDX-License-Identifier: Apache-2.0
"""Compiles berm's subclass of PyTorch's CUDAAllocator against the installed torch, once for each
version of either, and loads it. Needs g++ (or what CXX names)."""
import concurrent.futures
import ctypes
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from berm import _lib

_ERROR_BYTES = 4096
_loaded = []  # for the life of the process


def _cuda_headers(torch_dir):
    """The folder of cuda_runtime_api.h: of torch's NVIDIA wheels, of a toolkit, or, where there is
    neither, berm's own declarations of what torch's headers name."""
    site = torch_dir.parent
    folders = sorted(site.glob("nvidia/*/include"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            folders.append(pathlib.Path(os.environ[name]) / "include")
    folders.append(pathlib.Path("/usr/local/cuda/include"))
    folders.append(_lib.adapters() / "adapters/torch/cuda")
    return next(folder for folder in folders if (folder / "cuda_runtime_api.h").exists())


def _cudart_version(torch):
    """As CUDART_VERSION has it: 13020 is 13.2."""
    major, minor = (torch.version.cuda or "0.0").split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def _sources():
    return sorted((_lib.adapters() / "adapters/torch/subclass").glob("*.cpp"))


def _digest(torch):
    digest = hashlib.sha256()
    digest.update(f"{torch.__version__} {torch._C._GLIBCXX_USE_CXX11_ABI} "
                  f"{_lib.library()}".encode())
    headers = sorted(_lib.include().glob("*.h")) + sorted(_lib.adapters().glob("adapters/torch/**/*.h"))
    for path in _sources() + headers:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "error" in line]
        raise _lib.BermError("berm's allocator does not compile against this torch: "
                             f"{(lines or done.stdout.splitlines() or ['?'])[0]}")


def compile_library(torch, sources, path):
    """Compiles C++ that uses torch's c10 and libberm into a library at `path`."""
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(compiler[0]) is None:
        raise _lib.BermError(f"no {compiler[0]}: berm's allocator is compiled against your torch "
                             "on first use; install g++, or use route=\"hooks\"")
    torch_dir = pathlib.Path(torch.__file__).resolve().parent
    flags = ["-std=c++20", "-O2", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-w",
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
             f"-DBERM_TORCH_CUDART_VERSION={_cudart_version(torch)}", f"-I{_lib.adapters()}",
             f"-I{_lib.include()}"]
    for folder in (torch_dir / "include", _cuda_headers(torch_dir)):
        flags += ["-isystem", str(folder)]
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = pathlib.Path(tempfile.mkdtemp(prefix="new-", dir=path.parent))
    try:
        objects = [aside / (source.stem + ".o") for source in sources]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, ([*compiler, *flags, "-c", str(source), "-o", str(made)]
                                 for source, made in zip(sources, objects))))
        _run([*compiler, "-shared", *map(str, objects), "-o", str(aside / path.name),
              f"-L{torch_dir / 'lib'}", "-ltorch_cuda", "-lc10_cuda", "-lc10", "-ltorch_cpu",
              str(_lib.library()), f"-Wl,-rpath,{_lib.library().parent}"])
        (aside / path.name).replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def build(torch):
    """The path of the library for this torch, compiled where it is missing (some 20 s, once)."""
    path = _lib.cache() / f"torch-{torch.__version__}-{_digest(torch)}" / "libberm_subclass.so"
    if not path.exists():
        compile_library(torch, _sources(), path)
    return path


def install(torch):
    """Makes it the allocator of this process."""
    library = ctypes.CDLL(str(build(torch)), mode=ctypes.RTLD_GLOBAL)
    _loaded.append(library)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if library.berm_torch_install(error, ctypes.c_size_t(_ERROR_BYTES)) != 0:
        raise _lib.BermError(error.value.decode(errors="replace").splitlines()[0])
