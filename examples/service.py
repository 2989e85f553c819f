# SPDX-License-Identifier: Apache-2.0
"""A service that asks berm about its memory: is inference inference, where is the memory, does a
request fit, what grew.

    berm run --simulated -- python examples/service.py"""
import berm
import berm.torch
import torch

WIDTH, LAYERS, TOKENS = 1024, 4, 512
ROW = 2 * LAYERS * WIDTH * 4  # bytes of keys and values of a token

berm.torch.install()
layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
                              torch.nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
model = torch.nn.Sequential(*layers).cuda().eval()
with berm.tag("kv cache"):
    cache = torch.zeros(TOKENS * ROW, dtype=torch.uint8, device="cuda")


def estimate(tokens):
    """Bytes of a request at its peak: its input, and two of what is between the layers."""
    return tokens * WIDTH * 4 * (1 + 2 * 4)


def serve(tokens):
    with berm.torch.admit(estimate(tokens), tag="requests"):
        return model(torch.rand(tokens, WIDTH, device="cuda")).argmax(dim=-1).cpu()


berm.torch.quota("requests", 256 << 20)
watch = berm.torch.watch()
with torch.inference_mode():
    print("check:", berm.torch.check(model))
    for tokens in (64, 100, 2000, 10_000, 64, 80):
        try:
            with watch.request(f"of {tokens}"):
                serve(tokens)
        except berm.torch.NotAdmitted as error:
            print(error)
    print(watch.report())
    print(berm.torch.breakdown())
    print("another 60 GiB:", berm.torch.would_fit(60 << 30))
    print("another 90 GiB:", berm.torch.would_fit(90 << 30))
