# SPDX-License-Identifier: Apache-2.0
"""Trains a residual network on random images, on one GPU or, started with RANK, WORLD_SIZE and
MASTER_ADDR set (as torchrun does), on several with DistributedDataParallel.

    berm shadow -- torchrun --nproc-per-node 2 examples/vision.py"""
import argparse
import os

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """A bottleneck: three convolutions and a way around them."""

    def __init__(self, before, width, after, stride):
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True), nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after))
        self.around = nn.Identity()
        if before != after or stride != 1:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False),
                                        nn.BatchNorm2d(after))

    def forward(self, x):
        return functional.relu(self.way(x) + self.around(x))


def network(blocks, classes):
    """The residual network of 50 layers, with the default blocks."""
    parts = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
             nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            parts.append(Residual(before, width, width * 4, 2 if stage > 0 and block == 0 else 1))
            before = width * 4
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def main():
    """Some steps of training, and one of validation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=32, help="images of a GPU (%(default)s)")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    model = network((3, 4, 6, 3), 1000).cuda().to(memory_format=torch.channels_last)
    if ranks > 1:
        torch.distributed.init_process_group("nccl")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for step in range(options.steps):
        images = torch.randn(options.batch, 3, options.size, options.size)
        images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 1000, (options.batch,)).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step + 1}")
    model.eval()
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
        right = (model(images).argmax(1) == labels).sum().item()
    print(f"{right} of {options.batch} right")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
