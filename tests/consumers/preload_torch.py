# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program whose allocator asks the CUDA runtime, under libberm_preload.so: two streams,
training steps, empty_cache, a graph where the backend can have one here. Prints one line."""
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    x = torch.empty(256 + 64 * step, 1024, device="cuda")
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.empty_cache()
with torch.cuda.stream(torch.cuda.Stream()):
    side = torch.empty(30 << 20, device="cuda")
backend = torch.cuda.get_allocator_backend()
if backend == "native":
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        held = torch.empty(1 << 20, device="cuda").add_(1)
    graph.replay()
torch.cuda.synchronize()
try:
    torch.empty(1 << 40, device="cuda")
    raise SystemExit("a terabyte was allocated")
except RuntimeError: # with caching torch.OutOfMemoryError
    pass
torch.empty(1 << 20, device="cuda")
print(backend, "done")
