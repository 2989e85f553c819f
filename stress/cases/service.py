# SPDX-License-Identifier: Apache-2.0
"""What the services of this folder share: a model, requests, and what is printed at the end. Each
service_*.py is a program with one mistake that services make; docs/service.md shows what berm says
about each."""
import berm.torch
import torch

REQUESTS = 24
WIDTH = 512


def model():
    """Three layers, some 4 MiB."""
    berm.torch.install()
    layers = [torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, WIDTH)]
    return torch.nn.Sequential(*layers).cuda().eval()


def requests(rows=256):
    """Inputs, one after the other."""
    for _ in range(REQUESTS):
        yield torch.rand(rows, WIDTH, device="cuda")


def tell(watch):
    """What grew, and who holds most."""
    print(watch.report())
    print(berm.torch.holders(top=2))
