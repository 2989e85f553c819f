# SPDX-License-Identifier: Apache-2.0
"""usage: standins_torch.py PROGRAM...

Small programs of a CUDA build of PyTorch on the simulated device, with the stand-ins made for it.
What is checked is that they run, and the shapes: kernels do nothing here."""
import faulthandler
import json
import os
import sys
import tempfile

sys.path.insert(0, os.environ["BERM_SOURCE"] + "/python")
from berm import _standins  # pylint: disable=wrong-import-position

faulthandler.enable()
_standins.load(_standins.make(_standins.torch_folder()))

import torch  # pylint: disable=wrong-import-position
from torch import nn
from torch.nn import functional

DEVICE = "cuda"


def imported():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.zeros(4, device=DEVICE).cpu().tolist() == [0, 0, 0, 0]
    assert torch.backends.cudnn.version() >= 90000 and torch.cuda.nccl.version() >= (2, 20)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


def gpt():
    words, width, length = 500, 128, 64
    model = nn.Sequential(nn.Embedding(words, width), Block(width, 4), Block(width, 4),
                          nn.LayerNorm(width), nn.Linear(width, words, bias=False)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    peaks = []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        tokens = torch.randint(0, words, (2, length), device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(tokens).view(-1, words), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        peaks.append(torch.cuda.max_memory_allocated())
    parameters = sum(item.numel() for item in model.parameters()) * 4
    assert peaks[1] == peaks[2] > 4 * parameters, peaks  # weights, gradients and two moments


def convolution():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Conv2d(16, 8, 3, stride=2, groups=2),
                          nn.ConvTranspose2d(8, 4, 3)).to(DEVICE)
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        out = model(torch.randn(4, 3, 32, 32, device=DEVICE))
        assert out.shape == (4, 4, 9, 9)
        out.sum().backward()
    nn.Conv3d(2, 2, 3).to(DEVICE)(torch.randn(1, 2, 8, 8, 8, device=DEVICE)).sum().backward()


def recurrent():
    for cell in (nn.LSTM, nn.GRU, nn.RNN):
        for both in (False, True):
            model = cell(16, 32, 2, bidirectional=both, dropout=0.1).to(DEVICE)
            out, _ = model(torch.randn(5, 3, 16, device=DEVICE))
            assert out.shape == (5, 3, 64 if both else 32)
            out.sum().backward()
    out, _ = nn.LSTM(16, 32, 2, proj_size=8).to(DEVICE)(torch.randn(5, 3, 16, device=DEVICE))
    assert out.shape == (5, 3, 8)
    nn.LSTM(16, 32, bias=False).to(DEVICE).half()(torch.randn(5, 3, 16, device=DEVICE).half())


def fourier():
    x = torch.randn(8, 64, device=DEVICE)
    assert torch.fft.rfft(x).shape == (8, 33)
    assert torch.fft.irfft(torch.fft.rfft(x)).shape == (8, 64)
    assert torch.fft.fft2(torch.randn(4, 16, 16, device=DEVICE)).shape == (4, 16, 16)


def linear():
    for kind in (torch.float32, torch.float64, torch.complex64):
        for batch in ((), (3,)):
            a = torch.randn(*batch, 8, 8, device=DEVICE, dtype=kind)
            linalg = torch.linalg
            for function in (linalg.inv, linalg.qr, linalg.svd, linalg.eigh, linalg.cholesky,
                             linalg.lu_factor, linalg.eigvals, linalg.svdvals, linalg.pinv,
                             linalg.ldl_factor):
                function(a)
            linalg.solve(a, a)
            linalg.solve_triangular(a, a, upper=True)
            torch.cholesky_solve(a, a)
    linalg.lstsq(a.real, a.real)


def products():
    for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
        a = torch.randn(16, 16, device=DEVICE, dtype=kind)
        for out in (a @ a, torch.bmm(a[None], a[None]), torch.addmm(a[0], a, a)):
            assert out.shape[-2:] == (16, 16)
        assert torch.mv(a, a[0]).shape == (16,) and torch.dot(a[0], a[0]).shape == ()
    q = torch.randn(2, 4, 64, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    backend = torch.nn.attention.SDPBackend
    for which in (backend.MATH, backend.FLASH_ATTENTION, backend.EFFICIENT_ATTENTION,
                  backend.CUDNN_ATTENTION):
        with torch.nn.attention.sdpa_kernel(which):
            functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()


def sparse():
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.ones(3),
                                  (2, 3)).to(DEVICE)
    assert torch.sparse.mm(coo, torch.randn(3, 4, device=DEVICE)).shape == (2, 4)
    csr = torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 2]), torch.ones(3),
                                  (2, 3)).to(DEVICE)
    assert (csr @ torch.randn(3, 4, device=DEVICE)).shape == (2, 4)
    assert (csr @ torch.randn(3, device=DEVICE)).shape == (2,)


def profile():
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, profile_memory=True) as found:
        x = torch.randn(64, 64, device=DEVICE)
        (x @ x).sum()
    assert "aten::mm" in [event.key for event in found.key_averages()]
    with tempfile.TemporaryDirectory() as folder:
        found.export_chrome_trace(folder + "/trace.json")
        with open(folder + "/trace.json", encoding="utf-8") as file:
            assert json.load(file)["traceEvents"]


def distributed():
    """One of two processes: DDP (which needs the values of small tensors), FSDP2, collectives."""
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("nccl")
    total = torch.tensor([1.0 + rank]).to(DEVICE)
    torch.distributed.all_reduce(total)
    assert total.cpu().tolist() == [3.0]
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(DEVICE)
    step(nn.parallel.DistributedDataParallel(model))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(DEVICE)
    from torch.distributed.fsdp import fully_shard
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    step(model)
    torch.distributed.destroy_process_group()


def step(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(8, 64, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


for name in sys.argv[1:]:
    globals()[name]()
    torch.cuda.synchronize()
    print(f"{name}: {torch.cuda.max_memory_reserved() >> 20} MiB reserved at most")
# Torch's autograd threads may still drop a graph while the interpreter ends, which with Python before
# 3.12 aborts now and then, on any device: this process ends without it.
sys.stdout.flush()
os._exit(0)
