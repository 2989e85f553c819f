# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of graph pools, as cudagraph trees use them: what lived in a pool when a graph had been
captured lives again, at the same addresses, after other tensors came and went there; tensors that are
stale then lose their memory. Under native and the subclass alike."""
import torch_test

SIZES = (1000, 3_000_000, 40, 700_000)


def rebuilt(torch, tensor_like):
    """A tensor over an address that lives again, without an owner yet."""
    address, size = tensor_like
    storage = torch._C._construct_storage_from_data_pointer(address, torch.device("cuda", 0), size)
    return torch.empty([0], dtype=torch.uint8, device="cuda").set_(storage, 0, (size,), (1,))


def captured(torch, pool, make):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = make()
    return graph, result


def blocks(torch, pool):
    return sorted(block["address"]
                  for segment in torch.cuda.memory_snapshot(pool) for block in segment["blocks"]
                  if block["state"] == "active_allocated")


def program(child):
    """The native allocator gives what lives again its rounded size for what was asked for; so what is
    compared are the numbers of blocks."""
    torch = child.torch

    def mark(label):
        stats = torch.cuda.memory_stats()
        child.marks.append([label, stats["allocation.all.current"], stats["active.all.current"]])

    inputs = torch.zeros(10, device="cuda")
    pool = torch.cuda.graph_pool_handle()

    def first():
        made = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in SIZES]
        gap = torch.empty(500_000, dtype=torch.uint8, device="cuda")
        made.append(inputs + 1)
        del gap
        return made

    graph, kept = captured(torch, pool, first)
    state = torch._C._cuda_getCheckpointState(0, pool)
    before = blocks(torch, pool)
    addresses = [(tensor.data_ptr(), tensor.untyped_storage().nbytes()) for tensor in kept]
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool, {at for at, _ in addresses})
    assert not torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
    mark("first")
    kept.clear()
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
    other, stale = captured(torch, pool, lambda: [torch.empty(2_000_000, device="cuda"),
                                                  torch.empty(123, device="cuda")])
    mark("second")
    # Back to the first: the second's tensors are stale, the first's get owners again.
    owners = [rebuilt(torch, one) for one in addresses]
    torch._C._cuda_setCheckpointPoolState(
        0, state, [tensor.untyped_storage()._cdata for tensor in stale],
        [tensor.untyped_storage()._cdata for tensor in owners])
    assert blocks(torch, pool) == before, (blocks(torch, pool), before)
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool, {at for at, _ in addresses})
    mark("restored")
    stale.clear()  # nothing is freed twice
    third, more = captured(torch, pool, lambda: [torch.empty(1_000_000, device="cuda")])
    assert not {more[0].data_ptr()} & {at for at, _ in addresses}
    mark("third, on top")
    owners.clear()
    more.clear()
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
    mark("dropped")
    del graph, other, third
    torch.cuda.empty_cache()
    assert not torch.cuda.memory_snapshot(pool)
    mark("end")


if __name__ == "__main__":
    torch_test.compare(__file__, program, routes=("native", "subclass"))
