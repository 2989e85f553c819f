# SPDX-License-Identifier: Apache-2.0
"""Streams, events, record_stream, and gradients on several streams: cases of TestCuda (see own.py)."""
import threading

import own
from own import MIB, check, equal, raises

group = own.Group(__file__)
case = group.case


@case("TestCuda.test_streams", "the default stream is 0, another is not; each is current where it is set",
      on_default=True)
def streams(child):
    cuda = child.torch.cuda
    usual, other = cuda.current_stream(), cuda.Stream()
    check(usual != other and usual.cuda_stream == 0 and other.cuda_stream != 0, "streams")
    with cuda.stream(other):
        equal(cuda.current_stream(), other, "the current stream")
    equal(cuda.current_stream(), usual, "the current stream")
    check(other.query(), "a stream without work is not idle")
    child.torch.zeros(5, dtype=child.torch.uint8).pin_memory()
    usual.synchronize()
    check(usual.query(), "a stream that was waited for is not idle")


@case("TestCuda.test_stream_event_repr, test_cuda_stream_protocol",
      "streams and events say what they are; an ExternalStream has the same handle")
def stream_handles(child):
    cuda = child.torch.cuda
    stream, event = cuda.Stream(), cuda.Event()
    check("torch.cuda.Stream" in repr(stream) and "torch.cuda.Event" in repr(event), "names")
    stream.record_event(event)
    check("torch.cuda.Event" in repr(event), "name of a recorded event")
    equal(stream.__cuda_stream__(), (0, stream.cuda_stream), "the protocol")
    equal(cuda.ExternalStream(stream.cuda_stream).__cuda_stream__(), (0, stream.cuda_stream),
          "the protocol of an external stream")


@case("TestCuda.test_events", "an event after queued work is done later; time passes between events")
def events(child):
    cuda = child.torch.cuda
    stream = cuda.current_stream()
    first, second = (cuda.Event(enable_timing=True) for _ in range(2))
    check(second.query(), "an event that was not recorded is not done")
    equal((second.cuda_event, second.event_id), (0, 0), "handles before")
    stream.record_event(first)
    cuda._sleep(own.SLEEP_CYCLES)
    stream.record_event(second)
    check(not second.query(), "done before the work is")
    second.synchronize()
    check(second.query() and first.elapsed_time(second) > 0, "no time passed")
    check(second.cuda_event != 0 and second.cuda_event == second.event_id, "handles")


@case("TestCuda.test_events_elapsedtime", "time between events needs timing and recording")
def event_errors(child):
    event = child.torch.cuda.Event
    for settings in ({}, {"enable_timing": False}):
        with raises(ValueError, "enable_timing=True"):
            event(**settings).elapsed_time(event(**settings))
    with raises(ValueError, "must be recorded"):
        event(enable_timing=True).elapsed_time(event(enable_timing=True))


@case("TestCuda.test_generic_stream_event, test_stream_compatibility",
      "torch.Stream and torch.Event work with CUDA's, and torch.accelerator sees the same")
def generic(child):
    torch = child.torch
    stream = torch.Stream("cuda")
    same = torch.cuda.Stream(stream_id=stream.stream_id, device_index=stream.device_index,
                             device_type=stream.device_type)
    check(isinstance(same, torch.Stream) and same.stream_id == stream.stream_id, "the same stream")
    first, second = (torch.Event("cuda", enable_timing=True) for _ in range(2))
    a, b = torch.randn(1000), torch.randn(1000)
    with torch.cuda.stream(same):
        on_device = [each.to("cuda", non_blocking=True) for each in (a, b)]
    first.record(stream)
    first.synchronize()
    total = on_device[0] + on_device[1]
    second.record()
    second.synchronize()
    check(first.query() and second.query() and first.elapsed_time(second) > 0, "events")
    check(torch.equal(total.cpu(), a + b), "another sum")
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(same)
    equal(torch.accelerator.current_stream().stream_id, stream.stream_id, "the current stream")
    torch.accelerator.set_stream(before)
    with raises(RuntimeError, "out of index range"):
        torch.accelerator.current_stream(torch.accelerator.device_count())


@case("TestCuda.test_stream_context_manager, test_device_context_manager",
      "streams and devices as contexts give back what was current")
def contexts(child):
    torch = child.torch
    before = torch.cuda.current_stream()
    with torch.cuda.Stream() as stream:
        equal(torch.cuda.current_stream(), stream, "the current stream")
    equal(torch.cuda.current_stream(), before, "the current stream")
    for index in (None, 0):
        with torch.accelerator.device_index(index):
            equal(torch.cuda.current_device(), 0, "the device")


def recorded(child, count):
    """A block is used by another stream, freed, and asked for again; the values must be right."""
    torch = child.torch
    pinned = torch.arange(count, dtype=torch.float32).pin_memory()
    result = torch.empty(count, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        copy = pinned.cuda(non_blocking=True)
        address = copy.data_ptr()
    torch.cuda.current_stream().wait_stream(side)
    copy.record_stream(torch.cuda.current_stream())
    torch.cuda._sleep(own.SLEEP_CYCLES)
    result.copy_(copy)
    del copy
    with torch.cuda.stream(side):
        other = torch.empty(count, device="cuda")
        other.zero_()
        check(other.data_ptr() != address, "reused too early")
    check(torch.equal(result.cpu(), pinned), "what was copied is spoilt")
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        equal(torch.empty(count, device="cuda").data_ptr(), address, "the address of the next")


@case("TestCuda.test_record_stream",
      "a freed block that another stream uses is not reused before, and is the next one after")
def recorded_large(child):
    recorded(child, 700_000)


@case("TestCuda.test_record_stream (16 bytes)", "the same of a block of 16 bytes",
      unmet={"subclass": "the thread has other free slots of this size at hand, which it hands out "
             "first; the block comes when these are used up"})
def recorded_small(child):
    recorded(child, 4)


@case("TestCuda.test_record_stream_on_shifted_view", "record_stream of a view is of its whole storage")
def recorded_view(child):
    torch = child.torch
    home, user = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(home):
        base = torch.empty(10, 10, device="cuda")
    view = base[5:]
    with torch.cuda.stream(user):
        torch.cuda._sleep(own.SLEEP_CYCLES)
    view.record_stream(user)
    address = base.data_ptr()
    del base, view
    home.synchronize()
    with torch.cuda.stream(home):
        check(torch.empty(10, 10, device="cuda").data_ptr() != address, "reused too early")


@case("TestCuda.test_caching_allocator_record_stream_oom",
      "blocks that wait for a stream are had before a request fails")
def recorded_oom(child):
    torch = child.torch
    side = torch.cuda.Stream()
    with child.limited(600):
        with torch.cuda.stream(side):
            total = torch.zeros(4 * MIB, device="cuda")
        for _ in range(100):
            part = torch.empty(10 * MIB, device="cuda")
            with torch.cuda.stream(side):
                total += part[:4 * MIB]
            part.record_stream(side)
            del part
        torch.cuda.empty_cache()


# --- gradients -----------------------------------------------------------------------------------


def multiplier(torch):
    """Multiplies, and looks that its gradient comes on the stream of its forward."""
    class Multiply(torch.autograd.Function):
        @staticmethod
        def forward(context, x, by):
            context.by, context.stream = by, torch.cuda.current_stream()
            return x * by

        @staticmethod
        def backward(context, grad):
            equal(torch.cuda.current_stream(), context.stream, "the stream of the gradient")
            torch.cuda._sleep(own.SLEEP_CYCLES // 10)
            return grad * context.by, None
    return Multiply.apply


@case("TestCuda.test_streaming_backwards_sync",
      "gradients of a side stream are right after it is waited for, and in the stream of backward",
      on_default=True)
def backward_side(child):
    torch = child.torch
    usual, side, ambient = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    multiply = multiplier(torch)
    x = torch.randn(5, 5, device="cuda", requires_grad=True)
    side.wait_stream(usual)
    with torch.cuda.stream(side):
        multiply(x, 2).sum().backward()
    usual.wait_stream(side)
    check(bool((x.grad == 2).all()), "the gradient")
    y = torch.randn(5, 5, device="cuda", requires_grad=True)
    side.wait_stream(usual)
    with torch.cuda.stream(side):
        output = multiply(y, 3)
    with torch.cuda.stream(ambient):
        ambient.wait_stream(side)
        output.sum().backward()
        check(bool((y.grad == 3).all()), "the gradient in another stream")
        equal(torch.cuda.current_stream(), ambient, "the current stream")


@case("TestCuda.test_streaming_backwards_multiple_streams",
      "a model on two streams: gradients are right, added up over calls, and come on their streams")
def backward_several(child):
    torch = child.torch
    multiply = multiplier(torch)
    sides = torch.cuda.Stream(), torch.cuda.Stream()
    event = torch.cuda.Event()

    def forward(x):
        for side in sides:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(sides[0]):
            first = multiply(x.clone(), 2)
            event.record(torch.cuda.current_stream())
        with torch.cuda.stream(sides[1]):
            second = multiply(x, 3)
            sides[1].wait_event(event)
            return first + second

    stream = torch.cuda.Stream()
    for times, is_apart in ((1, True), (1, False), (4, False)):
        with torch.cuda.stream(stream):
            x = torch.randn(5, 5, device="cuda", requires_grad=True)
            for _ in range(times):
                loss = forward(x).sum()
                if is_apart:
                    grad, = torch.autograd.grad((loss,), (x,))
                else:
                    loss.backward()
        torch.cuda.current_stream().wait_stream(stream)
        found = grad if is_apart else x.grad
        check(bool((found == 5 * times).all()), f"the gradient of {times} calls")


@case("TestCuda.test_streaming_backwards_sync_graph_root",
      "backward waits for the stream on which its first gradient was made")
def backward_root(child):
    torch = child.torch
    work, ambient = torch.cuda.Stream(), torch.cuda.Stream()
    a = torch.full((1000,), 2.0, device="cuda", requires_grad=True)
    b = torch.full((1000,), 3.0, device="cuda", requires_grad=True)
    for trial in range(3):
        torch.cuda.synchronize()
        a.grad = b.grad = None
        with torch.cuda.stream(work):
            c = a * b
        with torch.cuda.stream(ambient):
            torch.cuda.synchronize()
            torch.cuda._sleep(own.SLEEP_CYCLES)
            grad = torch.full((1000,), trial + 1.0, device="cuda")
            torch.autograd.backward(c, grad)
            torch.cuda.synchronize()
            with torch.no_grad():
                check(torch.equal(a.grad, grad * b) and torch.equal(b.grad, grad * a), "gradients")


@case("TestCuda.test_streaming_backwards_callback",
      "a callback at the end of backward sees the gradients of all streams")
def backward_callback(child):
    torch = child.torch
    multiply = multiplier(torch)
    a, b = (torch.ones(1000, device="cuda", requires_grad=True) for _ in range(2))
    first, second, ambient = (torch.cuda.Stream() for _ in range(3))
    seen = []

    def keep():
        seen.extend((a.grad.clone(), b.grad.clone()))

    first.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(first):
        c = multiply(a, 2)
    second.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(second):
        d = multiply(b, 3)
        second.wait_stream(first)
        e = c * d
        e.register_hook(lambda grad: torch.autograd.Variable._execution_engine.queue_callback(keep))
    ambient.wait_stream(second)
    with torch.cuda.stream(ambient):
        e.sum().backward()
        for grad in seen:
            check(bool((grad == 6).all()), "a gradient")
    equal(len(seen), 2, "gradients that were seen")


# --- threads -------------------------------------------------------------------------------------


def by_threads(child, work):
    """Two threads, each with a stream of its own, start at once; returns what each made."""
    torch = child.torch
    barrier, results, failed = threading.Barrier(2), [None, None], []

    def run(number):
        try:
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            barrier.wait(60)
            with torch.cuda.stream(stream):
                results[number] = work()
            torch.cuda.synchronize()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failed, [], "errors of threads")
    return results


@case("TestCuda.test_cublas_multiple_threads_same_device",
      "two threads multiply matrices at once, each on its stream")
def threads_matmul(child):
    torch = child.torch
    weight = torch.ones(64, 64, device="cuda")

    def work():
        value = torch.ones(64, 64, device="cuda")
        for _ in range(30):
            value = torch.mm(value, weight).div_(64)
        return value
    for result in by_threads(child, work):
        equal(result.sum().item(), 64 * 64, "the sum")


@case("TestCuda.test_cudnn_multiple_threads_same_device",
      "two threads convolve at once, each on its stream")
def threads_convolution(child):
    torch = child.torch
    weight = torch.ones(1, 1, 2, 2, device="cuda")

    def work():
        value = torch.ones(1, 1, 64, 64, device="cuda")
        for _ in range(20):
            value = torch.nn.functional.conv2d(value, weight).div_(4)
        return value
    with torch.backends.cudnn.flags(enabled=True):
        for result in by_threads(child, work):
            equal(result.sum().item(), 44 * 44, "the sum")


# --- before CUDA is used -------------------------------------------------------------------------


@case("TestCuda.test_lazy_init",
      "import torch initialises no CUDA, and neither does making the allocator the current one")
def lazy(child):
    done = child.apart("import ctypes\n"
                       "count = ctypes.c_int(-1)\n"
                       "library = ctypes.CDLL('libcuda.so.1')\n"
                       "print(library.cuDeviceGetCount(ctypes.byref(count)))")
    equal(done.stdout.split(), ["3"], f"the driver's answer ({done.stderr[-300:]})")


@case("TestCuda.test_lazy_init (CUDA_VISIBLE_DEVICES)",
      "CUDA_VISIBLE_DEVICES set after the import of torch hides devices")
def hidden(child):
    done = child.apart("import os\n"
                       "os.environ['CUDA_VISIBLE_DEVICES'] = '32'\n"
                       "print(torch.cuda.device_count())")
    equal(done.stdout.split(), ["0"], f"the number of devices ({done.stderr[-300:]})")


@case("TestCuda.test_is_pinned_no_context",
      "asking whether a tensor is pinned makes no context: a forked process can use CUDA")
def forked(child):
    done = child.apart("""
import os
x = torch.randn(10)
assert not x.is_pinned()
pid = os.fork()
if pid == 0:
    assert not torch.randn(10).is_pinned()
    torch.ones(10, device="cuda")[0].item()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
    equal(done.stdout.split(), ["7"], f"the exit of the forked process ({done.stderr[-300:]})")


@case("TestCuda.test_uuid, test_cuda_get_device_name, _capability, _properties",
      "what a device is called and can do is the same for None, no argument and its number")
def device(child):
    cuda = child.torch.cuda
    for function in (cuda.get_device_name, cuda.get_device_capability, cuda.get_device_properties):
        equal((function(None), function()), (function(0), function(0)), function.__name__)
    uuid = cuda.get_device_properties(0).uuid
    equal((len(str(uuid)), len(uuid.bytes)), (36, 16), "the lengths of a UUID")


if __name__ == "__main__":
    group.run()
