# SPDX-License-Identifier: Apache-2.0
"""Training steps whose sequences differ in length."""
import small_gpt
import torch_test

LENGTHS = [17, 120, 64, 33, 128, 90]


def program(child):
    model = small_gpt.make(child.torch, "cuda")
    small_gpt.train(child.torch, model, LENGTHS, 4, "cuda", child.mark)


if __name__ == "__main__":
    torch_test.compare(__file__, program)
