# SPDX-License-Identifier: Apache-2.0
"""A request that fails raises under plain hooks: it never gives a tensor without memory. So it does
where no libc10 is loaded yet, as a RuntimeError. Size 0 is no failure."""
import os
import sys

import torch_test


def program(torch):
    assert torch.empty(0, device="cuda").data_ptr() == 0
    kept = torch.empty(1 << 20, device="cuda")
    for _ in range(3):  # libberm reports one failure a second; the others have its line
        try:
            tensor = torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert "out of device memory" in str(error), error
            assert "Tried to allocate 16384.00 GiB" in str(error), error
        else:
            raise AssertionError(f"no error; the tensor's address is {tensor.data_ptr()}")
    torch.cuda.set_per_process_memory_fraction(0.001)
    try:
        torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "limit" in str(error), error
    else:
        raise AssertionError("above the limit, and no error")
    assert kept.data_ptr() != 0
    del kept
    torch.cuda.empty_cache()
    print("ok")


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        program(torch_test.load(route))
        return 0
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    failed = False
    for route in ("hooks", "subclass"):
        status, output, errors = torch_test.run_child(__file__, route)
        if status != 0 or "ok" not in output:
            print(f"FAIL: {route}: exit {status}: {output[-500:]}{errors[-1500:]}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
