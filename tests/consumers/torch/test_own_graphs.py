# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs and their memory: cases of TestCuda (see own.py)."""
import contextlib
import copy
import threading
import warnings

import own
from own import MIB, check, equal, raises

group = own.Group(__file__)
case = group.case
RACES = {route: "values are computed when a replay is launched, so that two replays never run at "
         "once on the simulated device" for route in own.ROUTES}


@contextlib.contextmanager
def captured(torch, graph, *arguments, **named):
    """A capture by hand, on a stream of its own that is joined afterwards."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(*arguments, **named)
        yield stream
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)


def added(tensor, times=10, by=1):
    for _ in range(times):
        tensor = tensor + by
    return tensor


def mixed(tensor, by):
    """Needs two temporaries."""
    first, second = tensor.clone() + by, tensor.clone() + by
    return first + second


@case("TestCuda.test_graph_is_current_stream_capturing", "a stream says whether it is captured")
def is_capturing(child):
    torch = child.torch
    check(not torch.cuda.is_current_stream_capturing(), "captured before")
    with captured(torch, torch.cuda.CUDAGraph()) as stream:
        check(torch.cuda.is_current_stream_capturing() and stream.is_capturing(), "not captured")
        torch.zeros(1, device="cuda")


@case("TestCuda.test_graph_capture_simple",
      "a captured chain of additions is computed by its replay")
def simple(child):
    torch = child.torch
    a = torch.full((1000,), 1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.empty_cache()
    with captured(torch, graph):
        b = added(a)
    graph.replay()
    equal(b.sum().item(), 11000, "the sum")


@case("TestCuda.test_accelerator_graph_simple", "the same with torch.accelerator's graph",
      unmet={route: "torch 2.15 has no such graph for CUDA" for route in own.ROUTES})
def simple_accelerator(child):
    torch = child.torch
    graph, stream = torch.accelerator.Graph(), torch.Stream()
    check(not torch.accelerator.current_stream().is_capturing(), "captured before")
    with stream, graph:
        b = added(torch.full((1000,), 1, device="cuda"))
        check(stream.is_capturing(), "not captured")
    torch.accelerator.current_stream().wait_stream(stream)
    graph.replay()
    equal(b.sum().item(), 11000, "the sum of accelerator's")


@case("TestCuda.test_graph_capture_reset_recapture", "a graph that was reset captures again")
def recaptured(child):
    torch = child.torch
    a = torch.full((1000,), 1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with captured(torch, graph):
        b = added(a)
    graph.replay()
    equal(b.sum().item(), 11000, "the sum")
    graph.reset()
    with captured(torch, graph):
        b.fill_(2)
        c = added(b, by=2)
    graph.replay()
    equal(c.sum().item(), 22000, "the sum of the second")
    graph.reset()


@case("TestCuda.test_graphsafe_set_get_rng_state, test_graph_checkpoint_preserve_rng_state",
      "states of generators in a graph move as they do outside; a checkpoint in a graph keeps them")
def generator_states(child):
    torch = child.torch
    torch.cuda.manual_seed(0)
    generator = torch.cuda.default_generators[0]
    torch.rand(1, device="cuda")
    generator.manual_seed(0)
    old, new = generator.graphsafe_get_state(), generator.clone_state()
    graph = torch.cuda.CUDAGraph()
    for state in (old, new):
        graph.register_generator_state(state)

    def steps():
        generator.graphsafe_set_state(new)
        made = [torch.rand(5, device="cuda", generator=generator)]
        generator.graphsafe_set_state(old)
        return made + [torch.rand(5, device="cuda", generator=generator) for _ in range(2)]

    with captured(torch, graph):
        steps()
    offsets = []
    for _ in range(3):
        graph.replay()
        offsets.append((old.get_offset(), new.get_offset()))
    equal(offsets, [(8 * n, 4 * n) for n in (1, 2, 3)], "offsets after replays")
    torch.cuda.manual_seed(42)

    def function(x):
        return x * torch.sigmoid(torch.randn(1, device="cuda"))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.ones(1, device="cuda", requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
        grad, = torch.autograd.grad(y, x)
    torch.cuda.manual_seed(42)
    graph.replay()
    check(0 < grad.item() < 1, "the gradient of the checkpoint")


@case("TestCuda.test_graph_manual_seed_mismatch_raises", "another seed is refused during a capture")
def seed_refused(child):
    torch = child.torch
    torch.cuda.manual_seed(0)
    with raises(RuntimeError, "set_current_seed"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.cuda.manual_seed(1)


@case("TestCuda.test_graph_rng_functional, test_graph_rng_distributions",
      "random operators in a graph: replays differ, the same seed gives the same, "
      "and nothing is computed by the capture",
      unmet={route: "values of random operators in graphs are not those outside of them: a graph's "
             "seed is in device memory, which the simulated kernels do not read"
             for route in own.ROUTES})
def random_numbers(child):
    torch = child.torch
    a = torch.randn(1000, device="cuda")
    torch.cuda.manual_seed(5)
    graph = torch.cuda.CUDAGraph()
    with captured(torch, graph):
        b = torch.nn.functional.dropout(a, p=0.1)
    torch.cuda.manual_seed(5)
    outside = torch.nn.functional.dropout(a, p=0.1)
    torch.cuda.manual_seed(5)
    graph.replay()
    check(torch.equal(b, outside), "the graph's numbers are not those of eager mode")


@case("TestCuda.test_graph_rng_distributions (repetition)",
      "random operators in a graph: replays differ, and the same seed gives the same again")
def random_again(child):
    torch = child.torch
    source = torch.rand(1000, device="cuda")
    for make in (lambda: torch.bernoulli(source), lambda: torch.normal(source + 1, 1.0),
                 lambda: torch.poisson(source), lambda: torch.rand(1000, device="cuda"),
                 lambda: torch.randn(1000, device="cuda"),
                 lambda: source.clone().exponential_(), lambda: source.clone().cauchy_(),
                 lambda: torch.randint(0, 30, (1000,), device="cuda")):
        graph = torch.cuda.CUDAGraph()
        with captured(torch, graph):
            first, second = make(), make()
        kept = []
        for seed in (6, 7, 6):
            torch.cuda.manual_seed(seed)
            graph.replay()
            kept.append((first.clone(), second.clone()))
        check(not torch.equal(*kept[0]), "two operators of a graph give the same")
        check(not torch.equal(kept[0][0], kept[1][0]), "two seeds give the same")
        check(torch.equal(kept[0][0], kept[2][0]) and torch.equal(kept[0][1], kept[2][1]),
              "a seed gives another result the second time")


@case("TestCuda.test_memory_stats_of_multiple_generators_and_graphs",
      "a graph that uses random numbers has two blocks of 512 bytes for their state, which go with it")
def generator_blocks(child):
    import gc
    torch = child.torch

    def active():
        stats = torch.cuda.memory_stats()
        return stats["active.all.current"], stats["active_bytes.all.current"]

    for graphs, states in ((1, 1), (3, 2), (4, 8)):
        before = active()
        made = [torch.cuda.CUDAGraph() for _ in range(graphs)]
        generator = torch.cuda.default_generators[0]
        kept = [generator.graphsafe_get_state()]
        kept += [generator.clone_state() for _ in range(states - 1)]
        for graph in made:
            for state in kept:
                graph.register_generator_state(state)
            with captured(torch, graph):
                torch.rand(1, device="cuda")
            graph.replay()
        after = active()
        equal((after[0] - before[0], after[1] - before[1]), (2 * graphs, 1024 * graphs),
              f"blocks and bytes of {graphs} graphs with {states} states")
        made.clear()
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        equal(active(), before, "blocks and bytes afterwards")


@case("TestCuda.test_graph_timing", "external events in a graph are recorded by its replay")
def timed(child):
    torch = child.torch
    x = torch.randn(100_000, device="cuda")
    first, second = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first.record()
        x + x
        second.record()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    check(first.elapsed_time(second) > 0, "no time passed")


@case("TestCuda.test_graph_error, test_graph_warn_if_has_zero_nodes",
      "the default stream is not captured; an empty graph warns")
def refused(child):
    torch = child.torch
    with torch.cuda.stream(torch.cuda.default_stream()):
        with raises(RuntimeError, "non-default stream"):
            torch.cuda.CUDAGraph().capture_begin()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with captured(torch, torch.cuda.CUDAGraph()):
            pass
    check(any("graph is empty" in str(each.message).lower() for each in caught), "no warning")


@case("TestCuda.test_graph_capture_oom", "out of memory in a capture is an error, and the next works")
def out_of_memory(child):
    torch = child.torch
    with raises(RuntimeError, "out of memory"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(2 ** 40, device="cuda")
    graph = torch.cuda.CUDAGraph()
    a = torch.ones(10, device="cuda")
    with torch.cuda.graph(graph):
        b = a + 1
    graph.replay()
    equal(b.tolist(), [2.0] * 10, "what the next graph makes")


@case("TestCuda.test_repeat_graph_capture_cublas_workspace_memory",
      "graphs with matrix products that come and go leave no memory in use")
def workspaces(child):
    torch = child.torch
    torch.backends.cuda.preferred_blas_library("cublas")
    a, b = torch.rand(64, 32, device="cuda"), torch.rand(32, 16, device="cuda")
    torch.mm(a, b)
    free, _ = torch.cuda.mem_get_info()
    for _ in range(30):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.mm(a, b)
        graph.replay()
    check(free - torch.cuda.mem_get_info()[0] < 100_000_000, "memory stays in use")


SHARINGS = ("apart", "pool of the first", "pool of its own")


def two_graphs(torch, sharing, capture):
    """Captures two graphs, one after the other, that share memory or do not."""
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    pool = (torch.cuda.graph_pool_handle(),) if sharing == SHARINGS[2] else ()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        capture(first, pool)
        capture(second, (first.pool(),) if sharing == SHARINGS[1] else pool)
    torch.cuda.current_stream().wait_stream(stream)
    return first, second


@case("TestCuda.test_graph_two_successive",
      "two graphs, one made of the other's result, between ordinary work: values are right, and "
      "sharing a pool saves memory")
def successive(child):
    torch = child.torch
    reserved = {}
    for sharing in SHARINGS:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_stats()["reserved_bytes.all.current"]
        a = torch.ones(1000, device="cuda")
        state = [a]

        def capture(graph, pool):
            graph.capture_begin(*pool)
            b = state[0].clone() if len(state) == 1 else state[-1]
            for _ in range(5):
                b = mixed(b, 1)
            state.append(b)
            graph.capture_end()

        first, second = two_graphs(torch, sharing, capture)
        c = a.clone()
        for graph in (first, second, None):
            c = mixed(mixed(c, 3), 3)
            if graph is not None:
                graph.replay()
        equal(state[-1].sum().item(), 1000 * 3070, f"the graphs' result ({sharing})")
        equal(c.sum().item(), 1000 * 442, f"what was made between ({sharing})")
        reserved[sharing] = torch.cuda.memory_stats()["reserved_bytes.all.current"] - before
        del a, c, state, first, second, graph
        torch.cuda.synchronize()
    for sharing in SHARINGS[1:]:
        equal(reserved[SHARINGS[0]] - reserved[sharing], 2 * MIB, f"what {sharing} saves")


@case("TestCuda.test_graph_concurrent_replay",
      "replays at once on two streams: right for graphs of their own pools")
def concurrent(child):
    torch = child.torch
    results = concurrent_sums(torch, SHARINGS[0])
    equal(results, (100_000 * 94, 100_000 * 156), "sums")


@case("TestCuda.test_graph_concurrent_replay (shared pool)",
      "replays at once of two graphs that share a pool spoil each other", unmet=RACES)
def concurrent_shared(child):
    for sharing in SHARINGS[1:]:
        b, c = concurrent_sums(child.torch, sharing)
        check(b != 100_000 * 94 and c != 100_000 * 156, "values are right: memory is not shared")


def concurrent_sums(torch, sharing):
    a, results = torch.ones(100_000, device="cuda"), []

    def capture(graph, pool):
        graph.capture_begin(*pool)
        b = a.clone()
        for _ in range(5):
            b = mixed(b, 1 + len(results))
        results.append(b)
        graph.capture_end()

    first, second = two_graphs(torch, sharing, capture)
    torch.cuda.synchronize()
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        torch.cuda._sleep(own.SLEEP_CYCLES)
        two.wait_stream(one)
        first.replay()
    with torch.cuda.stream(two):
        second.replay()
    for stream in (one, two):
        torch.cuda.current_stream().wait_stream(stream)
    sums = tuple(each.sum().item() for each in results)
    torch.cuda.synchronize()
    return sums


@case("TestCuda.test_graph_three_successive",
      "three graphs: in the order of capture right; in another order wrong if, and only if, they "
      "share a pool, where the third took memory that the second had freed")
def three(child):
    torch = child.torch
    for sharing in SHARINGS:
        a = torch.ones(1000, device="cuda")
        graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
        pool = (torch.cuda.graph_pool_handle(),) if sharing == SHARINGS[2] else ()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graphs[0].capture_begin(*pool)
            b = a.clone()
            c, d = b + 1, b + 2
            graphs[0].capture_end()
            pool = (graphs[0].pool(),) if sharing == SHARINGS[1] else pool
            graphs[1].capture_begin(*pool)
            e = c + 3
            del c
            graphs[1].capture_end()
            graphs[2].capture_begin(*pool)
            f = d + 4
            graphs[2].capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        for graph in graphs:
            graph.replay()
        equal((e.sum().item(), f.sum().item()), (5000, 7000), f"in order ({sharing})")
        for at in (0, 2, 1):
            graphs[at].replay()
        equal((e.sum().item(), f.sum().item()), (5000 if sharing == SHARINGS[0] else 10000, 7000),
              f"out of order ({sharing})")
        del a, b, d, e, f, graph, graphs
        torch.cuda.synchronize()


@case("TestCuda.test_graph_memory_stats_and_use_result_after_destroy_graph",
      "active blocks and bytes of a graph; its memory stays while it lives; a result outlives it, "
      "and only the result's memory stays then")
def statistics(child):
    import gc
    torch = child.torch
    for size in (512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB + 512):
        kind = "small_pool" if size <= MIB else "large_pool"
        torch.cuda.empty_cache()

        def figures():
            stats = torch.cuda.memory_stats()
            return (stats[f"active.{kind}.current"], stats[f"active_bytes.{kind}.current"],
                    stats["reserved_bytes.all.current"])

        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            a = torch.ones(size // 4, device="cuda")
            before = figures()
            graph.capture_begin()
            b = a.clone()
            for _ in range(5):
                b = b.clone() + 1
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        gc.collect()
        held = figures()
        for is_emptied in (False, True):
            now = figures()
            equal((now[0] - before[0], now[1] - before[1]), (1, size),
                  f"active blocks and bytes of {size}")
            check(now[2] <= held[2] and now[2] - before[2] >= size, f"reserved for {size}")
            graph.replay()
            equal(b.sum().item(), 6 * (size // 4), f"the result of {size}")
            if not is_emptied:
                torch.cuda.empty_cache()
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        equal(b.sum().item(), 6 * (size // 4), f"the result of {size} after its graph")
        now = figures()
        equal((now[0] - before[0], now[1] - before[1]), (1, size), f"what is active of {size}")
        check(now[2] <= held[2] + 2 * MIB, "more is reserved than with the graph and a sum")
        del a, b
        torch.cuda.synchronize()


@case("TestCuda.test_graph_record_stream",
      "blocks that wait for other streams, from before and from within a capture, are left alone by "
      "it: no event is asked")
def record_stream(child):
    torch = child.torch
    torch.cuda.empty_cache()
    waiting, a = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
    before, side = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(before):
        waiting.record_stream(before)
        torch.cuda._sleep(own.SLEEP_CYCLES)
        waiting.fill_(1)
    del waiting
    with captured(torch, torch.cuda.CUDAGraph()) as stream:
        b = a.clone()
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            b.fill_(1)
            b.record_stream(side)
            del b
        stream.wait_stream(side)
    torch.cuda.synchronize()
    torch.zeros(3, device="cuda")


@case("TestCuda.test_graph_cudnn_dropout", "recurrent networks with dropout, in a graph and outside",
      keeps=True)
def recurrent(child):
    torch = child.torch
    model = torch.nn.LSTM(32, 32, 2, dropout=0.5).cuda()
    x = torch.ones(5, 4, 32, device="cuda")
    model(x)
    graph = torch.cuda.CUDAGraph()
    with captured(torch, graph):
        model(x)
    graph.replay()
    model(x)


@case("TestCuda.test_graph_make_graphed_callables, _parameterless_nograd_module",
      "networks, functions and a network without parameters as graphs learn as without them")
def callables(child):
    torch = child.torch
    torch.manual_seed(5)

    class Choose(torch.nn.Module):
        def forward(self, x):
            at = torch.arange(x.size(0), device=x.device).view(-1, 1).repeat(1, x.size(1))
            return {"output": torch.gather(x, 0, at)}

    models = [torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.Linear(24, 16), Choose()).cuda()
              for _ in range(2)]
    models[0].load_state_dict(models[1].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    x = torch.randn(40, 32, device="cuda")
    h = torch.randn(40, 24, device="cuda", requires_grad=True)
    out = torch.randn(40, 16, device="cuda", requires_grad=True)
    target = torch.randn(40, 16, device="cuda")
    functions = [[torch.nn.functional.relu, torch.nn.functional.mse_loss] for _ in range(2)]
    made = torch.cuda.make_graphed_callables(
        (models[0][0], models[0][1], models[0][2], *functions[0]),
        ((x,), (h,), (out,), (out,), (out, target)))
    models[0][0], models[0][1], models[0][2], functions[0][0], functions[0][1] = made
    data = [(torch.rand_like(x), torch.rand_like(target)) for _ in range(4)]
    for model, optimizer, (relu, loss) in zip(models, optimizers, functions):
        for source, wanted in data:
            optimizer.zero_grad(set_to_none=True)
            loss(relu(model(source)["output"]), wanted).backward()
            optimizer.step()
    for one, two in zip(models[0].parameters(), models[1].parameters()):
        check(torch.allclose(one, two, atol=1e-6), "a parameter differs")
    for model in models:
        model.eval()
    check(torch.allclose(*(model(data[0][0])["output"] for model in models)), "evaluation differs")


@case("TestCuda.test_graph_make_graphed_callables_same_pool",
      "several graphed networks share a pool: results, gradients and addresses are their own")
def callables_pool(child):
    torch = child.torch
    torch.manual_seed(5)
    models = [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16)
                                  ).cuda() for _ in range(3)]
    pool = torch.cuda.graph_pool_handle()
    graphed = [torch.cuda.make_graphed_callables(copy.deepcopy(model),
                                                 (torch.randn(6, 8, device="cuda"),), pool=pool)
               for model in models]
    for one, two in zip(models, graphed):
        x = torch.randn(6, 8, device="cuda")
        outputs = [model(x) for model in (one, two)]
        for output in outputs:
            output.norm().backward()
        check(torch.allclose(*outputs), "results differ")
        for p, q in zip(one.parameters(), two.parameters()):
            check(torch.allclose(p, q) and torch.allclose(p.grad, q.grad), "gradients differ")
            check(p.data_ptr() != q.data_ptr() and p.grad.data_ptr() != q.grad.data_ptr(), "shared")


@case("TestCuda.test_graph_optims_with_explicitly_capturable_param_groups, "
      "TestCudaOptims.test_graph_optims", "optimizers in graphs do as without; not capturable raises")
def optimizers(child):
    torch = child.torch
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam,
                 torch.optim.RAdam, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.ASGD,
                 torch.optim.Rprop):
        torch.manual_seed(0)
        grads = [torch.randn(7, device="cuda") for _ in range(5)]
        graphed, plain, stuck = (torch.nn.Parameter(torch.ones(7, device="cuda")) for _ in range(3))
        optimizer, control = kind([graphed], capturable=True), kind([plain], capturable=False)
        refuses = kind([stuck], capturable=False)
        for grad in grads:
            plain.grad = grad.clone()
            control.step()
        for grad in grads[:3]:
            graphed.grad, stuck.grad = grad.clone(), grad.clone()
            optimizer.step()
            refuses.step()
        with raises(RuntimeError, "Attempting CUDA graph"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                refuses.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.step()
        for grad in grads[3:]:
            graphed.grad.copy_(grad)
            graph.replay()
        check(torch.allclose(graphed, plain, atol=1e-6), f"{kind.__name__} differs")


@case("TestCuda.test_cuda_graph_error_options",
      "another thread allocates during a capture: fine in thread_local and relaxed mode")
def other_thread(child):
    torch = child.torch

    def function():
        x = torch.zeros(2000, device="cuda")
        return x + x + x

    for mode in ("thread_local", "relaxed"):
        failed = []

        def allocate():
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(1024))
            except Exception as error:
                failed.append(error)

        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            function()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            function()
            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()
        equal(failed, [], f"errors of the other thread ({mode})")


@case("TestCuda.test_cuda_graph_raw_graph_keep_graph_false, _raw_graph, _raw_graph_exec",
      "what the driver calls a graph is had of one that keeps it, and refused of others")
def raw(child):
    torch = child.torch
    x, y = torch.zeros(2000, device="cuda"), torch.ones(2000, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=False)
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        x + y
    with raises(RuntimeError, "keep_graph=true"):
        graph.instantiate()
    with raises(RuntimeError, "keep_graph"):
        graph.raw_cuda_graph()
    check(graph.raw_cuda_graph_exec() != 0, "no executable graph")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        x + y
    check(graph.raw_cuda_graph() != 0, "no graph")
    with raises(RuntimeError, "instantiate"):
        graph.raw_cuda_graph_exec()
    graph.instantiate()
    check(graph.raw_cuda_graph_exec() != 0, "no executable graph")
    graph.replay()


@case("TestCuda.test_cuda_graph_raw_graph_reset_and_recapture",
      "a kept graph is instantiated twice, reset and captured anew")
def kept(child):
    torch = child.torch
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    for step in (1.0, 2.0):
        x = torch.zeros(2000, device="cuda")
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            x += step
        for times, is_made in ((1, True), (2, True), (3, False)):
            if is_made:
                graph.instantiate()
            graph.replay()
            check(bool((x == step * times).all()), f"{x[0].item()}, not {step * times}")
        graph.reset()


@case("TestCuda.test_cuda_graph_allocator_propagates_stream",
      "a stream that joins a capture takes from the capture's pool")
def joined(child):
    torch = child.torch
    before = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    x, y = torch.randn(3_000_000, device="cuda"), torch.randn(3_000_000, device="cuda")
    graph, stream, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        z = x + y
    with torch.cuda.stream(side):
        side.wait_stream(stream)
        z + y
    stream.wait_stream(side)
    with torch.cuda.stream(stream):
        graph.capture_end()
    pools = [(tuple(segment["segment_pool_id"]), segment["stream"])
             for segment in torch.cuda.memory_snapshot()
             if tuple(segment["segment_pool_id"]) not in before | {(0, 0)}]
    equal(len(pools), 2, "segments of the capture")
    equal((len({pool for pool, _ in pools}), len({of for _, of in pools})), (1, 2),
          "pools and streams of its segments")
    del graph, z


@case("TestCuda.test_cuda_graph_tensor_item_not_allowed",
      "reading a value in a capture ends the program with an error that says why")
def item(child):
    done = child.apart("""
a = torch.rand(50, device="cuda")
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    a[0] *= a[a.argmax().item()]
""")
    check(done.returncode != 0, "reading a value in a capture is no error")
    check("captur" in done.stderr, done.stderr[-300:])


# --- pinned memory in graphs ---------------------------------------------------------------------


def pinned_settings(child, registered):
    return child.settings(f"pinned_use_cuda_host_register:{registered}",
                          "pinned_use_cuda_host_register:False")


@case("TestCachingHostAllocatorCudaGraph.test_pin_memory_no_use, _no_use2, _use",
      "pinned memory of a capture is reused if it was freed and no copy used it")
def pinned(child):
    torch = child.torch
    for registered in (True, False):
        with pinned_settings(child, registered):
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
                one, two = (torch.empty(8, pin_memory=True) for _ in range(2))
                torch.zeros(1, device="cuda")
            check(one.data_ptr() != two.data_ptr(), "two share memory")
            for is_used in (False, True):
                with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
                    one = torch.randn(8).pin_memory()
                    target = torch.zeros(8, device="cuda")
                    if is_used:
                        target.copy_(one, non_blocking=True)
                    address = one.data_ptr()
                    del one
                    equal(torch.randn(8).pin_memory().data_ptr() == address, not is_used,
                          f"whether it is reused (used: {is_used})")


@case("TestCachingHostAllocatorCudaGraph.test_two_graphs",
      "the same of two graphs that share a pool")
def pinned_pool(child):
    torch = child.torch
    for is_used in (False, True):
        for is_freed in (False, True):
            pool, addresses, kept = torch.cuda.graph_pool_handle(), [], []
            graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
            for graph in graphs:
                with torch.cuda.graph(graph, pool=pool,
                                      capture_error_mode="thread_local"):
                    data = torch.randn(8).pin_memory()
                    target = torch.zeros(8, device="cuda")
                    if is_used:
                        target.copy_(data, non_blocking=True)
                    addresses.append(data.data_ptr())
                    if not is_freed:
                        kept.append(data)
                    del data
            equal(addresses[0] == addresses[1], is_freed and not is_used,
                  f"whether it is reused (used: {is_used}, freed: {is_freed})")


@case("TestCachingHostAllocatorCudaGraph.test_unpinned_memory_use, _device_to_host",
      "memory that is not pinned is not copied in a capture")
def unpinned(child):
    torch = child.torch
    for to_device in (True, False):
        with raises(RuntimeError, "Cannot copy between CPU and CUDA tensors"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                pair = [torch.empty(8), torch.zeros(8, device="cuda")]
                target, source = reversed(pair) if to_device else pair
                target.copy_(source, non_blocking=True)


if __name__ == "__main__":
    group.run()
