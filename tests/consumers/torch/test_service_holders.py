# SPDX-License-Identifier: Apache-2.0
"""holders() of berm.torch: each way in which Python, autograd and C++ keep a tensor is named; and what
it must stand: large and cyclic graphs of references, other threads, tensor classes, hooks. It keeps
nothing alive."""
import asyncio
import collections
import dataclasses
import functools
import gc
import os
import sys
import threading
import time
import weakref

import torch_test

MIB = 1 << 20
CASES = []
OF_NATIVE = ("lists_and_tables", "autograd", "groups")  # with torch's own allocator
torch = berm_torch = None


def case(function):
    CASES.append(function)
    return function


def make(mib=2):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


class Shelf:
    """A place for names of the program: `shelf` below is a global of this module."""


shelf = Shelf()
GLOBAL = []
TABLE = {}


def of(tensor_or_address):
    (holder,) = berm_torch.holders(tensor_or_address)
    return holder


def named(holder, name, why=""):
    assert holder.name == name, f"{holder.name!r} ({holder.why}), not {name!r}"
    assert why in holder.why, f"{holder.why!r} does not say {why!r}"


def address_of(tensor):
    return tensor.data_ptr()


def kept(tensor, keep):
    """Keeps it by keep(tensor); returns its address, and nothing that refers to it."""
    keep(tensor)
    return tensor.data_ptr()


@case
def lists_and_tables():
    named(of(kept(make(), GLOBAL.append)), "__main__.GLOBAL[0]", "in a list of 1")
    GLOBAL.clear()
    at = kept(make(), lambda tensor: TABLE.setdefault(("a", 7), [{"x": tensor}]))
    named(of(at), "__main__.TABLE[('a', 7)][0]['x']", "in a dict of 1 entry")
    TABLE.clear()
    shelf.queue = collections.deque([None])
    named(of(kept(make(), shelf.queue.append)), "__main__.shelf.queue[1]", "in a deque of 2")
    shelf.bag = set()
    named(of(kept(make(), shelf.bag.add)), "__main__.shelf.bag{...}", "in a set of 1")
    vars(shelf).clear()


@case
def attributes():
    class Slots:
        __slots__ = ("inner",)
    Row = collections.namedtuple("Row", "left right")

    @dataclasses.dataclass
    class Record:
        value: object
    shelf.slots = Slots()
    named(of(kept(make(), lambda tensor: setattr(shelf.slots, "inner", tensor))),
          "__main__.shelf.slots.inner")
    named(of(kept(make(), lambda tensor: setattr(shelf, "row", Row(1, tensor)))),
          "__main__.shelf.row.right")
    named(of(kept(make(), lambda tensor: setattr(shelf, "record", Record(tensor)))),
          "__main__.shelf.record.value")
    named(of(kept(make(), lambda tensor: setattr(Shelf, "shared", tensor))), "__main__.Shelf.shared",
          "a class name")
    del Shelf.shared
    vars(shelf).clear()


@case
def functions():
    def later(tensor):
        return lambda: tensor

    at = kept(make(), lambda tensor: setattr(shelf, "done", later(tensor)))
    named(of(at), "__main__.shelf.done.<closure tensor>",
          "variable 'tensor' of function functions.<locals>.later.<locals>.<lambda> (tests/consumers")
    at = kept(make(), lambda tensor: setattr(shelf, "done", functools.partial(print, tensor)))
    assert of(at).name.startswith("__main__.shelf.done(an argument)"), of(at).name
    at = kept(make(), lambda tensor: setattr(shelf, "done", lambda x=tensor: x))
    assert of(at).name.startswith("__main__.shelf.done(a default)"), of(at).name

    @functools.lru_cache(maxsize=None)
    def remembered(number):
        return make(number)
    shelf.remembered = remembered
    at = kept(remembered(2), lambda _: None)
    assert of(at).name.startswith("__main__.shelf.remembered(an entry of its cache)"), of(at).name
    vars(shelf).clear()


@case
def what_runs():
    mine = make()
    named(of(mine), "mine", "a variable of a function that runs: tests/consumers/torch/test_service")

    def generate():
        inner = make()
        yield inner.data_ptr()
        yield inner
    generator = generate()
    named(of(next(generator)), "inner", "a variable of a generator or coroutine that waits")

    async def serve(found):
        answer = make()
        found.append(answer.data_ptr())
        await asyncio.sleep(0)
        return answer.numel()
    found = []
    coroutine = serve(found)
    coroutine.send(None)
    named(of(found[0]), "answer", "a variable of a generator or coroutine that waits")
    coroutine.close()

    def fail():
        lost = make()
        found.append(lost.data_ptr())
        raise ValueError
    try:
        fail()
    except ValueError as error:
        shelf.error = error
    named(of(found[1]), "lost", "a variable of a function that ended, kept by an exception's traceback")
    vars(shelf).clear()
    ready, end = threading.Event(), threading.Event()

    def work():
        of_thread = make()
        found.append(of_thread.data_ptr())
        ready.set()
        end.wait()
        return of_thread
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    named(of(found[2]), "of_thread", "a variable of a function that runs")
    end.set()
    thread.join()


@case
def autograd():
    weight = torch.nn.Parameter(torch.ones(1024, 1024, device="cuda"))
    shelf.weight = weight
    x = torch.ones(512, 1024, device="cuda")
    shelf.outputs = [(x @ weight).relu()]
    inputs = x.data_ptr()
    del x
    named(of(shelf.outputs[0]), "__main__.shelf.outputs[0]", "stored without detach()")
    assert "inference_mode" in of(shelf.outputs[0]).why
    # Nothing of Python's has the input: the graph of the output has.
    named(of(inputs), "__main__.shelf.outputs[0]", "saved by MmBackward0 for a backward pass of")
    named(of(weight), "__main__.shelf.weight", "a weight")
    shelf.outputs[0].sum().backward()
    named(of(weight.grad.data_ptr()), "__main__.shelf.weight.grad", "zero_grad")
    shelf.outputs[0] = shelf.outputs[0].detach()
    assert "detach" not in of(shelf.outputs[0]).why, of(shelf.outputs[0]).why

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            ctx.save_for_backward(value * 3)
            return value * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    before = torch.cuda.memory_allocated() if berm_torch.installed() == "subclass" else 0
    shelf.doubled = Double.apply(weight)
    (top,) = [each for each in berm_torch.holders(top=20) if each.name == "__main__.shelf.doubled"]
    assert top.tensors == 2 and top.size_bytes == 8 * MIB, (top, before)  # and what it saved
    vars(shelf).clear()


@case
def hooks_of_the_program_are_not_run():
    unpacked = []

    def unpack(value):
        unpacked.append(value)
        return value
    weight = torch.nn.Parameter(torch.ones(512, 512, device="cuda"))
    with torch.autograd.graph.saved_tensors_hooks(lambda value: value, unpack):
        shelf.output = (weight * torch.ones(512, 512, device="cuda")).exp()
    of(shelf.output)
    berm_torch.holders()
    berm_torch.breakdown()
    assert not unpacked, "a saved tensor was unpacked"
    del shelf.output


@case
def modules():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).cuda()
    shelf.model, shelf.log = model, []
    del model
    named(of(shelf.model[0].weight), "__main__.shelf.model.0.weight", "a weight")
    shelf.model[1].register_forward_hook(lambda *each, log=[]: log.append(each[2].detach()))
    with torch.no_grad():
        at = shelf.model(torch.ones(1024, 512, device="cuda")).data_ptr()
    holder = of(at)
    assert "_forward_hooks" in holder.name and "kept by a hook of a module" in holder.why, holder
    answers = []
    shelf.model[0].register_forward_hook(lambda *each: answers.append(of(each[2])))
    shelf.model(torch.ones(4, 512, device="cuda"))
    assert len(answers) == 1, "holders() in a hook"
    vars(shelf).clear()


@case
def views():
    shelf.last = make(8)[:1024]
    holder = of(shelf.last)
    named(holder, "__main__.shelf.last", "a view of 1024 bytes keeps all 8388608")
    assert holder.size_bytes == 8 * MIB
    del shelf.last


@case
def of_nobody():
    class Ring:
        pass
    gc.disable()
    ring = Ring()
    ring.ring, ring.tensor = ring, make()
    at = ring.tensor.data_ptr()
    del ring
    holder = of(at)
    gc.enable()
    named(holder, "", "a reference cycle that no name leads to: gc.collect() frees it")
    gc.collect()
    try:
        of(at)
    except berm_torch.BermError as error:
        assert "no live block" in str(error), error
    else:
        raise AssertionError("the cycle was not freed: holders() keeps it")
    named(berm_torch.holders(make())[0], "", "a temporary value, or held by C++")
    for wrong in (12345, 0):
        try:
            of(wrong)
        except berm_torch.BermError as error:
            assert f"{wrong:#x}" in str(error), error
        else:
            raise AssertionError(f"{wrong} is an address")


@case
def nothing_is_kept_alive():
    """Neither by an answer, nor by the dictionaries of locals that a look at frames makes."""
    gc.disable()
    try:
        mine = make()
        seen = weakref.ref(mine)
        holder, answers = of(mine), berm_torch.holders()
        berm_torch.breakdown()
        del mine
        assert seen() is None, "it lives on"
        assert holder.name == "mine" and answers
    finally:
        gc.enable()
    own = locals()
    own["extra"] = 1
    of(make())
    assert own.get("extra") == 1, "a dictionary of the program's was emptied"


@case
def other_devices_and_classes():
    host = torch.ones(3)
    named(of(host), "host", "a variable of a function that runs")
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        fake = torch.empty(3, device="cuda")
    named(of(fake), "fake")
    named(berm_torch.holders(torch.empty(0, device="cuda"))[0], "")
    meta = torch.empty(5, device="meta")
    named(of(meta), "meta")

    class Wrapped(torch.Tensor):
        """Of another tensor, with nothing of its own."""
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype,
                                                       device=inner.device)

        def __init__(self, inner):
            self.inner = inner

        def __tensor_flatten__(self):
            return ["inner"], None

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} is called")
    shelf.wrapped = Wrapped(make(3))
    named(of(shelf.wrapped), "__main__.shelf.wrapped.inner")
    found = berm_torch.breakdown()
    assert found["tensors"] >= 3 * MIB, found
    shelf.module = torch.nn.Module()
    shelf.module.register_buffer("wrapped", shelf.wrapped)
    assert berm_torch.breakdown()["weights"] >= 3 * MIB, "a wrapped weight"
    vars(shelf).clear()


@case
def nothing_of_the_programs_runs():
    def fail(*_):
        raise AssertionError("the program's code is run")

    class Sly:
        __class__ = property(fail)
        __repr__ = __eq__ = __bool__ = __len__ = __iter__ = __getattr__ = fail

        def __hash__(self):
            return 7

    class SlyList(list):
        __repr__ = __len__ = __iter__ = __getitem__ = __bool__ = __getattr__ = fail

    class SlyTable(dict):
        __repr__ = __len__ = __iter__ = __getitem__ = __bool__ = items = values = fail
    shelf.sly = Sly()
    object.__getattribute__(shelf.sly, "__dict__")["tensor"] = make()
    shelf.list, shelf.table = SlyList(), SlyTable()
    list.append(shelf.list, make())
    dict.__setitem__(shelf.table, Sly(), make())
    names = {holder.name for holder in berm_torch.holders(top=20)}
    wanted = {"__main__.shelf.sly.tensor", "__main__.shelf.list[0]", "__main__.shelf.table[<Sly>]"}
    assert wanted <= names, names
    shelf.cache = type("KVCache", (Sly,), {})()
    found = berm_torch.breakdown()
    assert sum(found.values()) == found.used_bytes, found
    vars(shelf).clear()


@case
def large_graphs():
    shelf.table = {number: [number, {"n": (number, [])}] for number in range(100_000)}
    shelf.chain = node = []
    for _ in range(100_000):
        node.append([])
        node = node[0]
    node.append(make())
    deep = node[0].data_ptr()
    del node
    shelf.table[7][1]["n"][1].append(make())
    wide = shelf.table[7][1]["n"][1][0].data_ptr()
    for address, seconds in ((deep, 0.5), (wide, 30.0)):
        begin = time.monotonic()
        (holder,) = found = berm_torch.holders(address, seconds=seconds)
        took = time.monotonic() - begin
        assert took < seconds + 60, f"{took} s"  # a level of the walk is not cut short
        if address == deep:
            assert not found.is_complete and "ended before" in holder.why, holder
        else:
            named(holder, "__main__.shelf.table[7][1]['n'][1][0]")
    # Many that refer to one.
    shared = make()
    shelf.many = [[shared] for _ in range(50_000)]
    at = shared.data_ptr()
    del shared
    (holder,) = berm_torch.holders(at)
    assert holder.name.startswith("__main__.shelf.many[") or not holder.name, holder
    # A long graph of autograd's.
    total = torch.zeros((), device="cuda", requires_grad=True)
    with torch.utils._python_dispatch._disable_current_modes():
        for _ in range(10_000):
            total = total + 1
    begin = time.monotonic()
    berm_torch.holders(top=3)
    assert time.monotonic() - begin < 12, "a long chain of autograd"
    shelf.chain.clear()
    unwind = total.grad_fn
    del total, unwind
    vars(shelf).clear()


@case
def other_threads_go_on():
    end, failed = threading.Event(), []

    def work():
        try:
            table = {}
            while not end.is_set():
                for number in range(20):
                    table[number] = make(0.25)
                    time.sleep(0.001)
                shelf.__dict__[f"n{threading.get_ident()}"] = dict(table)
                table.clear()
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    mine = make()
    for _ in range(3):
        named(of(mine), "mine")
        berm_torch.holders(top=5)
        found = berm_torch.breakdown()
        assert sum(found.values()) == found.used_bytes, found
    end.set()
    for thread in threads:
        thread.join()
    assert not failed, failed
    vars(shelf).clear()


@case
def groups():
    recording = berm_torch.sites()
    shelf.many = [make() for _ in range(30)]
    shelf.one = make(4)
    first, second = berm_torch.holders(top=2)
    named(first, "__main__.shelf.many[*]", "in a list of 30")
    assert (first.tensors, first.size_bytes) == (30, 60 * MIB), first
    named(second, "__main__.shelf.one")
    assert " make, for" not in first.site and first.site.endswith(" make"), first.site
    recording.end()
    assert "60.0 MiB  30 tensors" in str(berm_torch.holders(top=1)), str(first)
    vars(shelf).clear()


def child(route):
    global torch, berm_torch
    torch = torch_test.load(route, "small")
    import berm.torch
    berm_torch = berm.torch
    torch.zeros(1, device="cuda")
    for function in CASES:
        if len(sys.argv) > 1 and function.__name__ not in sys.argv[1:]:
            continue
        begin = time.monotonic()
        function()
        print(f"ok: {function.__name__} {time.monotonic() - begin:.1f} s", flush=True)


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        child(route)
        return
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    for each in ("subclass", "hooks", "native"):
        chosen = sys.argv[1:] or (OF_NATIVE if each == "native" else ())
        status, output, errors = torch_test.run_child(__file__, each, chosen)
        if status != 0:
            print(f"FAIL: {each}: exit {status} after\n{output}\n{errors[-2500:]}")
            sys.exit(1)
        print(f"{each}: {len(output.splitlines())} of {len(chosen or CASES)} cases")
        if os.environ.get("BERM_TEST_VERBOSE"):
            print(output)


if __name__ == "__main__":
    main()
