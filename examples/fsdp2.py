# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer whose parameters, gradients and optimizer state are sharded over the GPUs by
FSDP2 (fully_shard), in bfloat16; one process a GPU, started by torchrun.

    berm shadow -- torchrun --nproc-per-node 2 examples/fsdp2.py --layers 4"""
import argparse
import os

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=4, help="sequences of a GPU (%(default)s)")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    with torch.device("cuda"):
        words = nn.Embedding(50257, options.width)
        layers = nn.ModuleList(
            nn.TransformerEncoderLayer(options.width, options.width // 64, 4 * options.width,
                                       dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(options.layers))
        model = nn.ModuleDict({"words": words, "layers": layers,
                               "head": nn.Linear(options.width, 50257, bias=False)})
        mask = nn.Transformer.generate_square_subsequent_mask(options.length)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (words, *layers, model["head"]):
        fully_shard(part, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        tokens = torch.randint(0, 50257, (options.batch, options.length), device="cuda")
        hidden = words(tokens)
        for layer in layers:
            hidden = layer(hidden, src_mask=mask.to(hidden.dtype), is_causal=True)
        logits = model["head"](hidden).float()
        loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if torch.distributed.get_rank() == 0:
            print(f"step {step + 1}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
