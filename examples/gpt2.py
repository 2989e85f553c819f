# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 (124M parameters) for a few steps on random tokens, or generates with it: what
such a job asks of GPU memory. Try it without a GPU:

    berm shadow -- python examples/gpt2.py --batch 8
    berm shadow --compare -- python examples/gpt2.py --loop generate"""
import argparse
import random

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

    def attention(self, hidden, cache):
        batch, length, width = hidden.shape
        parts = self.queries_keys_values(hidden)
        parts = parts.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                key, value = torch.cat((cache[0], key), 2), torch.cat((cache[1], value), 2)
            cache[:] = key, value
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, hidden, cache=None):
        hidden = hidden + self.attention(self.norm_attention(hidden), cache)
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

    def forward(self, tokens, caches=None, start=0):
        """Logits of the tokens, at positions from `start` on; caches: a list for each layer, which
        holds its keys and values of the tokens before, and then of these too."""
        hidden = self.tokens(tokens)
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        hidden = hidden + self.positions(places)
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers)):
            hidden = layer(hidden, cache)
        return self.head(self.norm(hidden))


def lengths_of(arguments):
    """The sequence length of each step: the same, or a different one each time."""
    if arguments.loop == "fixed":
        return [arguments.length] * arguments.steps
    drawn = torch.Generator().manual_seed(arguments.seed)
    return [64 * int(torch.randint(4, arguments.length // 64 + 1, (), generator=drawn))
            for _ in range(arguments.steps)]


def train(model, arguments):
    """Steps of AdamW in mixed precision."""
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


@torch.no_grad()
def generate(model, arguments):
    """Batches of 4 to 16 prompts of different lengths, one after the other, each continued token by
    token with a cache that grows."""
    model = model.bfloat16()
    drawn = random.Random(arguments.seed)
    for _ in range(arguments.requests):
        batch, length = drawn.choice((4, 8, 16)), drawn.randrange(100, 900)
        prompt = torch.randint(0, 50257, (batch, length), device="cuda")
        caches = [[] for _ in model.layers]
        logits = model(prompt, caches)
        for place in range(length, length + arguments.tokens):
            logits = model(logits[:, -1:].argmax(-1), caches, place)
    print(f"{arguments.requests} batches of prompts done")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--loop", choices=("fixed", "variable", "generate"), default="fixed",
                        help="training; with another length in each step; generating")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step; 8")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence; 1024")
    parser.add_argument("--steps", type=int, default=3, help="of training; 3")
    parser.add_argument("--requests", type=int, default=6, help="batches of prompts; 6")
    parser.add_argument("--tokens", type=int, default=64, help="to generate for each; 64")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; 1")
    arguments = parser.parse_args()
    with torch.device("cuda"):
        model = Gpt2(layers=arguments.layers)
    if arguments.loop == "generate":
        generate(model, arguments)
    else:
        train(model, arguments)


if __name__ == "__main__":
    main()
