# SPDX-License-Identifier: Apache-2.0
"""torch.multiprocessing under the subclass: tensors of the default pool reach another process, small
ones and one of many handles, and come at the offset that they had; with shareable:off only those of
a MemPool(no_split=True) do, others are refused with what to do; with backing:plain any tensor can be
sent. A handle of nobody is an error."""
import os
import sys

import torch_test


def receive(inbox, outbox):
    tensors = inbox.get()
    outbox.put([(tuple(tensor.shape), tensor.data_ptr() != 0, tensor.storage_offset())
                for tensor in tensors])
    inbox.get()  # until the other end is done
    del tensors


def sent(torch, tensors):
    """What another process says of them."""
    import torch.multiprocessing
    context = torch.multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    other = context.Process(target=receive, args=(inbox, outbox))
    other.start()
    inbox.put(tensors)
    found = outbox.get(timeout=120)
    inbox.put(None)
    other.join(60)
    assert other.exitcode == 0, other.exitcode
    return found


def default_pool(torch):
    tensors = [torch.ones(shape, device="cuda") for shape in (7, 1000, 3_000_000, 50_000_000)]
    found = sent(torch, [*tensors, tensors[2][10:20], tensors[0]])
    assert found == [((7,), True, 0), ((1000,), True, 0), ((3_000_000,), True, 0),
                     ((50_000_000,), True, 0), ((10,), True, 10), ((7,), True, 0)], found


def by_descriptor(torch):
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        first = torch.ones(1000, device="cuda")
        second = torch.ones(3_000_000, device="cuda")
    found = sent(torch, [first, second[10:20], first])
    assert found == [((1000,), True, 0), ((10,), True, 10), ((1000,), True, 0)], found
    try:
        torch.ones(10, device="cuda").untyped_storage()._share_cuda_()
    except RuntimeError as error:
        assert "MemPool(no_split=True)" in str(error), error
    else:
        raise AssertionError("memory that others share was shown to another process")
    handle = list(first.untyped_storage()._share_cuda_())
    handle[1] = handle[1].replace(b"berm-", b"none-")
    handle[7] = False  # the event that goes with it is the driver's
    try:
        torch.UntypedStorage._new_shared_cuda(*handle)
    except RuntimeError as error:
        assert "does not answer" in str(error), error
    else:
        raise AssertionError("a handle of a process that is not there")


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        torch = torch_test.load(route)  # of the other process too
        if __name__ == "__main__":
            if os.environ.get("BERM_CONF") == "shareable:off":
                by_descriptor(torch)
            else:
                default_pool(torch)
            print("ok")
        return 0
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    failed = False
    for more in ({}, {"BERM_CONF": "shareable:off"}, {"BERM_CONF": "backing:plain"}):
        status, output, errors = torch_test.run_child(__file__, "subclass", **more)
        if status != 0 or "ok" not in output:
            print(f"FAIL: {more}: exit {status}: {output[-500:]}{errors[-1800:]}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
elif os.environ.get("BERM_TEST_ROUTE"):
    main()  # spawned: torch before the tensors arrive
