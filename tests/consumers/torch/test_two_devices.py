# SPDX-License-Identifier: Apache-2.0
"""Two devices in one process: training on each, tensors that go from one to the other, and frees
while the other device is the current one."""
import small_gpt
import torch_test


def program(child):
    torch = child.torch
    assert torch.cuda.device_count() == 2
    models = [small_gpt.make(torch, f"cuda:{device}", layers=1) for device in range(2)]
    for device, model in enumerate(models):
        small_gpt.train(torch, model, [32, 32], 2, f"cuda:{device}", lambda label: None)
        child.mark(f"trained on {device}")
    here = torch.ones(500_000, device="cuda:0")
    there = here.to("cuda:1")
    assert there.device.index == 1
    with torch.cuda.device(1):
        del here
    with torch.cuda.device(0):
        del there
    child.mark("moved")
    del models, model
    child.mark("end")


if __name__ == "__main__":
    torch_test.compare(__file__, program, SIMCUDA_DEVICES="2")
