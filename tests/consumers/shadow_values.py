# SPDX-License-Identifier: Apache-2.0
"""What a program reads from a simulated device (berm._values). Run by test_shadow_torch_slow.sh under
`berm shadow --values small` and `--values all`; the argument says which."""
import sys
import threading

import torch
from torch import nn
from torch.nn import functional

from berm import _values

DEVICE = "cuda"


def same(found, expected):
    """Fails where what was read is not what it should be."""
    assert found == expected, f"{found} is read, {expected} was there"


def near(found, expected, by=1e-3):
    assert abs(found - expected) <= by, f"{found} is read, {expected} was there"


def reads():
    x = torch.tensor([1.0, 2, 3], device=DEVICE)
    same(x.sum().item(), 6)
    same(x.tolist(), [1, 2, 3])
    same(float(x[1]), 2)
    same(str(x), "tensor([1., 2., 3.], device='cuda:0')")
    assert torch.equal(x, x.clone()) and bool((x == x).all())
    host = torch.empty(3)
    host.copy_(x)
    same(host.tolist(), [1, 2, 3])
    same(x.to("cpu", torch.float64).tolist(), [1, 2, 3])
    same(x.new_tensor([4]).item(), 4)
    with torch.device(DEVICE):
        same(torch.tensor([5, 6]).tolist(), [5, 6])
    found = []
    thread = threading.Thread(target=lambda: found.append((x + 1).tolist()))
    thread.start()
    thread.join()
    same(found, [[2, 3, 4]])


def writes():
    x = torch.zeros(3, 2, device=DEVICE)
    x.t()[0].add_(1)
    same(x.tolist(), [[1, 0], [1, 0], [1, 0]])
    x[1] = 7
    x.view(-1)[0] = 5
    same(x.tolist(), [[5, 0], [7, 7], [1, 0]])
    x[x > 4] = torch.tensor([10.0, 20, 30], device=DEVICE)
    same(x.tolist(), [[10, 0], [20, 30], [1, 0]])
    same(x[:, [1, 0]].tolist(), [[0, 10], [30, 20], [0, 1]])
    same(x[[True, False, True]].tolist(), [[10, 0], [1, 0]])
    same((1 in x[[2, 0]], 20 in x[[2, 0]], x[[]].shape[0]), (True, False, 0))
    y = x.clone()
    y[[0, 2], [1, 1]] = 5
    same(y.tolist(), [[10, 5], [20, 30], [1, 5]])
    x.masked_fill_(x == 0, -1)
    same(x.tolist(), [[10, -1], [20, 30], [1, -1]])
    counts = torch.zeros(3, dtype=torch.long, device=DEVICE)
    counts.scatter_add_(0, torch.tensor([0, 2, 2], device=DEVICE), torch.ones_like(counts))
    same(counts.tolist(), [1, 0, 2])
    z = torch.arange(8, device=DEVICE)[3:]
    z.mul_(2)
    same(z.cpu().tolist(), [6, 8, 10, 12, 14])


def sizes():
    x = torch.tensor([3, 1, 3, 0], device=DEVICE)
    same((x == 3).nonzero().flatten().tolist(), [0, 2])
    same(x[x > 0].tolist(), [3, 1, 3])
    same(torch.unique(x).tolist(), [0, 1, 3])
    same(torch.masked_select(x, x != 3).tolist(), [1, 0])
    same(x.repeat_interleave(x).tolist(), [3, 3, 3, 1, 3, 3, 3])
    same(torch.bincount(x).tolist(), [1, 1, 0, 2])
    none = torch.zeros(4, dtype=torch.bool, device=DEVICE)
    same(x[none].numel(), 0)


def loops():
    done, steps = torch.zeros(4, dtype=torch.bool, device=DEVICE), 0
    length = torch.tensor([2, 5, 3, 1], device=DEVICE)
    while not done.all():
        steps += 1
        done |= length <= steps
    same(steps, 5)
    torch.manual_seed(1)
    first = torch.rand(4, device=DEVICE).tolist()
    torch.manual_seed(1)
    same(torch.rand(4, device=DEVICE).tolist(), first)
    assert len(set(first)) == 4 and all(0 <= each < 1 for each in first)


def training():
    """Small parameters are trained as they would be; the same in backward's own thread."""
    weight = [nn.Parameter(torch.ones(4, device=DEVICE)) for _ in range(2)]
    for kind, settings in (("AdamW", {"fused": True}), ("AdamW", {"foreach": True}), ("SGD", {})):
        optimizer = getattr(torch.optim, kind)(weight, lr=0.1, **settings)
        twins = [each.detach().cpu().clone().requires_grad_() for each in weight]
        other = getattr(torch.optim, kind)(twins, lr=0.1)
        for _ in range(3):
            for parameters, each in ((weight, optimizer), (twins, other)):
                each.zero_grad()
                ((parameters[0] * 2).sum() + parameters[1].pow(2).sum()).backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                each.step()
        for one, two in zip(weight, twins):
            near(one[0].item(), two[0].item(), 1e-5)


def graphs():
    inside = torch.zeros(3, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outside = inside * 2 + 1
        total = outside.sum()
    for third in (3.0, 4.0):
        inside.copy_(torch.tensor([1.0, 2, third]))
        graph.replay()
        same(outside.tolist(), [3, 5, third * 2 + 1])
        same(total.item(), 9 + third * 2)


def unknown():
    """What comes from what is large reads as zeros."""
    large = torch.randn(1000, 1000, device=DEVICE)
    same(large.sum().item(), 0)
    same(large.argmax().item(), 0)
    same((large > 0).nonzero().shape, (0, 2))
    small = torch.ones(3, device=DEVICE)
    small.mul_(large[0, :3])
    same(small.fill_(2).tolist(), [2, 2, 2])  # known again
    # Attention has its seed on the host, whether it is used or not: nobody read a value.
    before = _values.counters()["unknown_reads"]
    heads = large[:, :512].reshape(4, 8, 500, 32)
    functional.scaled_dot_product_attention(heads, heads, heads)
    same(_values.counters()["unknown_reads"], before)


def network(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.LayerNorm(32),
                          nn.GELU(), nn.Linear(32, 5))
    mix = nn.MultiheadAttention(32, 4, batch_first=True)
    image, label, text = torch.randn(4, 3, 8, 8), torch.tensor([0, 3, 1, 4]), torch.randn(2, 6, 32)
    model, mix, image, label, text = (each.to(device) for each in (model, mix, image, label, text))
    optimizer = torch.optim.AdamW([*model.parameters(), *mix.parameters()], lr=1e-2)
    losses = []
    for _ in range(4):
        parts = mix.in_proj_weight @ text.reshape(12, 32).t()
        query, key, value = parts.reshape(3, 2, 4, 8, 6).transpose(-1, -2)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        loss = functional.cross_entropy(model(image), label) + mix(text, text, text)[0].pow(2).mean()
        loss = loss + seen.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def everything():
    """With --values all a network learns on the device as it does on the CPU."""
    for found, expected in zip(network(DEVICE), network("cpu")):
        near(found, expected)
    x = torch.randn(6, 6, device=DEVICE)
    x = x @ x.t() + 6 * torch.eye(6, device=DEVICE)
    for each in (torch.linalg.inv(x) @ x).diag().tolist():
        near(each, 1)
    near(torch.fft.ifft(torch.fft.fft(x)).real.sub(x).abs().max().item(), 0)
    try:
        x.to_sparse()
    except NotImplementedError as error:
        assert "sparse" in str(error)
    else:
        raise AssertionError("a sparse tensor was made of what nobody computed")


def main():
    kind = sys.argv[1]
    for each in (reads, writes, sizes, loops, training, graphs):
        each()
    (everything if kind == "all" else unknown)()
    print(f"values {kind}: ok")


main()
