# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel in two processes: a GPT, whose memory is compared; and a model so small
that all its values are kept (berm._values), which both ranks are to train to what one process
trains it to on the CPU, with both ranks' data."""
import small_gpt
import torch_ranks

STEPS = 3


def train_known(child, rank):
    """Both ranks start from different parameters, and get those of rank 0."""
    torch = child.torch

    def make():
        return torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(),
                                   torch.nn.Linear(20, 1))

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    torch.manual_seed(1)
    data = [(torch.randn(torch_ranks.RANKS * 4, 12), torch.randn(torch_ranks.RANKS * 4, 1))
            for _ in range(STEPS)]
    torch.manual_seed(2)
    alone = make()
    torch.manual_seed(2 + rank)
    model = torch.nn.parallel.DistributedDataParallel(make().cuda())
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.1) for each in (alone, model)]
    for x, y in data:
        step(alone, optimizers[0], x, y)
        step(model, optimizers[1], x[rank * 4:][:4].cuda(), y[rank * 4:][:4].cuda())
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(ours.cpu(), theirs, atol=1e-5), (ours.cpu(), theirs)


def program(child, rank):
    torch = child.torch
    model = small_gpt.make(torch, "cuda")
    child.mark("model")
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank],
                                                      bucket_cap_mb=1)
    child.mark("DDP")
    small_gpt.train(torch, model, [64] * STEPS, 4, "cuda", child.mark)
    with model.no_sync():
        small_gpt.train(torch, model, [32], 4, "cuda", lambda label: None)
    child.mark("no_sync")
    del model
    child.mark("GPT done")
    train_known(child, rank)
    child.mark("end")


if __name__ == "__main__":
    torch_ranks.compare(__file__, program)
