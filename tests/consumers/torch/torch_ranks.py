# SPDX-License-Identifier: Apache-2.0
"""Tests of torch.distributed: torch_test's comparison with two processes, each of which has one of
two simulated GPUs. They find each other by a file; NCCL is the stand-in, which moves the values of
small tensors."""
import json
import os
import subprocess
import sys
import tempfile
import time

import torch_test

RANKS = 2
_SECONDS = 280


def _start(script, route, rank, store, more, errors):
    environment = torch_test.environment(
        BERM_TEST_ROUTE=route, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
        BERM_TEST_STORE=store, SIMCUDA_DEVICES=str(RANKS), OMP_NUM_THREADS="1", **more)
    if route == "hooks":
        environment.pop("TORCH_DIST_USE_NCCL2", None)  # berm.torch.install chooses
    return subprocess.Popen([torch_test.python_with_torch(), "-B", script], text=True,
                            env=environment, stdout=subprocess.PIPE, stderr=errors)


def _end(processes):
    """Waits for all; one that fails or takes too long takes the others with it."""
    until = time.monotonic() + _SECONDS
    while any(each.poll() is None for each in processes) and time.monotonic() < until and \
            not any(each.poll() for each in processes):
        time.sleep(0.05)
    for each in processes:
        if each.poll() is None:
            each.kill()


def _marks(script, route, more):
    """Of all ranks, each mark with its rank; None after a line."""
    if torch_test.python_with_torch() is None:
        torch_test.skip("no Python with a CUDA build of torch: ./run shadow-setup, or "
                        "BERM_TORCH_PYTHON")
    with tempfile.TemporaryDirectory() as folder:
        errors = [open(os.path.join(folder, f"errors{rank}"), "w+", encoding="utf-8")
                  for rank in range(RANKS)]
        processes = [_start(script, route, rank, os.path.join(folder, "store"), more, errors[rank])
                     for rank in range(RANKS)]
        _end(processes)
        outputs = [each.communicate()[0] for each in processes]
        texts = []
        for each in errors:
            each.seek(0)
            texts.append(each.read())
            each.close()
    marks = []
    for rank, (each, output) in enumerate(zip(processes, outputs)):
        if each.returncode != 0:
            print(f"FAIL: {route}, rank {rank}: exit {each.returncode}: {texts[rank][-1500:]}")
            return None
        marks += [[f"rank {rank}: {label}", *rest]
                  for label, *rest in json.loads(output.splitlines()[-1])]
    return marks


def _as_rank(program):
    def run(child):
        import torch.distributed
        rank = int(os.environ["RANK"])
        child.devices = (rank,)
        child.torch.cuda.set_device(rank)
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{os.environ['BERM_TEST_STORE']}", rank=rank,
            world_size=RANKS, device_id=child.torch.device("cuda", rank))
        program(child, rank)
        torch.distributed.destroy_process_group()

    return run


def compare(script, program):
    """As torch_test.compare; program(child, rank) is run in each of the processes, with the process
    group there and the rank's GPU the current one.

    All routes are compared with the NCCL backend that torch had up to 2.14, without its watchdog,
    whose thread frees memory when it wants to. The one that came then watches the allocator, which a
    plain pluggable one does not let it: with that, the subclass is compared with native."""
    if torch_test.run_as_child(_as_rank(program), "small"):
        return
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    is_good = torch_test.are_alike(script, torch_test.ROUTES, _marks, TORCH_DIST_USE_NCCL2="0",
                                   TORCH_NCCL_BLOCKING_WAIT="1")
    is_good &= torch_test.are_alike(script, ("native", "subclass"), _marks,
                                    TORCH_DIST_USE_NCCL2="1")
    sys.exit(not is_good)
