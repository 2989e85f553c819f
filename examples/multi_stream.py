# SPDX-License-Identifier: Apache-2.0
"""Loads batches on a stream of its own while the default stream works on the one before: what
record_stream is for.

    berm shadow --compare -- python examples/multi_stream.py"""
import argparse
import random

import torch


def main():
    """Copies of random size on one stream, products of matrices on the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rows", type=int, default=8192, help="of a batch, at most (%(default)s)")
    parser.add_argument("--width", type=int, default=1024)
    options = parser.parse_args()
    random.seed(3)
    weights = [torch.randn(options.width, options.width, device="cuda") for _ in range(4)]
    pinned = torch.empty(options.rows, options.width, pin_memory=True)
    loader = torch.cuda.Stream()
    for _ in range(options.batches):
        rows = random.randint(options.rows // 8, options.rows)
        with torch.cuda.stream(loader):
            batch = pinned[:rows].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(loader)
        batch.record_stream(torch.cuda.current_stream())
        x = batch
        del batch
        for weight in weights:
            x = torch.relu(x @ weight)
        total = x.sum()
    print(f"{options.batches} batches, {total.item():.1f}")


if __name__ == "__main__":
    main()
