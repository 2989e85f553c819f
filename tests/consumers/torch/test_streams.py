# SPDX-License-Identifier: Apache-2.0
"""Tensors that are used on other streams than their own, with record_stream; freed early."""
import torch_test


def program(child):
    torch = child.torch
    sides = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    for round_ in range(8):
        for index, side in enumerate(sides):
            tensor = torch.full((100_000 * (index + 1) + round_,), 1.0, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                result = tensor * 2 + 1
                tensor.record_stream(side)
            del tensor
            if round_ % 3 == index:
                kept.append(result)
            del result
        child.mark(f"round {round_}")
    # Neither a view nor what holds no memory is in the way.
    view = torch.zeros(1000, device="cuda")[10:]
    view.record_stream(sides[0])
    torch.empty(0, device="cuda").record_stream(sides[0])
    del view
    kept.clear()
    child.mark("end")
    torch.cuda.empty_cache()
    child.mark("emptied")


if __name__ == "__main__":
    torch_test.compare(__file__, program)
