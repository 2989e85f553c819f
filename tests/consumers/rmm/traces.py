# SPDX-License-Identifier: Apache-2.0
"""berm through its resource for RMM against RMM's own pool and arena, on recorded traces: the
smallest device on which each finishes, and the time of an operation.

usage: traces.py BERM TRACE...

berm has to do with less memory than both on every trace, with the options with which its time is
taken. Time is the median of an operation, in a
heap that has come to rest, the best of three runs; berm may hold up to half more than is live there
(the pool doubles, the arena has the device), and no page moves. The geometric mean over all traces
has to be below that of either; on one trace a busy machine may say otherwise."""
import json
import math
import pathlib
import subprocess
import sys

RIVALS = ("rmm-pool", "rmm-arena")
ALLOCATORS = ("rmm-berm",) + RIVALS
ROOMY = {"rmm-berm": ["--conf", "headroom:50,learned_placement:off"]}
ROUNDS = 3
OPERATIONS = 8000  # at least, of each run


def scale(trace):
    return ["--scale", "8192"] if pathlib.Path(trace).name.startswith("minimalloc") else []


def berm(*arguments):
    done = subprocess.run([sys.argv[1], *arguments, "--json"], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"berm {' '.join(arguments)}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def smallest(trace, allocator):
    result = berm("fit", trace, "--allocator", allocator, *scale(trace), *ROOMY.get(allocator, []))
    return result["min_capacity_bytes"]


def replay(trace, allocator, repeats):
    return berm("replay", trace, "--allocator", allocator, "--repeat", str(repeats), "--check",
                "none", *scale(trace), *ROOMY.get(allocator, []))


def median_ns(trace, allocator, repeats):
    return min(replay(trace, allocator, repeats)["host_ns_per_op"]["p50"] for _ in range(ROUNDS))


def main():
    problems = []
    ratios = {rival: [] for rival in RIVALS}
    print(f"{'':34}{'smallest MiB':>26}   {'ns of an operation':>26}")
    print(f"{'trace':34}" + 2 * ("".join(f"{name[4:]:>9}" for name in ALLOCATORS) + "  "))
    for trace in sys.argv[2:]:
        name = pathlib.Path(trace).name
        fits = {each: smallest(trace, each) for each in ALLOCATORS}
        repeats = max(4, OPERATIONS // replay(trace, "rmm-pool", 1)["events"])
        times = {each: median_ns(trace, each, repeats) for each in ALLOCATORS}
        print(f"{name[:33]:34}" + "".join(f"{fits[each] >> 20:9}" for each in ALLOCATORS) + "  " +
              "".join(f"{times[each]:9}" for each in ALLOCATORS), flush=True)
        for rival in RIVALS:
            ratios[rival].append(times["rmm-berm"] / times[rival])
            if fits["rmm-berm"] >= fits[rival]:
                problems.append(f"{name}: {rival} needs no more memory")
    for rival, of_rival in ratios.items():
        mean = math.exp(sum(map(math.log, of_rival)) / len(of_rival))
        ahead = sum(ratio < 1 for ratio in of_rival)
        print(f"time over that of {rival}: {mean:.2f}, less on {ahead} of {len(of_rival)} traces")
        if mean >= 1:
            problems.append(f"{rival} is as quick")
    sys.exit("\n".join(problems) or 0)


main()
