# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: private pools, a pool that two graphs share, results that outlive their graph, and
ordinary work between captures and launches."""
import torch_test


def capture(torch, inputs, pool=None):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        middle = inputs * 2
        result = (middle + 1).relu()
        del middle
    return graph, result


def program(child):
    torch = child.torch
    inputs = torch.zeros(300_000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (inputs * 2 + 1).relu()
    torch.cuda.current_stream().wait_stream(side)
    child.mark("warm")
    first, result = capture(torch, inputs)
    address = result.data_ptr()
    child.mark("captured")
    second, other = capture(torch, inputs, pool=first.pool())
    child.mark("shared")
    for _ in range(3):
        first.replay()
        second.replay()
        torch.empty(500_000, device="cuda")
    assert result.data_ptr() == address
    child.mark("replayed")
    first.reset()
    child.mark("reset")
    del first, second, inputs
    child.mark("graphs dropped")
    del result, other
    child.mark("results dropped")
    torch.cuda.empty_cache()
    child.mark("emptied")


if __name__ == "__main__":
    # PyTorch's expandable segments edit mappings while a stream is captured.
    torch_test.compare(__file__, program, SIMCUDA_CAPTURE_EDITS="1")
