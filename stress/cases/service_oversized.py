# SPDX-License-Identifier: Apache-2.0
"""A service of several requests at once, one of which is far too large: it takes what is left of the
device bit by bit, and the others fail. With a guard it is refused, and they are served.

    service_oversized.py [unguarded]"""
import contextlib
import sys

import berm.torch
import service
import torch

STEP = 32 << 20  # what a request takes at a time
SMALL_STEPS, LARGE_STEPS, LARGE_AT = 2, 1000, 2
AT_ONCE = 4

model = service.model()
is_guarded = "unguarded" not in sys.argv
counts = {"served": 0, "failed": 0, "refused": 0}


def handle(steps):
    """A generator: a request in flight, which takes memory from time to time."""
    guard = berm.torch.admit(steps * STEP, tag="requests") if is_guarded else contextlib.nullcontext()
    with guard, torch.inference_mode():
        kept = []
        for _ in range(steps):
            kept.append(torch.empty(STEP, dtype=torch.uint8, device="cuda"))
            yield


def goes_on(request):
    """Lets a request run for a while; whether it has not ended."""
    try:
        next(request)
        return True
    except StopIteration:
        counts["served"] += 1
    except berm.torch.NotAdmitted as error:
        counts["refused"] += 1
        print(error)
    except torch.OutOfMemoryError:
        counts["failed"] += 1
    return False


waiting = [handle(LARGE_STEPS if number == LARGE_AT else SMALL_STEPS)
           for number in range(service.REQUESTS)]
active = []
while waiting or active:
    while waiting and len(active) < AT_ONCE:
        active.append(waiting.pop(0))
    active = [request for request in active if goes_on(request)]
print(", ".join(f"{count} {name}" for name, count in counts.items()))
