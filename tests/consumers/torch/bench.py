# SPDX-License-Identifier: Apache-2.0
"""What an allocation costs through torch's raw_alloc and raw_delete, under the native allocator,
expandable segments and the subclass, in one run: nanoseconds, and the share of native's.

    python3 tests/consumers/torch/bench.py"""
import ctypes
import json
import os
import pathlib
import sys
import tempfile

import torch_test

ROUTES = ("native", "expandable", "subclass")
PAIRS, CHURN = 20_000, 20_000
LIVE = 10_000


def measure(torch):
    from berm import _subclass
    torch.empty(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "libbench.so"
        _subclass.compile_library(torch, [pathlib.Path(__file__).with_suffix(".cpp")], path)
        library = ctypes.CDLL(str(path))
    for function in (library.pair_ns, library.churn_ns):
        function.restype = ctypes.c_double
    pairs = {f"pair {size} B": library.pair_ns(ctypes.c_int64(PAIRS), ctypes.c_size_t(size))
             for size in (512, 4096, 1 << 20, 8 << 20)}
    return {**pairs, f"churn, {LIVE} live": library.churn_ns(ctypes.c_int64(CHURN), LIVE)}


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        print(json.dumps(measure(torch_test.load(route))))
        return 0
    found = {route: torch_test.child_marks(__file__, route, {"SIMCUDA_MEMORY": "128G"})
             for route in ROUTES}
    if None in found.values():
        return 1
    print(f"{'':24}" + "".join(f"{route:>14}" for route in ROUTES) + f"{'of native':>12}")
    for what in found["native"]:
        row = [found[route][what] for route in ROUTES]
        print(f"{what:24}" + "".join(f"{ns:11.0f} ns" for ns in row) + f"{row[2] / row[0]:12.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
