# SPDX-License-Identifier: Apache-2.0
"""A GPT that is small, for the tests: plain PyTorch."""


def make(torch, device, layers=3, width=192, heads=6, words=1024, context=128):
    nn = torch.nn
    functional = torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, cache=None):
            batch, length, _ = x.shape
            q, k, v = (part.view(batch, length, heads, -1).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split(width, dim=2))
            if cache is not None:
                k = k if not cache else torch.cat([cache[0], k], dim=2)
                v = v if not cache else torch.cat([cache[1], v], dim=2)
                cache[:] = [k, v]
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.place = nn.Embedding(words, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids, caches=None, start=0):
            places = torch.arange(start, start + ids.shape[1], device=ids.device)
            x = self.word(ids) + self.place(places)
            for index, block in enumerate(self.blocks):
                x = block(x, None if caches is None else caches[index])
            return self.head(self.norm(x))

    return Gpt().to(device)


def train(torch, model, lengths, batch, device, mark, words=1024):
    """One step for each length."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, length in enumerate(lengths):
        ids = torch.randint(0, words, (batch, length), device=device)
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, words), ids.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        mark(f"step {step}")
