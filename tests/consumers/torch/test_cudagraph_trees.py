# SPDX-License-Identifier: Apache-2.0
"""torch.compile with cudagraph trees, the graphs of mode="reduce-overhead" (taken by the backend
`cudagraphs`, since inductor's kernels need triton): recording, replaying, several paths from one
graph, which restore checkpoints of the pool, training, and dropping all. Torch's own checks of the
pool are on. Under native and the subclass the numbers of graphs, checkpoints, live and active blocks
and bytes are the same, at every step.

The number of requests so far is not compared: to restore a checkpoint native takes and gives back
what was free, to split its segments as they were, and counts that."""
import gc

import torch_test

WIDTH, ROWS = 256, 64


def trees(torch):
    from torch._inductor import cudagraph_trees
    return cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)


def note(child, label):
    """What lives, and how far the trees are: whether it is a replay, graphs made, checkpoints
    restored."""
    torch = child.torch
    manager = trees(torch)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    child.marks.append([label, *child.counts(0)[1:], stats["active.all.current"],
                        stats["active_bytes.all.current"]])
    if manager is not None:
        child.marks.append([label, str(manager.path_state), repr(manager.graph_counter),
                            manager.debug_checkpointing_counter])


def pool_blocks(torch):
    """The number of live blocks in the trees' pool. While recording they are what tensors of the path
    lie in; a replay writes where its graph was recorded, whether that lives or not."""
    manager = trees(torch)
    live = {block["address"] for segment in torch.cuda.memory_snapshot(
        manager.cuda_graphs_thread_pool) for block in segment["blocks"]
            if block["state"] == "active_allocated"}
    if manager.in_recording:
        wanted = {reference.data_ptr() for reference in manager.current_node.path_live_weakrefs()}
        assert wanted and wanted <= live, (wanted, live)
    return len(live)


def infer(child):
    """Two ways on from one graph, each recorded on top of what the first left in the pool."""
    torch = child.torch
    weight = torch.ones(WIDTH, WIDTH, device="cuda")

    @torch.compile(backend="cudagraphs")
    def first(x):
        return (x @ weight).relu(), x.sum(0)

    @torch.compile(backend="cudagraphs")
    def left(x):
        return (x @ weight) * 2

    @torch.compile(backend="cudagraphs")
    def right(x):
        return torch.cat([x, x]) @ weight

    for round_ in range(4):
        for name, then in (("left", left), ("right", right)):
            torch.compiler.cudagraph_mark_step_begin()
            middle, total = first(torch.ones(ROWS, WIDTH, device="cuda"))
            note(child, f"first {round_} {name}")
            last = then(middle)
            note(child, f"{name} {round_}")
            child.marks.append(["blocks", pool_blocks(torch)])
            kept = total.clone()
            del middle, total
            note(child, f"dropped {round_} {name}")
            del last, kept
    first(torch.ones(ROWS // 2, WIDTH, device="cuda"))
    note(child, "another shape")


def train(child):
    torch = child.torch
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
                                torch.nn.Linear(WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compiled = torch.compile(model, backend="cudagraphs")
    for step in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(torch.ones(ROWS, WIDTH, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del loss
        note(child, f"train {step}")


def program(child):
    torch = child.torch
    from torch._inductor import config, cudagraph_trees
    config.triton.slow_path_cudagraph_asserts = True
    config.triton.fast_path_cudagraph_asserts = True
    infer(child)
    assert trees(torch).debug_checkpointing_counter > 0, "no checkpoint was restored"
    pool = trees(torch).cuda_graphs_thread_pool
    train(child)
    torch._dynamo.reset()
    cudagraph_trees.reset_cudagraph_trees()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert trees(torch) is None and not torch.cuda.memory_snapshot(pool), "the pool is left"
    note(child, "end")


if __name__ == "__main__":
    torch_test.compare(__file__, program, routes=("native", "subclass"))
