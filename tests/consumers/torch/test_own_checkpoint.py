# SPDX-License-Identifier: Apache-2.0
"""States of graph pools, as torch.compile's graph trees use them: cases of TestBlockStateAbsorption
(see own.py)."""
import contextlib
import threading

import own
from own import MIB, check, equal

group = own.Group(__file__)
case = group.case


def segments_of(torch, pool):
    return [segment for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) == tuple(pool)]


def live_of(torch, pool):
    return sum(block["state"] == "active_allocated"
               for segment in segments_of(torch, pool) for block in segment["blocks"])


def graphed(torch, function, inputs=(), pool=None):
    """Runs the function once, and captures it."""
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function(*inputs)
    stream.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        outputs = function(*inputs)
    return graph, outputs


def ones(torch, size):
    return torch.ones([size], device="cuda", dtype=torch.uint8)


def restore(torch, state, stale=(), owners=()):
    torch._C._cuda_setCheckpointPoolState(0, state, [each.untyped_storage()._cdata for each in stale],
                                          [each.untyped_storage()._cdata for each in owners])


def same_after(torch, function, inputs=()):
    """The pool is the same after the state that was taken is restored."""
    graph, outputs = graphed(torch, function, inputs)
    pool = graph.pool()
    before = segments_of(torch, pool)
    restore(torch, torch._C._cuda_getCheckpointState(0, pool))
    compare(before, segments_of(torch, pool))
    del outputs


def compare(before, after):
    """What was there is there, block for block; more may be."""
    by_address = {segment["address"]: segment for segment in after}
    for segment in before:
        other = by_address.get(segment["address"])
        check(other is not None, f"no segment at {segment['address']:#x}")
        for name in ("device", "total_size", "allocated_size", "active_size", "segment_type",
                     "segment_pool_id"):
            equal(other[name], segment[name], name)
        equal([(block["size"], block["state"]) for block in other["blocks"]],
              [(block["size"], block["state"]) for block in segment["blocks"]], "blocks")


@case("TestBlockStateAbsorption.test_simple", "blocks of several sizes, kept and temporary")
def several(child):
    torch = child.torch

    def function():
        x = torch.zeros([8 * MIB], device="cuda", dtype=torch.uint8)
        x = x + x
        x1 = ones(torch, MIB) + ones(torch, MIB) + ones(torch, MIB)
        return x, ones(torch, MIB) + x1, ones(torch, MIB)

    same_after(torch, function)


@case("TestBlockStateAbsorption.test_allocated_in_middle_of_segment, _multiple_middle_allocations, "
      "_middle_allocations_contiguous", "some of many small blocks are kept, apart or side by side")
def middle(child):
    torch = child.torch
    for kept in ((5,), (5, 8), (5, 6)):
        def function():
            made = [ones(torch, 512) for _ in range(11)]
            return [made[at] for at in kept]
        same_after(torch, function)


@case("TestBlockStateAbsorption.test_additional_free_following_checkpoint",
      "what a later graph allocated is stale after the restoration")
def later_graph(child):
    torch = child.torch
    graph, outputs = graphed(torch, lambda: (ones(torch, 512),))
    pool = graph.pool()
    before = segments_of(torch, pool)
    state = torch._C._cuda_getCheckpointState(0, pool)
    other, stale = graphed(torch, lambda: (ones(torch, 512),), pool=pool)
    restore(torch, state, stale)
    del stale
    compare(before, segments_of(torch, pool))
    del outputs, other


@case("TestBlockStateAbsorption.test_tensor_dies_after_checkpoint",
      "what died lives again after the restoration, and is freed by its address")
def dies(child):
    torch = child.torch
    graph, outputs = graphed(torch, lambda: (ones(torch, 512), ones(torch, 512)))
    pool = graph.pool()
    state = torch._C._cuda_getCheckpointState(0, pool)
    addresses = [each.data_ptr() for each in outputs]
    del outputs
    restore(torch, state)
    equal(live_of(torch, pool), 2, "live blocks")
    for left, address in zip((1, 0), addresses):
        torch._C._cuda_cudaCachingAllocator_raw_delete(address)
        equal(live_of(torch, pool), left, "live blocks")


@case("TestBlockStateAbsorption.test_assigning_back_deleter_fns_to_tensor",
      "tensors made over old addresses see the graph's results; those that become owners free them")
def owners(child):
    torch = child.torch
    source = torch.tensor([1], device="cuda")

    def function(x):
        return ones(torch, 2 * MIB) + x, ones(torch, 2 * MIB) + x, ones(torch, 20 * MIB) + x

    graph, outputs = graphed(torch, function, (source,))
    pool = graph.pool()
    graph.replay()
    for each in outputs:
        equal(each.mean(dtype=torch.float).item(), 2, "the mean")
    state = torch._C._cuda_getCheckpointState(0, pool)
    shapes = [(each.untyped_storage().data_ptr(), each.untyped_storage().nbytes(), each.shape,
               each.stride(), each.dtype) for each in outputs]
    equal(live_of(torch, pool), 3, "live blocks")
    del outputs, each
    equal(live_of(torch, pool), 0, "live blocks")
    made = []
    for address, nbytes, shape, stride, dtype in shapes:
        storage = torch._C._construct_storage_from_data_pointer(address, source.device, nbytes)
        made.append(torch.empty([0], device="cuda", dtype=dtype).set_(storage, 0, shape, stride))
    for each in made:
        equal(each.mean(dtype=torch.float).item(), 2, "the mean of a tensor made anew")
    source.add_(1)
    graph.replay()
    for each in made:
        equal(each.mean(dtype=torch.float).item(), 3, "the mean after another replay")
    del each
    restore(torch, state, (), made[:2])
    equal(live_of(torch, pool), 3, "live blocks")
    for at, left in ((0, 2), (1, 1), (2, 1)):
        made[at] = None
        equal(live_of(torch, pool), left, "live blocks")
    torch._C._cuda_cudaCachingAllocator_raw_delete(shapes[2][0])
    equal(live_of(torch, pool), 0, "live blocks")


@case("TestBlockStateAbsorption.test_resnet", "the same of a network with convolutions", keeps=True)
def network(child):
    torch = child.torch
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 7, stride=2, padding=3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, 2, 1), torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)).eval().cuda()
    with torch.no_grad():
        same_after(torch, model, (torch.rand(1, 3, 65, 65, device="cuda"),))


@case("TestBlockStateAbsorption.test_check_pool_live_allocations",
      "which addresses live in a pool is compared with a set")
def live(child):
    torch = child.torch
    pool = torch.cuda.graph_pool_handle()
    graph, outputs = graphed(torch, lambda: torch.ones([4], device="cuda"), pool=pool)

    def is_live(*addresses):
        return torch._C._cuda_checkPoolLiveAllocations(0, pool, set(addresses))

    equal([is_live(outputs.data_ptr()), is_live(outputs.data_ptr(), 0), is_live()],
          [True, False, False], "answers")
    del outputs
    check(is_live(), "nothing lives, and it says no")
    del graph


def in_pool(child, check_count):
    torch = child.torch
    pool = torch.cuda.graph_pool_handle()
    graph, outputs = graphed(torch, lambda: torch.rand([4], device="cuda"), pool=pool)
    del outputs

    @contextlib.contextmanager
    def routed():
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.device(0):
            torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
            try:
                yield
            finally:
                torch._C._cuda_endAllocateToPool(0, pool)
                torch._C._cuda_releasePool(0, pool)
        torch.cuda.current_stream().wait_stream(stream)

    equal(len(segments_of(torch, pool)), 1, "segments of the graph")
    failed, found = [], []

    def three():
        a, b = ones(torch, 20 * MIB), ones(torch, 20 * MIB)
        return [a.data_ptr(), b.data_ptr(), (a + b).data_ptr()]

    def with_pool():
        try:
            with routed():
                for _ in range(4):
                    found.append(set(three()))
            found.append(set(three()))
        except Exception as error:
            failed.append(error)

    def without():
        try:
            for _ in range(4):
                found.append(set(three()))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=each) for each in (with_pool, without)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failed, [], "errors of threads")
    segments = segments_of(torch, pool)
    ranges = [(segment["address"], segment["address"] + segment["total_size"])
              for segment in segments]
    inside = [sum(start <= address < end for address in each for start, end in ranges)
              for each in found]
    equal(sorted(inside), [0] * 5 + [3] * 4, "how many of each three lie in the pool")
    check_count(len(segments))
    del graph
    child.settle()
    equal(segments_of(torch, pool), [], "segments after the graph")


@case("TestBlockStateAbsorption.test_allocate_in_thread_to_pool",
      "a thread that is routed into a graph's pool takes from it, others do not; all goes back")
def thread(child):
    in_pool(child, lambda count: check(count >= 2, f"{count} segments"))


@case("TestBlockStateAbsorption.test_allocate_in_thread_to_pool (segments)",
      "each block of 20 MiB is a segment",
      unmet={"expandable": "fixes native's segment sizes", "subclass": "fixes native's segment sizes"})
def thread_segments(child):
    in_pool(child, lambda count: equal(count, 4, "segments"))


@case("TestBlockStateAbsorption (tear-down)", "no segment of a graph is left by these cases")
def left(child):
    torch = child.torch
    child.settle()
    equal([segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()
           if tuple(segment["segment_pool_id"]) != (0, 0)], [], "pools with memory")


@case("TestBlockStateAbsorption.test_no_triton_on_import", "a first use of CUDA imports no Triton")
def triton(child):
    done = child.apart("import sys\ntorch.rand(2, device='cuda')\nprint('triton' in sys.modules)")
    equal(done.stdout.split(), ["False"], f"whether it is imported ({done.stderr[-300:]})")


if __name__ == "__main__":
    group.run()
