# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer with a mixture of experts: each token goes to the two experts that its router
names, so how much an expert gets differs from layer to layer and from step to step.

The routing here is by a hash of the token, as some published models do it, so that it is known to
the host; a learnt router's choice is not known on a simulated device.

    berm shadow --compare -- python examples/moe.py"""
import argparse

import torch
from torch import nn
from torch.nn import functional


class Experts(nn.Module):
    """As many perceptrons as there are experts."""

    def __init__(self, width, experts, layer):
        super().__init__()
        self.layer = layer
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(experts))

    def forward(self, x, tokens):
        flat, result = x.flatten(0, 1), torch.zeros_like(x).flatten(0, 1)
        count = len(self.up)
        first = (tokens * 7919 + self.layer * 104729) % 8191 % count
        second = (tokens * 6007 + self.layer * 15485863) % 8179 % count
        for number, (up, down) in enumerate(zip(self.up, self.down)):
            rows = ((first == number) | (second == number)).flatten().nonzero().flatten()
            if rows.numel() > 0:
                made = down(functional.gelu(up(flat[rows])))
                result = result.index_add(0, rows, made.to(result.dtype))
        return result.view_as(x)


class Block(nn.Module):
    """Attention and experts."""

    def __init__(self, width, heads, experts, layer):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = Experts(width, experts, layer)

    def forward(self, x, tokens):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.experts(self.norm2(x), tokens)


def main():
    """Some steps of training."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(5)
    with torch.device("cuda"):
        word = nn.Embedding(32000, options.width)
        blocks = nn.ModuleList(Block(options.width, 8, options.experts, layer)
                               for layer in range(options.layers))
        head = nn.Linear(options.width, 32000)
    model = nn.ModuleList((word, blocks, head))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        tokens = torch.randint(0, 32000, (options.batch, options.sequence), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = word(tokens)
            for block in blocks:
                x = block(x, tokens)
            loss = functional.cross_entropy(head(x[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step + 1}")


if __name__ == "__main__":
    main()
