# SPDX-License-Identifier: Apache-2.0
"""MemPool and use_mem_pool: routed requests, nesting, use counts, and what outlives its pool. With
plain hooks PyTorch has no MemPool and says so."""
import torch_test


def refused(child):
    try:
        child.torch.cuda.MemPool()
    except RuntimeError as error:
        assert "createOrIncrefPool" in str(error), error
        return
    raise AssertionError("MemPool works with plain hooks: compare it too")


def program(child):
    torch = child.torch
    torch.empty(1, device="cuda")
    if child.route == "hooks":
        refused(child)
        return
    pool, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    assert pool.use_count() == 1, pool.use_count()
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2, pool.use_count()
        kept = torch.empty(3_000_000, device="cuda")
        with torch.cuda.use_mem_pool(inner):
            nested = torch.empty(1_000_000, device="cuda")
        small = torch.empty(10, device="cuda")
    assert pool.use_count() == 1, pool.use_count()
    child.mark("allocated")
    for owner, tensors in ((pool, (kept, small)), (inner, (nested,))):
        segments = owner.snapshot()
        live = {block["address"] for segment in segments for block in segment["blocks"]
                if block["state"] == "active_allocated"}
        assert live == {tensor.data_ptr() for tensor in tensors}, (live, tensors)
        assert all(tuple(segment["segment_pool_id"]) == owner.id for segment in segments)
    outside = torch.empty(3_000_000, device="cuda")
    del kept
    child.mark("freed")
    with torch.cuda.use_mem_pool(pool):
        kept = torch.empty(2_000_000, device="cuda")
    child.mark("again")
    del pool, inner
    child.mark("pools dropped")
    kept[0] = 1  # it outlives its pool
    del kept, small, nested, outside
    torch.cuda.empty_cache()
    child.mark("end")


if __name__ == "__main__":
    # Under hooks nothing is marked: what is to be compared is the other three.
    import os
    if os.environ.get("BERM_TEST_ROUTE") is None:
        status, _, errors = torch_test.run_child(__file__, "hooks")
        if status != 0:
            print(f"FAIL: hooks: {errors[-1500:]}")
            raise SystemExit(1)
    torch_test.compare(__file__, program, routes=("native", "expandable", "subclass"))
