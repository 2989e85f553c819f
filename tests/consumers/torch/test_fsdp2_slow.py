# SPDX-License-Identifier: Apache-2.0
"""FSDP2 (fully_shard) in two processes: a GPT, whose memory is compared; and a model so small that
all its values are kept (berm._values), which is to be trained to what one process trains it to on
the CPU, with both ranks' data."""
import small_gpt
import torch_ranks

STEPS = 3


def shard(torch, model, parts):
    from torch.distributed.fsdp import fully_shard
    for part in parts:
        fully_shard(part)
    return fully_shard(model)


def train_known(child, rank):
    torch = child.torch
    torch.manual_seed(1)
    data = [(torch.randn(torch_ranks.RANKS * 4, 12), torch.randn(torch_ranks.RANKS * 4, 1))
            for _ in range(STEPS)]

    def make():
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(),
                                   torch.nn.Linear(20, 1))

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    alone, model = make(), make().cuda()
    shard(torch, model, [model[0], model[2]])
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.1) for each in (alone, model)]
    for x, y in data:
        step(alone, optimizers[0], x, y)
        step(model, optimizers[1], x[rank * 4:][:4].cuda(), y[rank * 4:][:4].cuda())
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        whole = ours.full_tensor().cpu()
        assert torch.allclose(whole, theirs, atol=1e-5), (whole, theirs)


def program(child, rank):
    torch = child.torch
    model = small_gpt.make(torch, "cuda")
    child.mark("model")
    shard(torch, model, model.blocks)
    child.mark("sharded")
    small_gpt.train(torch, model, [64] * STEPS, 4, "cuda", child.mark)
    del model
    child.mark("GPT done")
    train_known(child, rank)
    child.mark("end")


if __name__ == "__main__":
    torch_ranks.compare(__file__, program)
