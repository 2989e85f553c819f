# SPDX-License-Identifier: Apache-2.0
"""PyTorch's settings under the subclass: roundup_power2_divisions, changed while the program runs,
rounds as native does; per_process_memory_fraction is set at the start; throw_on_cudamalloc_oom
rejects and counts what cannot fit; nonsense raises. And who initialised CUDA too early is named."""
import json
import os
import subprocess
import sys

import torch_test

SIZES = (1, 512, 513, 1200, 4096, 5000, 70_001, 600_000, 1 << 20, 1_500_000, 5_000_000, 77 << 20)
EARLY = """
import torch_test
torch = torch_test.load("native")
import berm.torch
def somebody():
    torch.zeros(1, device="cuda")
somebody()
try:
    berm.torch.install()
except berm.torch.BermError as error:
    assert ", in somebody:" in str(error), error
    print("named")
"""


def rejections(torch):
    """With throw_on_cudamalloc_oom and without: how a request fails that cannot fit, and one that
    fits, beside a tensor of 0.4 of the memory."""
    seen, figures = [], []
    torch._C._cuda_attach_out_of_memory_observer(lambda *_: seen.append(1))
    total = torch.cuda.mem_get_info()[1]
    kept = torch.empty(int(total * 0.4), dtype=torch.uint8, device="cuda")
    for value in (True, False):
        torch._C._accelerator_setAllocatorSettings(f"throw_on_cudamalloc_oom:{value}")
        for part in (0.7, 0.5, 1.5):
            try:
                torch.empty(int(total * part), dtype=torch.uint8, device="cuda")
                failed = "fits"
            except torch.OutOfMemoryError as error:
                failed = str(error)[:len("CUDA out of memory.")]
            torch.cuda.empty_cache()
            stats = torch.cuda.memory_stats()
            figures.append([value, part, failed, stats["num_ooms"], stats["num_oom_rejections"],
                            len(seen)])
    del kept
    return figures


def program(torch):
    figures = []
    memory = torch.cuda.memory
    figures.append(memory.get_per_process_memory_fraction())
    kept = []
    for settings in ("", "roundup_power2_divisions:4", "roundup_power2_divisions:[4:2,64:8,>:1]",
                     "roundup_power2_divisions:1"):
        if settings:
            torch._C._accelerator_setAllocatorSettings(settings)
        for size in SIZES:
            before = torch.cuda.memory_stats()
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            after = torch.cuda.memory_stats()
            figures.append([settings, size, *(after[name] - before[name] for name in (
                "allocated_bytes.all.current", "requested_bytes.all.current",
                "allocation.small_pool.current"))])
    while kept:
        kept.pop(0)
    figures.append([torch.cuda.memory_allocated(),
                    torch.cuda.memory_stats()["requested_bytes.all.current"],
                    torch.cuda.memory_stats()["active_bytes.small_pool.current"]])
    for wrong in ("no_such_key:1", "roundup_power2_divisions:3"):
        try:
            torch._C._accelerator_setAllocatorSettings(wrong)
        except (ValueError, RuntimeError) as error:
            figures.append(type(error).__name__)
        else:
            figures.append(f"{wrong} was taken")
    return figures


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        run = rejections if os.environ.get("BERM_TEST_PART") else program
        print(json.dumps(run(torch_test.load(route))))
        return 0
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    failed = False
    for settings in (
            {"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.5,expandable_segments:True"},
            {"PYTORCH_ALLOC_CONF": "throw_on_cudamalloc_oom:True", "BERM_TEST_PART": "rejections"}):
        found = {route: torch_test.child_marks(__file__, route, settings)
                 for route in ("native", "subclass")}
        failed |= None in found.values() or found["native"] != found["subclass"]
        for theirs, ours in zip(found["native"] or [], found["subclass"] or []):
            if theirs != ours:
                print(f"FAIL: native {theirs}, subclass {ours}")
    done = subprocess.run([torch_test.python_with_torch(), "-B", "-c", EARLY], check=False,
                          capture_output=True, text=True, cwd=os.path.dirname(__file__) or ".",
                          env=torch_test.environment())
    if done.stdout.strip() != "named":
        print(f"FAIL: who initialised CUDA: {done.stdout}{done.stderr[-800:]}")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
