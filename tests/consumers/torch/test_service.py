# SPDX-License-Identifier: Apache-2.0
"""The five services of stress/cases/service_*.py, each with one mistake: what they print names the
variable that holds the memory and the line that allocated it, and says why; watch() tells the slope
and that line; the guard refuses the oversized request, and the others are served, which are not
without it."""
import os
import re
import runpy
import sys

import torch_test

CASES = torch_test.SOURCE / "stress/cases"
MIB = 1 << 20
LOGITS = 256 * 512 * 4  # bytes of a request's output
HIDDEN = 256 * 1024 * 4  # and of what is between the layers
FACTS = {  # program: who holds most, why, bytes it grows by a request
    "service_outputs_list.py": ("__main__.history[*]", "in a list of 24", LOGITS),
    "service_no_inference_mode.py": ("__main__.figures.total", "stored without detach(): its autograd",
                                     2 * LOGITS + 2 * HIDDEN - LOGITS),
    "service_closure.py": ("__main__.callbacks[*].<closure logits>",
                           "kept by a closure: variable 'logits' of function handle.<locals>.retry",
                           LOGITS),
    "service_cache.py": ("__main__.embedder.known[*]", "in a dict of 24 entries, which is a cache",
                         LOGITS),
}
GROWTH = re.compile(r"^growth: ([\d.]+) MiB a request; 23 of 23", re.MULTILINE)
GROWN = re.compile(r"^  ([\d.]+) MiB and [\d.]+ blocks a request: (\S+)", re.MULTILINE)
HOLDER = re.compile(r"^ +([\d.]+) MiB  +(\d+) tensors? +(.+)\n +(.*)\n +allocated at (\S+)",
                    re.MULTILINE)
PEAK = re.compile(r"peak at (.*) in (\S+)")
COUNTS = re.compile(r"^(\d+) served, (\d+) failed, (\d+) refused", re.MULTILINE)


def check(condition, text, output):
    if not condition:
        print(f"FAIL: {text}; it printed:\n{output}")
        sys.exit(1)


def printed(program, route, *arguments, **more):
    status, output, errors = torch_test.run_child(__file__, route, [program, *arguments], **more)
    check(status == 0, f"{program}, {route}: exit {status}", output + errors[-2000:])
    return output


def line_of(program, text):
    lines = (CASES / program).read_text().splitlines()
    numbers = [number for number, line in enumerate(lines, 1) if text in line]
    assert len(numbers) == 1, (program, text, numbers)
    return f"{program}:{numbers[0]}"


def told(program, route):
    """A service that holds memory: the line of model(request) is where it is allocated."""
    output = printed(program, route)
    name, why, grows = FACTS[program]
    line = line_of(program, "model(request)")
    growth, sites, holder = (GROWTH.search(output), GROWN.findall(output), HOLDER.search(output))
    check(growth and abs(float(growth[1]) * MIB - grows) < 0.06 * MIB,
          f"{program}, {route}: the slope is not {grows / MIB:.2f} MiB", output)
    check(sites and sites[0][1].endswith(line), f"{program}, {route}: what grows is not {line}", output)
    check(holder and holder[3] == name, f"{program}, {route}: {name} is not who holds most", output)
    check(why in holder[4], f"{program}, {route}: the reason is not {why!r}", output)
    # Where the sum is, of all that is on the graph, there is its own line.
    lines = [line] if "total" not in name else [line, line_of(program, "the mistake")]
    check(holder[5].endswith(tuple(lines)), f"{program}, {route}: not allocated at {lines}", output)
    peak = PEAK.search(output)
    check(peak and "(256, 1024)" in peak[1] and peak[2].rstrip(",").endswith(line),
          f"{program}, {route}: the peak is not by the second layer, of 256 x 1024", output)
    print(f"ok: {program}, {route}: {holder[3]}, {holder[5]}, {growth[1]} MiB a request")


def guarded(route):
    """One oversized request among small ones."""
    counts = {}
    for arguments in ((), ("unguarded",)):
        output = printed("service_oversized.py", route, *arguments, SIMCUDA_MEMORY="512M")
        found = COUNTS.search(output)
        check(found, f"service_oversized.py {arguments}, {route}: no counts", output)
        counts[arguments] = tuple(map(int, found.groups()))
        if not arguments:
            check("not admitted: 32000.0 MiB are needed" in output, "no reason is told", output)
    check(counts[()] == (23, 0, 1), f"{route}: with a guard {counts[()]}", output)
    served, failed, refused = counts[("unguarded",)]
    check(failed >= 2 and refused == 0 and served + failed == 24,
          f"{route}: without a guard only the oversized request fails: {counts}", output)
    print(f"ok: service_oversized.py, {route}: (served, failed, refused) {counts}")


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        torch_test.load(route, "small")
        sys.path.insert(0, str(CASES))
        sys.argv = sys.argv[1:]
        runpy.run_path(str(CASES / sys.argv[0]), run_name="__main__")
        return
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    for program in FACTS:
        told(program, "subclass")
    told("service_outputs_list.py", "hooks")
    guarded("subclass")


if __name__ == "__main__":
    main()
