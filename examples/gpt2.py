# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 (124M parameters) for a few steps on random tokens: what a training job asks of
GPU memory. Try it without a GPU:

    berm shadow -- python examples/gpt2.py --batch 8"""
import argparse

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    """Attention and a feed-forward network, each with its norm and a residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_forward = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def attention(self, hidden):
        batch, length, width = hidden.shape
        parts = self.queries_keys_values(hidden)
        parts = parts.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, hidden):
        hidden = hidden + self.attention(self.norm_attention(hidden))
        return hidden + self.shrink(functional.gelu(self.expand(self.norm_forward(hidden))))


class Gpt2(nn.Module):
    """The smallest GPT-2, by default."""

    def __init__(self, layers=12, width=768, heads=12, vocabulary=50257, length=1024):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        hidden = self.tokens(tokens)
        hidden = hidden + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


def lengths_of(arguments):
    """The sequence length of each step: the same, or a different one each time."""
    if not arguments.variable:
        return [arguments.length] * arguments.steps
    drawn = torch.Generator().manual_seed(arguments.seed)
    return [64 * int(torch.randint(4, arguments.length // 64 + 1, (), generator=drawn))
            for _ in range(arguments.steps)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence; 1024")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--variable", action="store_true", help="another length in each step")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with torch.device("cuda"):
        model = Gpt2(layers=arguments.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for length in lengths_of(arguments):
        tokens = torch.randint(0, 50257, (arguments.batch, length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(f"{arguments.steps} steps done")


if __name__ == "__main__":
    main()
