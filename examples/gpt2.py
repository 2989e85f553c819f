# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 (124 million parameters unless told otherwise) on random tokens: the kind of
program to ask "will it fit" of.

    berm shadow -- python examples/gpt2.py --batch 8
    berm shadow --fit -- python examples/gpt2.py --batch {}"""
import argparse
import random

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a perceptron, each behind its norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Tokens to logits; the embedding is the output's matrix too."""

    def __init__(self, words, context, width, layers, heads):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.word.weight

    def forward(self, tokens):
        x = self.word(tokens) + self.place.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=8, help="sequences a step (%(default)s)")
    parser.add_argument("--sequence", type=int, default=1024, help="tokens each (%(default)s)")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--words", type=int, default=50257)
    parser.add_argument("--vary", action="store_true",
                        help="batch and length are drawn anew for each step, up to the options")
    return parser.parse_args()


def main():
    """Some steps of training."""
    options = read_options()
    random.seed(1)
    with torch.device("cuda"):
        model = Gpt(options.words, options.sequence, options.width, options.layers, options.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        batch, length = options.batch, options.sequence
        if options.vary:
            batch = random.randint(max(1, batch // 4), batch)
            length = random.randint(min(64, length), length)
        tokens = torch.randint(0, options.words, (batch, length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step + 1}: {batch} x {length} tokens, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
