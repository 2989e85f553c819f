# SPDX-License-Identifier: Apache-2.0
"""breakdown(), watch(), would_fit(), admit() and check() of berm.torch, each against what is known of
a program: sums, planted faults, refusals; under berm's subclass and plain hooks."""
import os
import sys
import threading

import torch_test

MIB = 1 << 20
OUTSIDE = 3 << 30
CASES = []
# With torch's own allocator. It says so where only berm can answer.
OF_NATIVE = ("before_cuda", "breakdown_of_training", "check_finds_each_fault", "watch_tells_requests",
             "watch_attaches", "refuses_without_berm")


def case(function):
    CASES.append(function)
    return function


def equal(found, wanted, what):
    assert found == wanted, f"{what}: {found}, not {wanted}"


def refused(kind, text, function, *arguments, **named):
    """The exception, which must be of that class and have that text."""
    try:
        function(*arguments, **named)
    except kind as error:
        assert text in str(error), f"{error} does not say {text!r}"
        return error
    raise AssertionError(f"{function} is not refused: {text}")


def rounded(tensors):
    return sum(-(-tensor.untyped_storage().nbytes() // 512) * 512 for tensor in tensors)


@case
def before_cuda(torch, berm_torch):
    refused(berm_torch.BermError, "not initialised", berm_torch.breakdown)
    equal(list(berm_torch.holders()), [], "holders before CUDA")
    equal(torch.cuda.is_initialized(), False, "whether a question starts CUDA")


@case
def breakdown_of_training(torch, berm_torch):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.BatchNorm1d(1024)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    found = berm_torch.breakdown()
    weights = [*model.parameters(), *model.buffers()]
    grads = [each.grad for each in model.parameters()]
    state = [value for values in optimizer.state.values() for value in values.values()
             if value.is_cuda]
    for kind, tensors in (("weights", weights), ("gradients", grads), ("optimizer", state)):
        wanted = rounded(tensors)
        # Slots of small classes are up to a quarter larger than what is asked for.
        assert wanted <= found[kind] <= wanted + 64 * 1024, f"{kind}: {found[kind]}, not {wanted}"
    equal(found["activations"], 0, "activations after the backward pass")
    x = torch.rand(1024, 1024, device="cuda")
    y = model(x)
    assert berm_torch.breakdown()["activations"] >= 8 * MIB, "activations of a forward pass"
    del y
    equal(berm_torch.breakdown()["activations"], 0, "activations when the output is dropped")
    equal(berm_torch.breakdown()["tensors"] >= 4 * MIB, True, "an input is another tensor")


@case
def breakdown_adds_up(torch, berm_torch):
    import berm
    before = berm_torch.breakdown()
    cached = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    del cached
    with berm.tag("kv cache"):
        tagged = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")

    class DynamicCache:
        def __init__(self):
            self.layers = [{"keys": torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")}]
    cache = DynamicCache()
    mine = [[torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")]]
    found = berm_torch.breakdown(kv_cache=mine)
    free, total = torch.cuda.mem_get_info()
    equal(sum(found.values()), total - free, "the sum of all kinds")
    equal(found.used_bytes, total - free, "what is used")
    equal(found["kv_cache"] - before["kv_cache"], 18 * MIB, "the KV cache: by tag, class, argument")
    equal(found.tags, {"kv cache": 6 * MIB}, "tags")
    equal(found["outside"], OUTSIDE, "what other processes have")
    equal(found["context"], 520 * MIB, "the context of the simulated H100")
    assert found["cached"] >= 20 * MIB, found
    assert all(size >= 0 for size in found.values()), found
    assert "outside  " in str(found) and "tag kv cache" in str(found), str(found)
    del tagged, cache, mine


@case
def breakdown_of_what_is_no_tensor(torch, berm_torch):
    import ctypes
    from berm import _capi
    library = _capi.library()
    before = berm_torch.breakdown()
    for size, kind in ((5 * MIB, "unknown"), (32 * MIB, "workspaces")):  # cuBLAS's, on an H100
        address = ctypes.c_uint64()
        _capi.check("alloc", library.berm_alloc(size, 0, 0, ctypes.byref(address)))
        found = berm_torch.breakdown()
        equal(found[kind] - before[kind], size, f"a block of no tensor, of {size}")
        equal(sum(found.values()), found.used_bytes, "the sum")
        (holder,) = berm_torch.holders(address.value + 100)
        equal(("no tensor of Python's" in holder.why, holder.size_bytes), (True, size), "its holder")
        _capi.check("free", library.berm_free(address, 0, 0))
    refused(berm_torch.BermError, "no live block", berm_torch.holders, address.value)
    like_one = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    equal(berm_torch.breakdown()["workspaces"], before["workspaces"], "a tensor of that size")
    del like_one


@case
def breakdown_by_nvml(torch, berm_torch):
    """Of a real device: what NVML says of this process beyond the allocator is the context."""
    import ctypes
    from berm import _breakdown
    reserved = sum(size for kind, size in berm_torch.breakdown().items()
                   if kind not in ("context", "outside"))

    class Nvml:
        status = 0

        def nvmlInit_v2(self):
            return 0

        def nvmlDeviceGetHandleByUUID(self, uuid, handle):
            return 0 if uuid.startswith(b"GPU-") else 2

        def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, found):
            count._obj.value = 2
            found[0].pid, found[0].used_bytes = 1, 99 * MIB
            found[1].pid, found[1].used_bytes = os.getpid(), reserved + 300 * MIB
            return self.status
    load, simulated = ctypes.CDLL, _breakdown._collect._context_bytes
    try:
        _breakdown._collect._context_bytes = lambda device: 0
        ctypes.CDLL = lambda name: Nvml()
        equal(berm_torch.breakdown()["context"], 300 * MIB, "the context by NVML")
        Nvml.status = 3  # it does not tell: a container
        found = berm_torch.breakdown()
        equal((found["context"], found["outside"]), (0, OUTSIDE + 520 * MIB), "where it does not tell")
    finally:
        ctypes.CDLL, _breakdown._collect._context_bytes = load, simulated


@case
def check_finds_each_fault(torch, berm_torch):
    nn = torch.nn

    def make():
        return nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Dropout(0.1),
                             nn.Linear(32, 64)).cuda().eval()

    def kinds(model, *arguments, grad=False):
        with torch.inference_mode(not grad):
            return berm_torch.check(model, *arguments).kinds

    inputs = torch.ones(2, 32, device="cuda")
    equal(kinds(make(), inputs), [], "a right model")
    equal(kinds(make().half().float(), (inputs,)), [], "a right model that was converted")
    model = make().half()
    model[1].float()
    equal(kinds(model), [], "norms in a wider type")
    model = make()
    model[2].train()
    equal(kinds(model), ["train mode"], "a dropout in train mode")
    equal("train mode (2)" in berm_torch.check(model)[0].text, True, "its name")
    equal(kinds(make(), grad=True), ["gradients recorded"], "outside of inference_mode")
    equal(kinds(make(), inputs, grad=True), ["gradients recorded", "graph in output"], "with inputs")
    equal(kinds(make().requires_grad_(False), inputs, grad=True), [], "without gradients wanted")
    with torch.no_grad():
        equal(berm_torch.check(make(), {"input": inputs}).kinds, [], "under no_grad")
    model = make()
    model[0].half()
    equal(kinds(model), ["mixed dtypes"], "one layer in half precision")
    model = make()
    model[0].cpu()
    equal(kinds(model), ["mixed devices"], "one layer on the CPU")
    model, log = make(), [torch.ones(3, device="cuda")]
    model[0].register_forward_hook(lambda *_: log.append(_[2]))
    equal(kinds(model), ["hook holds tensors"], "a hook with a log")
    model = make()
    model[0].register_forward_hook(lambda *_: None)
    equal(kinds(model), [], "a hook that holds nothing")
    model = make()
    model(inputs).sum().backward()
    equal(kinds(model), ["gradients held"], "a .grad")
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    model.zero_grad(set_to_none=True)
    equal(kinds(model), ["optimizer state"], "an optimizer that lives")
    equal(kinds(make()), [], "it is of another model")
    torch.backends.cudnn.benchmark = True
    equal(kinds(make()), ["cudnn.benchmark"], "cudnn.benchmark")
    torch.backends.cudnn.benchmark = False
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        equal(kinds(make()), ["anomaly mode"], "anomaly mode")
    equal(kinds(nn.Linear(3, 3).eval()), [], "a model on the CPU")


@case
def watch_tells_requests(torch, berm_torch):
    watch = berm_torch.watch(last=8)
    kept = torch.empty(MIB, dtype=torch.uint8, device="cuda")

    def serve(mib):
        temporary = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
        del temporary

    for number in range(20):
        with watch.request(f"n{number}"):
            with watch:  # within another: part of it
                serve(9 if number == 15 else 4)
    requests = watch.requests
    equal([request.name for request in requests], [f"n{n}" for n in range(12, 20)], "the last 8")
    for request in requests:
        equal((request.before_bytes, request.error, request.is_shared),
              (request.after_bytes, None, False), str(request))
        equal(request.peak_bytes - request.before_bytes, (9 if request.name == "n15" else 4) * MIB,
              f"the peak of {request}")
        assert (request.name == "n15") == (" serve" in request.site) or \
            berm_torch.installed() == "hooks", (request, request.site)
    growth = watch.growth()
    equal((growth.bytes_per_request, growth.rose, growth.sites), (0, 0, []), "growth of a right service")
    assert "no request" not in watch.report()
    try:
        with watch:
            raise KeyError("x")
    except KeyError:
        pass
    equal(watch.requests[-1].error, "KeyError", "what ended it")
    equal(watch(serve)(2), None, "a decorated function's result")
    equal(watch.requests[-1].name, "serve", "its name")
    watch.close()
    watch.close()
    refused(berm_torch.BermError, "closed", watch.__enter__)
    refused(berm_torch.BermError, "2 or more", berm_torch.watch, last=1)
    from berm._watch import slope
    equal(slope([0, 10, 20, 900, 40, 50, 60]), 10, "a slope with an outlier")
    equal((slope([]), slope([5])), (0, 0), "of nothing, and of one value")
    del kept


@case
def watch_attaches(torch, berm_torch):
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with_model, with_steps = berm_torch.watch(), berm_torch.watch()
    with_model.attach(model)
    with_steps.attach(optimizer)
    for _ in range(3):
        model(torch.ones(4, 64, device="cuda")).sum().backward()
        optimizer.step()
    equal([len(each.requests) for each in (with_model, with_steps)], [3, 3], "passes and steps")
    refused(berm_torch.BermError, "no module", with_model.attach, 3)
    refused(RuntimeError, "", model, torch.ones(4, 65, device="cuda"))
    equal(with_model.requests[-1].after_bytes > 0, True, "a pass that failed has ended")
    with_model.close()
    with_steps.close()
    model(torch.ones(4, 64, device="cuda"))
    optimizer.step()
    assert len(with_model.requests) <= 4 and len(with_steps.requests) == 3, "hooks stay after close()"


@case
def watch_of_what_is_compiled_or_captured(torch, berm_torch):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
    x = torch.ones(4, 64, device="cuda")
    for ops in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        watch = berm_torch.watch(ops=ops)
        for _ in range(3):
            with watch:
                compiled(x)
        equal([request.error for request in watch.requests], [None] * 3, f"compiled, ops={ops}")
        watch.close()
    if berm_torch.installed() == "hooks":  # a mode of the watch's, and capture needs none
        return
    watch, graph = berm_torch.watch(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with watch:
            y = model(x)
        found = berm_torch.breakdown()
        berm_torch.holders()
        berm_torch.would_fit(3)
    with watch:
        graph.replay()
    equal(len(watch.requests), 2, "a capture and a replay")
    equal(sum(found.values()), found.used_bytes, "the sum in a capture")
    watch.close()
    del y


@case
def watch_of_threads(torch, berm_torch):
    watch, failed = berm_torch.watch(), []
    together = threading.Barrier(4)

    def serve():
        try:
            for _ in range(10):
                together.wait()
                with watch:
                    torch.empty(MIB, dtype=torch.uint8, device="cuda")
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal((failed, len(watch.requests)), ([], 40), "requests of four threads")
    watch.report()
    watch.close()


@case
def watch_leaves_the_programs_recording(torch, berm_torch):
    if berm_torch.installed() == "hooks":
        return
    torch.cuda.memory._record_memory_history(enabled="all", max_entries=100)
    watch = berm_torch.watch()
    with watch:
        torch.ones(3, device="cuda")
    watch.close()
    equal(torch._C._cuda_isHistoryEnabled(), True, "the program's recording after close()")
    torch.cuda.memory._record_memory_history(None)
    with berm_torch.sites():
        equal(torch._C._cuda_isHistoryEnabled(), True, "sites()")
    equal(torch._C._cuda_isHistoryEnabled(), False, "after it")


@case
def fits(torch, berm_torch):
    free = torch.cuda.mem_get_info()[0]
    equal(bool(berm_torch.would_fit(free // 2)), True, "half of what is free")
    equal(berm_torch.would_fit(free // 2).way, "grown", "how")
    no = berm_torch.would_fit(free * 2)
    equal((bool(no), no.way, no.needed_bytes), (False, "", free * 2), "twice of it")
    assert no.largest_bytes <= free + 256 * MIB, no
    equal(berm_torch.would_fit((1024, 1024)).needed_bytes, 4 * MIB, "a shape")
    equal(berm_torch.would_fit([(1024, 1024), (1, 1)], dtype=torch.float16).needed_bytes,
          2 * MIB + 512, "shapes")
    equal(berm_torch.would_fit(torch.Size((3,))).needed_bytes, 512, "a torch.Size")
    equal(berm_torch.would_fit(0).way, "now", "nothing")
    for wrong in (-1, 1.5, "12", [(1, -2)], True, None):
        refused(berm_torch.BermError, "", berm_torch.would_fit, wrong)
    torch.empty(largest(berm_torch), dtype=torch.uint8, device="cuda")
    refused(torch.OutOfMemoryError, "", torch.empty, no.needed_bytes, dtype=torch.uint8,
            device="cuda")


def largest(berm_torch):
    return berm_torch.would_fit(0).largest_bytes


@case
def admits(torch, berm_torch):
    def enter(*arguments, **named):
        with berm_torch.admit(*arguments, **named):
            pass

    def make(mib):
        return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")

    import berm
    most = largest(berm_torch)
    error = refused(berm_torch.NotAdmitted, "not admitted", enter, most + (64 << 20))
    equal((error.needed_bytes, error.tag), (most + (64 << 20), None), "the error")
    enter(most // 2)
    with berm_torch.admit(most // 2):
        refused(berm_torch.NotAdmitted, "promised to others", enter, most * 2 // 3)
        enter(most // 3)
    try:
        with berm_torch.admit(most // 2):
            raise KeyError
    except KeyError:
        pass
    enter(most * 2 // 3)  # what failed is promised nothing any more
    with berm_torch.admit(most // 2):  # what was promised and is taken counts once
        taken = torch.empty(most // 2, dtype=torch.uint8, device="cuda")
        enter(most // 3)
    del taken
    torch.cuda.empty_cache()
    berm_torch.quota("tenant", 10 * MIB)
    refused(berm_torch.NotAdmitted, "quota of 10.0 MiB of 'tenant'", enter, 11 * MIB, tag="tenant")
    with berm_torch.admit(6 * MIB, tag="tenant"):
        kept = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")
        enter(4 * MIB, tag="tenant")
        refused(berm_torch.NotAdmitted, "4.0 MiB are left", enter, 5 * MIB, tag="tenant")
        enter(5 * MIB)
    error = refused(berm_torch.NotAdmitted, "4.0 MiB are left", enter, 5 * MIB, tag="tenant")
    equal((error.tag, error.quota_bytes), ("tenant", 10 * MIB), "the quota in the error")
    del kept
    enter(10 * MIB, tag="tenant")
    with berm.tag("tenant"):
        equal(bool(berm_torch.would_fit(11 * MIB)), False, "beyond the quota of this thread's tag")
        refused(torch.OutOfMemoryError, "", make, 11)  # without a guard, too
        equal(bool(berm_torch.would_fit(9 * MIB)), True, "within it")
        make(9)
    make(11)
    berm_torch.quota("tenant", None)
    with berm.tag("tenant"):
        make(11)
    enter(11 * MIB, tag="tenant")
    for wrong in (("tenant", -1), ("tenant", 1.5), (7, 1)):
        refused(berm_torch.BermError, "berm.torch.quota", berm_torch.quota, *wrong)
    refused(berm_torch.BermError, "a tensor, or an address", berm_torch.holders, "x")


@case
def refuses_without_berm(torch, berm_torch):
    if berm_torch.installed() is None:
        refused(berm_torch.BermError, "install()", berm_torch.would_fit, 1)
        refused(berm_torch.BermError, "install()", berm_torch.admit(1).__enter__)
    found = berm_torch.breakdown()
    equal(sum(found.values()), found.used_bytes, "the sum")
    equal(found["outside"], OUTSIDE, "what other processes have")


@case
def admits_threads(torch, berm_torch):
    """Of eight at once, each of a third of what there is, never more than three are let in."""
    third = largest(berm_torch) // 3
    lock, together = threading.Lock(), threading.Barrier(8)
    counts = {"in": 0, "most": 0, "refused": 0}

    def serve():
        together.wait()
        for _ in range(20):
            try:
                with berm_torch.admit(third - MIB):
                    with lock:
                        counts["in"] += 1
                        counts["most"] = max(counts["most"], counts["in"])
                    with lock:
                        counts["in"] -= 1
            except berm_torch.NotAdmitted:
                with lock:
                    counts["refused"] += 1
    threads = [threading.Thread(target=serve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= counts["most"] <= 3 and counts["in"] == 0, counts
    with berm_torch.admit(third * 2):
        pass


def child(route):
    torch = torch_test.load(route, "small")
    import berm.torch
    for function in CASES:
        if len(sys.argv) > 1 and function.__name__ not in sys.argv[1:]:
            continue
        function(torch, berm.torch)
        print(f"ok: {function.__name__}", flush=True)


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        child(route)
        return
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    for each in ("subclass", "hooks", "native"):
        chosen = OF_NATIVE if each == "native" else ()
        status, output, errors = torch_test.run_child(__file__, each, chosen, SIMCUDA_GPU="H100-80",
                                                      SIMCUDA_OUTSIDE=str(OUTSIDE))
        if status != 0:
            print(f"FAIL: {each}: exit {status} after\n{output}\n{errors[-2500:]}")
            sys.exit(1)
        print(f"{each}: {len(output.splitlines())} of {len(chosen or CASES)} cases")


if __name__ == "__main__":
    main()
