# SPDX-License-Identifier: Apache-2.0
"""Training steps of one shape."""
import small_gpt
import torch_test


def program(child):
    model = small_gpt.make(child.torch, "cuda")
    child.mark("model")
    small_gpt.train(child.torch, model, [64] * 4, 4, "cuda", child.mark)
    del model
    child.mark("end")


if __name__ == "__main__":
    torch_test.compare(__file__, program)
