# SPDX-License-Identifier: Apache-2.0
"""What the tests with real consumers from PyPI share. A test is run by any Python 3; it starts itself
again, once for each of its programs, with the Python that ./run consumers-setup makes, or that in
BERM_CONSUMERS_PYTHON. The consumers run on the simulated device, over stand-ins made for them.

A program is a function of the test. It ends with finish(), whose line says what reached berm."""
import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BERM_BUILD", SOURCE / "build/release"))
CHILD_SECONDS = 280
MIB = 1 << 20
_loaded = []


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def environment(**more):
    made = {name: value for name, value in os.environ.items()
            if not name.startswith(("SIMCUDA_", "BERM_CONF", "NUMBA_", "CUPY_"))}
    return {"SIMCUDA_MEMORY": "8G", **made, "PYTHONPATH": str(SOURCE / "python"),
            "BERM_LIBRARY": str(BUILD / "lib"), "BERM_SIMCUDA": str(BUILD / "lib/simcuda"),
            "BERM_CACHE_DIR": str(BUILD / "consumers"), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(programs):
    """Runs each program, a dictionary of a function to the environment that it wants more of, in a
    process of its own; in such a process runs the one that is named."""
    if len(sys.argv) > 1:
        next(function for function in programs if function.__name__ == sys.argv[1])()
        return
    if os.environ.get("BERM_SANITIZE"):
        skip("the consumers run in the plain build")
    python = os.environ.get("BERM_CONSUMERS_PYTHON", SOURCE / "build/consumers/bin/python")
    if not pathlib.Path(python).exists():
        skip("ONNX Runtime, CuPy and Numba are not set up: run ./run consumers-setup")
    failed = False
    for function, more in programs.items():
        done = subprocess.run([python, "-B", "-W", "ignore", sys.argv[0], function.__name__],
                              env=environment(**more), timeout=CHILD_SECONDS, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        sys.stdout.write(done.stdout)
        if done.returncode != 0:
            print(f"FAIL: {function.__name__}: exit {done.returncode}\n{done.stderr[-4000:]}")
            failed = True
    sys.exit(failed)


# --- in a program --------------------------------------------------------------------------------


def load(*packages, but=()):
    """Loads the stand-ins for what the packages' libraries need, all but the libraries whose names
    begin so; with no package the simulated driver alone. Returns berm."""
    from berm import _standins
    folder = pathlib.Path(os.environ["BERM_SIMCUDA"])
    names = ["libcuda.so.1", "libnvidia-ml.so.1"]
    if packages:
        roots = [importlib.util.find_spec(one).submodule_search_locations[0] for one in packages]
        folder = _standins.make(*roots)
        names = (folder / "order").read_text(encoding="utf-8").splitlines()
    for name in names:
        if not name.startswith(tuple(but)):
            _loaded.append(ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL))
    import berm
    return berm


def calls(*names):
    """How often functions of the driver were called, in all."""
    count = _loaded[0].simcuda_calls
    count.restype, count.argtypes = ctypes.c_uint64, [ctypes.c_char_p]
    return sum(count(name.encode()) for name in names)


def no_real_libraries():
    """None of NVIDIA's own libraries is in this process, whatever the system has."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = {line.split()[-1] for line in maps if ".so" in line}
    inside = (str(BUILD), str(SOURCE / "build/consumers"))
    wrong = [path for path in mapped if pathlib.Path(path).name.startswith(
        ("libcud", "libcub", "libcuf", "libcur", "libnv")) and not path.startswith(inside)]
    assert not wrong, wrong


def counted(berm, tag, device=0):
    """What a tag has: requests, bytes in all, frees, live blocks."""
    found = berm.tags(device)[tag]
    return (found["blocks"]["total_up"], found["requested_bytes"]["total_up"],
            found["blocks"]["total_down"], found["blocks"]["current"])


def finish(berm, package, tag, what, least=1):
    """The line of a program that has given everything back: at least so many requests reached berm,
    under the tag, and as many frees, of as many bytes."""
    gc.collect()
    requests, size_bytes, frees, live = counted(berm, tag)
    found = berm.tags()[tag]
    assert requests >= least, f"{requests} requests reached berm, not {least}"
    assert live == 0 and requests == frees, f"{live} blocks live, {requests} requests, {frees} frees"
    assert found["requested_bytes"]["total_down"] == size_bytes
    stats = berm.stats()
    assert stats["requested_bytes"]["current"] == sum(
        one["requested_bytes"]["current"] for one in stats["tags"].values()), "untagged blocks live"
    print(f"{package} {importlib.metadata.version(package)}, {what}: {requests} requests of "
          f"{size_bytes} bytes reached berm, {frees} frees, {live} live at the end; "
          f"{stats['reserved_bytes']['peak'] / MIB:.0f} MiB reserved at most")
