# SPDX-License-Identifier: Apache-2.0
"""Serves text from a decoder with a cache of keys and values that grows token by token, as a plain
loop over torch does it: requests of different lengths come and end.

    berm shadow --compare -- python examples/kv_cache.py"""
import argparse
import random

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    """One decoder layer that extends the cache it is given."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cache):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            key, value = torch.cat((cache[0], key), 2), torch.cat((cache[1], value), 2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.silu(self.up(self.norm2(x)))), (key, value)


class Decoder(nn.Module):
    """Tokens to the next token of each sequence."""

    def __init__(self, words, width, layers, heads):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, caches):
        x, kept = self.word(tokens), []
        for layer, cache in zip(self.layers, caches):
            x, cache = layer(x, cache)
            kept.append(cache)
        return self.head(x[:, -1]).argmax(-1, keepdim=True), kept


def main():
    """A few batches of requests, two of them in flight at a time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=6, help="batches of requests (%(default)s)")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=512, help="tokens at most (%(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="to generate at most (%(default)s)")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    options = parser.parse_args()
    random.seed(2)
    with torch.device("cuda"):
        model = Decoder(32000, options.width, options.layers, 16).bfloat16().eval()
    running, waiting, made = [], options.requests, 0
    with torch.inference_mode():
        while running or waiting:
            while waiting and len(running) < 2:
                length = random.randint(options.prompt // 4, options.prompt)
                prompt = torch.randint(0, 32000, (options.batch, length), device="cuda")
                token, caches = model(prompt, [None] * options.layers)
                running.append([token, caches, random.randint(options.tokens // 4, options.tokens)])
                waiting -= 1
            for request in running:
                request[0], request[1] = model(request[0], request[1])
                request[2] -= 1
                made += options.batch
            running = [request for request in running if request[2] > 0]
    print(f"{made} tokens for {options.requests * options.batch} requests")


if __name__ == "__main__":
    main()
