# SPDX-License-Identifier: Apache-2.0
"""Generating with a cache that grows by a token a step, in several conversations."""
import small_gpt
import torch_test

STEPS = 12


def program(child):
    torch = child.torch
    model = small_gpt.make(torch, "cuda").eval()
    with torch.no_grad():
        for prompt in (5, 40, 23):
            caches = [[] for _ in model.blocks]
            ids = torch.randint(0, 1024, (2, prompt), device="cuda")
            start = 0
            for _ in range(STEPS):
                logits = model(ids, caches, start)
                start += ids.shape[1]
                ids = logits[:, -1:].argmax(dim=-1)
            child.mark(f"prompt of {prompt}")
            del caches, ids, logits
            child.mark("dropped")


if __name__ == "__main__":
    torch_test.compare(__file__, program)
