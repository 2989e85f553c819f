# SPDX-License-Identifier: Apache-2.0
"""What the tests with a real PyTorch share. A test is run by any Python 3; it starts itself again,
once for each way that tensors get their memory, with a Python that has a CUDA build of torch:
BERM_TORCH_PYTHON, that of ./run shadow-setup, or its own. Torch runs on the simulated device.

Routes: native, expandable (PyTorch's own allocator), hooks (libberm_torch.so), subclass."""
import ctypes
import gc
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BERM_BUILD", SOURCE / "build/release"))
ROUTES = ("native", "expandable", "hooks", "subclass")
CHILD_SECONDS = 280
_STATS_BYTES = range(560, 2048, 8)  # sizeof(berm_stats_t), which grows at its end


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def python_with_torch():
    """Its path, or None."""
    named = os.environ.get("BERM_TORCH_PYTHON")
    for path in ([named] if named else [SOURCE / "build/venv/bin/python", sys.executable]):
        look = "from berm import _standins; import sys; sys.exit(_standins.torch_lacks() is not None)"
        try:
            if subprocess.run([path, "-B", "-c", look], env=environment(), check=False,
                              stderr=subprocess.DEVNULL).returncode == 0:
                return path
        except OSError:
            pass
    return None


def environment(**more):
    made = {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTORCH_", "SIMCUDA_", "BERM_CONF"))}
    return {**made, "PYTHONPATH": str(SOURCE / "python"), "BERM_LIBRARY": str(BUILD / "lib"),
            "BERM_SIMCUDA": str(BUILD / "lib/simcuda"), "PYTHONDONTWRITEBYTECODE": "1", **more}


def need(module, how):
    """The test is skipped where the Python with torch lacks this module too; `how` to get it."""
    python = python_with_torch()
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    if python is not None and subprocess.run([python, "-c", look], check=False).returncode != 0:
        skip(f"no {module} in {python}: {how}")


def load(route, values="none", **options):
    """Imports torch on the simulated device with this allocator, and with these values (none, small
    or all) in it; returns it."""
    from berm import _standins
    if route == "expandable":
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    _standins.load(_standins.make(_standins.torch_folder()))
    import torch
    if route in ("hooks", "subclass"):
        import berm.torch
        berm.torch.install(route=route, **options)
    if values != "none":
        from berm import _values
        _values.start(torch, values)
    return torch


def berm_counts(device):
    """Of libberm itself: (requests so far, live blocks, bytes that they asked for)."""
    library = ctypes.CDLL(str(BUILD / "lib/libberm.so"))
    for size in _STATS_BYTES:
        stats = (ctypes.c_uint64 * (size // 8))(size)
        if library.berm_stats_read(device, stats) == 0:
            return stats[2 + 16 + 2], stats[2 + 16], stats[2]
    raise AssertionError("berm_stats_read takes no size that is known here")


class Child:
    """What a program is given: torch, and mark(), which notes the state of memory."""

    def __init__(self, route, torch):
        self.route, self.torch, self.marks = route, torch, []
        self.devices = range(torch.cuda.device_count())

    def counts(self, device):
        of_berm = berm_counts(device) if self.route in ("hooks", "subclass") else None
        if self.route == "hooks":
            return of_berm
        stats = self.torch.cuda.memory_stats(device)
        counts = (stats["allocation.all.allocated"], stats["allocation.all.current"],
                  stats["requested_bytes.all.current"])
        if of_berm is not None and of_berm != counts:
            raise AssertionError(f"PyTorch's statistics {counts}, libberm's {of_berm}")
        return counts

    def mark(self, label):
        """After all work is done, frees that waited for other streams are, and what Python's
        collector finds is freed."""
        gc.collect()
        for device in self.devices:
            self.torch.cuda.synchronize(device)
            self.torch.empty(1, device=device)
            self.marks.append([label, device, *self.counts(device)])


def run_child(script, route, arguments=(), **more):
    """Runs the script for one route; returns (exit status, standard output, standard error)."""
    python = python_with_torch()
    if python is None:
        skip("no Python with a CUDA build of torch: ./run shadow-setup, or BERM_TORCH_PYTHON")
    try:
        done = subprocess.run([python, "-B", script, *arguments], capture_output=True, text=True,
                              env=environment(BERM_TEST_ROUTE=route, **more),
                              timeout=CHILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "timeout", "", ""
    return done.returncode, done.stdout, done.stderr


def child_marks(script, route, more):
    status, output, errors = run_child(script, route, **more)
    if status != 0:
        print(f"FAIL: {route}: exit {status}: {errors[-1500:]}")
        return None
    return json.loads(output.splitlines()[-1])


def run_as_child(program, values):
    """In a process that was started for a route: runs program(child), prints what it marked, and
    returns True. Elsewhere returns False."""
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is None:
        return False
    child = Child(route, load(route, values))
    program(child)
    print(json.dumps(child.marks))
    return True


def are_alike(script, routes, run, **more):
    """Whether what the script marks is the same under every route; says so, or what is not. `run` is
    given the script, the route and what is added to the environment; it returns the marks, or None
    after a line."""
    marks = {route: run(script, route, more) for route in routes}
    failed = any(value is None for value in marks.values())
    wanted = marks[routes[0]]
    for route in routes[1:]:
        if marks[route] is None or wanted is None:
            continue
        failed |= marks[route] != wanted
        for ours, theirs in zip(marks[route], wanted):
            if ours != theirs:
                print(f"FAIL: {route}: {ours}, {routes[0]}: {theirs} "
                      "(label, device, requests, live blocks, requested bytes)")
    if not failed:
        print(f"ok: {len(wanted)} marks alike under {', '.join(routes)}; most live: "
              f"{max(wanted, key=lambda mark: mark[-1])}; the last: {wanted[-1]}")
    return not failed


def compare(script, program, routes=ROUTES, values="none", **more):
    """In the first process: runs program(child) under every route and compares what it marked. The
    numbers of requests and of live blocks and the bytes that they asked for are to be the same."""
    if run_as_child(program, values):
        return
    if os.environ.get("BERM_SANITIZE"):
        skip("PyTorch is not sanitized")
    sys.exit(not are_alike(script, routes, child_marks, **more))
