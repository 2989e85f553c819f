# SPDX-License-Identifier: Apache-2.0
"""Trains a small U-Net to take noise from images, at sizes that change from step to step, and then
draws with it: the memory of a diffusion model.

    berm shadow -- python examples/unet.py --batch 16"""
import argparse
import random

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions, told how much noise there is."""

    def __init__(self, before, after, told):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.told = nn.Linear(told, after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, told):
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.told(functional.silu(told))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Every place of the image looks at every other."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        batch, width, height, length = x.shape
        parts = self.qkv(self.norm(x)).view(batch, 3, 4, width // 4, height * length)
        query, key, value = parts.transpose(-1, -2).unbind(1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(-1, -2).reshape(batch, width, height, length))


class UNet(nn.Module):
    """Down to an eighth and up again."""

    def __init__(self, width):
        super().__init__()
        widths = [width, width * 2, width * 4, width * 4]
        told = width * 4
        self.told = nn.Sequential(nn.Linear(1, told), nn.SiLU(), nn.Linear(told, told))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b, told) for a, b in zip([width] + widths, widths))
        self.middle = nn.ModuleList((Residual(widths[-1], widths[-1], told),
                                     Attention(widths[-1]),
                                     Residual(widths[-1], widths[-1], told)))
        self.up = nn.ModuleList(Residual(2 * b, a, told)
                                for a, b in zip(([width] + widths)[-2::-1], widths[::-1]))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, noise):
        told = self.told(noise[:, None])
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x, told)
            kept.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.middle[2](self.middle[1](self.middle[0](x, told)), told)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2)
            x = block(torch.cat((x, kept.pop()), 1), told)
        return self.last(x)


def main():
    """Training at several sizes, then drawing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--draws", type=int, default=4, help="steps of drawing (%(default)s)")
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    random.seed(4)
    model = UNet(options.width).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(options.steps):
        height, length = (random.choice((64, 96, 128)) for _ in range(2))
        image = torch.randn(options.batch, 3, height, length, device="cuda")
        noise = torch.rand(options.batch, device="cuda")
        drop = torch.randn_like(image)
        mixed = image * (1 - noise)[:, None, None, None] + drop * noise[:, None, None, None]
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.mse_loss(model(mixed, noise), drop)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step + 1}: {height} x {length}")
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.float16):
        image = torch.randn(options.batch, 3, 128, 128, device="cuda")
        for step in range(options.draws):
            noise = torch.full((options.batch,), 1 - step / options.draws, device="cuda")
            image = image - model(image, noise) / options.draws
    print(f"drew {tuple(image.shape)}")


if __name__ == "__main__":
    main()
