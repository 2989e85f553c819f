# SPDX-License-Identifier: Apache-2.0
"""Allocating, statistics, out of memory, limits, pinned memory: cases of TestCuda (see own.py)."""
import gc

import own
from own import MIB, check, equal, raises

group = own.Group(__file__)
case = group.case


@case("TestCuda.test_memory_allocation", "a raw allocation is counted, its deletion takes it back")
def raw_allocation(child):
    cuda = child.torch.cuda
    before = cuda.memory_allocated()
    pointer = cuda.caching_allocator_alloc(1)
    check(cuda.memory_allocated() > before, "a byte is not counted")
    cuda.caching_allocator_delete(pointer)
    equal(cuda.memory_allocated(), before, "memory_allocated")


@case("TestCuda.test_memory_stats",
      "torch.accelerator's statistics count in 512 bytes; peaks and totals are reset; freed counts")
def accelerator_statistics(child):
    torch, accelerator = child.torch, child.torch.accelerator
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    allocated, reserved = accelerator.memory_allocated(), accelerator.memory_reserved()
    equal(accelerator.max_memory_allocated(), allocated, "the peak after its reset")
    equal(accelerator.max_memory_reserved(), reserved, "the peak of reserved after its reset")
    active = accelerator.memory_stats()["active_bytes.all.current"]
    made = torch.randn(256, device="cuda")
    stats = accelerator.memory_stats()
    equal(stats["active_bytes.all.current"], active + 1024, "active")
    equal(stats["active_bytes.all.freed"], 0, "freed")
    check(accelerator.max_memory_reserved() >= accelerator.memory_reserved(), "a peak is below")
    del made
    gc.collect()
    accelerator.empty_cache()
    stats = accelerator.memory_stats()
    equal(stats["active_bytes.all.current"], active, "active")
    equal(stats["active_bytes.all.freed"], 1024, "freed")
    accelerator.reset_peak_memory_stats()
    equal(accelerator.max_memory_allocated(), allocated, "the peak of allocated")
    equal(accelerator.max_memory_reserved(), reserved, "the peak of reserved")


@case("TestCuda.test_memory_stats (earlier)",
      "statistics are the sums over the blocks of memory_snapshot")
def statistics_and_snapshot(child):
    torch = child.torch
    kept = [torch.empty(size, dtype=torch.uint8, device="cuda")
            for size in (100, 70_000, 3 * MIB, 40 * MIB)]
    del kept[1]
    stats, segments = torch.cuda.memory_stats(), torch.cuda.memory_snapshot()
    blocks = [block for segment in segments for block in segment["blocks"]]
    live = [block for block in blocks if block["state"] == "active_allocated"]
    equal(len(live), stats["allocation.all.current"], "the number of live blocks")
    equal(sum(segment["total_size"] for segment in segments), stats["reserved_bytes.all.current"],
          "the sum of segments")
    equal(sum(block["requested_size"] for block in live), stats["requested_bytes.all.current"],
          "the sum of what was asked for")
    for segment in segments:
        equal(sum(block["size"] for block in segment["blocks"]), segment["total_size"],
              "the sum of a segment's blocks")


@case("TestCuda.test_out_of_memory",
      "the error names size, GPU and capacity; above 1 EiB it says so; kernels go on")
def out_of_memory_text(child):
    torch = child.torch
    tensor = torch.zeros(1024, device="cuda")
    with raises(RuntimeError, "Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of"):
        torch.empty(800_000_000 << 30, dtype=torch.int8, device="cuda")
    with raises(RuntimeError, "Tried to allocate more than 1EB memory"):
        torch.empty(8_000_000_000 << 30, dtype=torch.int8, device="cuda")
    tensor.fill_(1)
    check(bool((tensor == 1).all()), "a kernel after the error did nothing")


@case("TestCuda.test_out_of_memory_retry",
      "half of the device, the other half is refused, and had after the first is freed")
def out_of_memory_retry(child):
    torch = child.torch
    size = torch.cuda.get_device_properties(0).total_memory // 2
    first = torch.empty(size, dtype=torch.int8, device="cuda")
    with raises(RuntimeError, "Tried to allocate"):
        torch.empty(size, dtype=torch.int8, device="cuda")
    del first
    torch.empty(size, dtype=torch.int8, device="cuda")


@case("TestCudaAllocator.test_raises_oom", "the error is torch.cuda.OutOfMemoryError")
def out_of_memory_type(child):
    torch = child.torch
    with raises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 40, device="cuda")


@case("TestCudaAllocator.test_raises_oom (max_split_size_mb)", "the same when max_split_size_mb is set")
def out_of_memory_split(child):
    torch = child.torch
    with child.settings("max_split_size_mb:1024", "max_split_size_mb:-1"):
        torch.cuda.empty_cache()
        with raises(torch.cuda.OutOfMemoryError):
            torch.empty(1 << 40, device="cuda")


@case("TestCudaAllocator.test_notifies_oom", "observers are told what was asked for and is free")
def out_of_memory_observer(child):
    torch, told = child.torch, []
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: told.append(figures))
    with raises(torch.cuda.OutOfMemoryError):
        torch.empty(4 << 40, dtype=torch.int8, device="cuda")
    equal(len(told), 1, "how often the observer was told")
    device, size, total, free = told[0]
    equal((device, size), (0, 4 << 40), "device and size")
    check(0 < free <= total <= torch.cuda.mem_get_info()[1], f"of {total} are {free} free")


@case("TestCuda.test_set_per_process_memory_fraction",
      "a limit: wrong values are refused, what fits is had, more is out of memory")
def fraction_limit(child):
    torch, cuda = child.torch, child.torch.cuda
    before = cuda.get_per_process_memory_fraction(0)
    cuda.reset_peak_memory_stats(0)
    with raises(TypeError, "Invalid type"):
        cuda.set_per_process_memory_fraction(1)
    for wrong in (-0.1, 2.0):
        with raises(ValueError, "Invalid fraction value"):
            cuda.set_per_process_memory_fraction(wrong)
    try:
        tensor = torch.zeros(1024, device="cuda")
        cuda.empty_cache()
        total = cuda.get_device_properties(0).total_memory
        cuda.set_per_process_memory_fraction(0.5, 0)
        torch.empty(int(total * 0.499) - cuda.max_memory_reserved(), dtype=torch.int8, device="cuda")
        cuda.empty_cache()
        with raises(RuntimeError, "out of memory"):
            torch.empty(int(total * 0.5), dtype=torch.int8, device="cuda")
        tensor.fill_(1)
        check(bool((tensor == 1).all()), "a kernel after the error did nothing")
    finally:
        cuda.set_per_process_memory_fraction(before, 0)


@case("TestCuda.test_get_per_process_memory_fraction", "the limit that was set is got")
def fraction_read(child):
    cuda = child.torch.cuda
    before = cuda.get_per_process_memory_fraction()
    for value in (1.0, 0.0, 0.5, *child.torch.rand(3).tolist()):
        cuda.set_per_process_memory_fraction(value)
        read = cuda.get_per_process_memory_fraction()
        check(abs(read - value) <= 1e-9, f"{read} is read, {value} was set")
    cuda.set_per_process_memory_fraction(before)


@case("TestCudaAllocator.test_allocator_memory_fraction_setting",
      "per_process_memory_fraction of the environment is the fraction; wrong ones end the program")
def fraction_setting(child):
    program = "print(torch.cuda.memory.get_per_process_memory_fraction(torch._C._cuda_getDevice()))"
    more = "expandable_segments:True," if child.is_expandable else ""
    for value in ("0.0", "0.5", "1.0"):
        done = child.apart(program,
                           PYTORCH_CUDA_ALLOC_CONF=f"{more}per_process_memory_fraction:{value}")
        equal(done.stdout.split(), [value], f"the fraction ({done.stderr[-300:]})")
    for value in ("-0.1", "1.1"):
        done = child.apart(program,
                           PYTORCH_CUDA_ALLOC_CONF=f"{more}per_process_memory_fraction:{value}")
        check(done.returncode != 0, f"{value} is taken")
        check("per_process_memory_fraction is invalid" in done.stderr, done.stderr[-400:])


@case("throw_on_cudamalloc_oom (2.13 on)",
      "with it and per_process_memory_fraction in the settings a request over that is rejected, and "
      "num_oom_rejections counts it; what fits is had")
def rejection(child):
    torch, cuda = child.torch, child.torch.cuda
    cuda.empty_cache()
    before = cuda.memory_stats()
    fraction = (cuda.memory_reserved() + 100 * MIB) / cuda.mem_get_info()[1]
    with child.settings(f"throw_on_cudamalloc_oom:True,per_process_memory_fraction:{fraction}",
                        "throw_on_cudamalloc_oom:False,per_process_memory_fraction:1.0"):
        kept = child.bytes(60)
        for _ in range(2):
            with raises(torch.OutOfMemoryError, "rejected"):
                child.bytes(60)
        stats = cuda.memory_stats()
        equal(stats["num_oom_rejections"] - before["num_oom_rejections"], 2, "rejections")
        equal(stats["num_ooms"], before["num_ooms"], "failures")
        del kept
        child.bytes(60)
    child.bytes(160)
    with child.limited(100):  # without it a failure is none of these
        with raises(torch.OutOfMemoryError, "out of memory"):
            child.bytes(160)
    equal(cuda.memory_stats()["num_oom_rejections"] - before["num_oom_rejections"], 2, "rejections")


@case("TestCudaAllocator.test_cachingAllocator_raw_alloc",
      "caching_allocator_enable(False): requests go to the driver and are not counted")
def enable(child):
    torch = child.torch
    stream = torch._C._cuda_getCurrentRawStream(0)

    def counted():
        before = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
        pointer = torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, stream)
        after = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
        torch._C._cuda_cudaCachingAllocator_raw_delete(pointer)
        return after - before

    torch.cuda.caching_allocator_enable(False)
    try:
        equal(counted(), 0, "what is counted without the allocator")
        made = torch.full((100,), 3.0, device="cuda")
    finally:
        torch.cuda.caching_allocator_enable(True)
    equal(counted(), MIB, "what is counted with it")
    equal(made.sum().item(), 300, "a tensor of the driver's")


@case("TestCuda.test_cublas_workspace_explicit_allocation",
      "the workspace of cuBLAS is a block of the allocator, as large as the environment says")
def workspace(child):
    import os
    torch = child.torch
    small = torch.randn(7, 7, device="cuda")
    torch.backends.cuda.preferred_blas_library("cublas")
    usual = 32 * MIB if torch.cuda.get_device_capability() == (9, 0) else \
        (4096 * 2 + 16 * 8) << 10

    def size():
        torch._C._cuda_clearCublasWorkspaces()
        before = torch.cuda.memory_stats()["active_bytes.all.allocated"]
        torch.matmul(small, small)
        return torch.cuda.memory_stats()["active_bytes.all.allocated"] - before

    try:
        for setting in ("", "-1"):
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = setting
            check(abs(size() - usual) < MIB // 2, f"{setting!r}: {size()}, not {usual}")
    finally:
        del os.environ["CUBLAS_WORKSPACE_CONFIG"]
    done = child.apart(
        "torch.backends.cuda.preferred_blas_library('cublas')\n"
        "small = torch.ones(7, 7, device='cuda')\n"
        "before = torch.cuda.memory_stats()['active_bytes.all.allocated']\n"
        "torch.matmul(small, small)\n"
        "print(torch.cuda.memory_stats()['active_bytes.all.allocated'] - before)\n",
        CUBLAS_WORKSPACE_CONFIG=":128:8:64:16:32:32")
    check(abs(int(done.stdout) - 3 * MIB) < MIB // 2, f"{done.stdout} is not 3 MiB; {done.stderr}")


@case("TestCuda.test_matmul_memory_use", "an expanded operand costs matmul no more memory")
def matmul_peak(child):
    torch = child.torch

    def peak():
        torch.cuda.synchronize()
        value = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return value

    a, b = torch.rand(1, 32, 32, device="cuda"), torch.rand(24, 32, 1, device="cuda")
    torch.matmul(a, b)  # the library's workspace
    peak()
    torch.matmul(a, b)
    plain = peak()
    a = a.expand(24, 32, 32)
    torch.matmul(a, b)
    equal(peak(), plain, "the peak of the expanded one")
    torch.bmm(a, b)
    equal(peak(), plain, "the peak of bmm")


@case("TestCuda.test_cuda_memory_leak_detection_propagates_errors",
      "PyTorch's own leak check passes what leaks nothing, finds what does, and hides no error")
def leak_check(child):
    import sys
    import types
    import unittest
    torch = child.torch
    if "expecttest" not in sys.modules:  # which is not used here, and need not be installed
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    from torch.testing._internal.common_utils import CudaMemoryLeakCheck

    class Test:
        id = staticmethod(lambda: "a test")
        before_cuda_memory_leak_check = staticmethod(lambda: None)

    with CudaMemoryLeakCheck(Test(), "no leak"):
        torch.randn(3, 1, device="cuda")
    with raises(RuntimeError, "must match"):
        with CudaMemoryLeakCheck(Test(), "an error"):
            torch.randn(3, 1, device="cuda") + torch.randn(2, 2, device="cuda")
    kept = []
    with raises(RuntimeError, "a leak in a leak"):
        with CudaMemoryLeakCheck(Test(), "a leak"):
            kept.append(torch.randn(3_000_000, device="cuda"))


@case("TestCudaAllocator.test_device_memory_used",
      "what the device says is in use follows an allocation and empty_cache")
def device_used(child):
    torch = child.torch
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    made = child.bytes(512)
    taken = free - torch.cuda.mem_get_info()[0]
    check(512 * MIB <= taken <= 600 * MIB, f"{taken} bytes are taken for 512 MiB")
    del made
    torch.cuda.empty_cache()
    equal(torch.cuda.mem_get_info()[0], free, "what is free afterwards")


@case("TestCudaAllocator.test_allocator_fuzz",
      "thousands of random allocations, frees and empty_cache: contents stay")
def fuzz(child):
    import random
    torch, random = child.torch, random.Random(123)
    kept, total = [], 0
    for number in range(600):
        while total > 100 * MIB:
            value, tensor = kept.pop(random.randrange(len(kept)))
            check(bool((tensor == value).all()), f"what was written as {value} changed")
            total -= tensor.nbytes
        choice = random.choices("afe", (1, 1 if kept else 0, 0.1))[0]
        if choice == "a":
            size = random.randrange(2 * MIB // 4, 20 * MIB // 4)
            kept.append((number, torch.full((size,), number, dtype=torch.int32, device="cuda")))
            total += size * 4
        elif choice == "f":
            value, tensor = kept.pop(random.randrange(len(kept)))
            check(bool((tensor == value).all()), f"what was written as {value} changed")
            total -= tensor.nbytes
        else:
            torch.cuda.empty_cache()


# --- pinned memory of the host -------------------------------------------------------------------


@case("TestCuda.test_pinned_memory_with_cudaregister (and _multithread)",
      "pinned memory by cudaHostRegister, also by several threads at once")
def pinned_registered(child):
    import threading
    torch, failed = child.torch, []

    def pin():
        try:
            check(not torch.ones(20).is_pinned(), "plain memory is pinned")
            for size in (1 << 18, 1 << 21):
                check(torch.ones(size).pin_memory().is_pinned(), f"{size} are not pinned")
        except Exception as error:
            failed.append(error)

    with child.settings("pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
                        "pinned_use_cuda_host_register:False"):
        pin()
        threads = [threading.Thread(target=pin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    equal(failed, [], "errors of threads")


@case("TestCuda.test_host_memory_stats", "statistics of pinned memory, by powers of two, and resets")
def pinned_statistics(child):
    torch, cuda = child.torch, child.torch.cuda
    gc.collect()
    torch._C._host_emptyCache()
    cuda.reset_peak_host_memory_stats()
    cuda.reset_accumulated_host_memory_stats()
    before = cuda.host_memory_stats()
    kept = [torch.ones(10 << 10, pin_memory=True), torch.ones(20 << 10, pin_memory=True)]
    stats = cuda.host_memory_stats()
    for name in ("allocated_bytes", "active_bytes"):
        for part in ("current", "allocated", "peak"):
            equal(stats[f"{name}.{part}"] - before[f"{name}.{part}"], (16 + 32) << 12,
                  f"{name}.{part}")
    equal(stats["active_requests.current"] - before["active_requests.current"], 2, "requests")
    equal(stats["num_host_alloc"] - before["num_host_alloc"], 2, "allocations of the driver")
    kept.clear()
    torch._C._host_emptyCache()
    stats = cuda.host_memory_stats()
    equal(stats["allocated_bytes.current"], before["allocated_bytes.current"], "after all is freed")
    cuda.reset_accumulated_host_memory_stats()
    equal(cuda.host_memory_stats()["num_host_alloc"], 0, "allocations after the reset")


@case("TestCuda.test_pinned_memory_empty_cache", "pinned memory goes back, registered or not")
def pinned_emptied(child):
    torch = child.torch
    for registered in (True, False):
        with child.settings(f"pinned_use_cuda_host_register:{registered}",
                            "pinned_use_cuda_host_register:False"):
            check(torch.ones(MIB, pin_memory=True).is_pinned(), "not pinned")
            torch._C._host_emptyCache()


@case("TestCuda.test_pinned_memory_use_background_threads", "pinned memory with background threads")
def pinned_background(child):
    done = child.apart(
        "torch._C._accelerator_setAllocatorSettings('pinned_use_background_threads:True')\n"
        "print(torch.ones(1 << 20, pin_memory=True).is_pinned())")
    equal((done.returncode, done.stdout.split()), (0, ["True"]), done.stderr[-300:])


@case("TestCuda.test_cudart_register", "cudaHostRegister of a tensor pins it, Unregister undoes it")
def registered(child):
    tensor, cudart = child.torch.ones(20), child.torch.cuda.cudart()
    check(not tensor.is_pinned(), "pinned before")
    equal(int(cudart.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)), 0, "register")
    check(tensor.is_pinned(), "not pinned")
    equal(int(cudart.cudaHostUnregister(tensor.data_ptr())), 0, "unregister")
    check(not tensor.is_pinned(), "pinned afterwards")


@case("TestCuda.test_noncontiguous_pinned_memory", "a pinned copy has the values of a transposed tensor")
def pinned_transposed(child):
    tensor = child.torch.arange(10).view(2, 5).t()
    check(child.torch.equal(tensor, tensor.pin_memory()), "other values")


@case("TestCuda.test_caching_pinned_memory",
      "freed pinned memory is reused, but not while a copy from it is queued")
def pinned_reuse(child):
    torch = child.torch
    pinned = torch.ones(1).pin_memory()
    address = pinned.data_ptr()
    del pinned
    pinned = torch.ones(1).pin_memory()
    equal(pinned.data_ptr(), address, "the address of the next")
    target = torch.zeros(1, device="cuda")
    torch.cuda._sleep(own.SLEEP_CYCLES)
    target.copy_(pinned, non_blocking=True)
    del pinned
    check(torch.ones(1).pin_memory().data_ptr() != address, "reused too early")
    equal(target.tolist(), [1.0], "what was copied")


@case("TestCuda.test_copy_non_blocking, _type_conversion",
      "copies to and from pinned memory, also at an offset and of another type")
def pinned_copies(child):
    torch = child.torch
    base = torch.zeros(1_000_001, dtype=torch.uint8).pin_memory()
    shifted = base[1:]
    check(shifted.is_pinned() and shifted.data_ptr() == base.data_ptr() + 1, "a pinned view")
    for target, source in ((torch.ones(1_000_000, dtype=torch.uint8, device="cuda"), shifted),
                           (shifted, torch.full((1_000_000,), 7, dtype=torch.uint8, device="cuda"))):
        event = torch.cuda.Event()
        target.copy_(source, non_blocking=True)
        event.record()
        event.synchronize()
        check(torch.equal(target.cpu(), source.cpu()), "other values")
    one, pinned = torch.ones(1, device="cuda"), torch.zeros(1, pin_memory=True)
    whole = torch.empty(1, device="cuda", dtype=torch.long)
    torch.cuda._sleep(own.SLEEP_CYCLES)
    pinned.copy_(one, non_blocking=True)
    whole.copy_(pinned, non_blocking=True)
    equal(whole.item(), 1, "what was converted")


@case("TestCuda.test_to_non_blocking, test_to_cpu_blocking_by_default",
      "to() waits for the stream unless it is told not to; to the CPU it pins then")
def to_blocking(child):
    torch = child.torch
    stream = torch.cuda.current_stream()
    for to, is_async in (("cuda", True), ("cuda", False), ("cpu", True), ("cpu", False)):
        source = torch.randn(100_000, device="cuda" if to == "cpu" else "cpu",
                             pin_memory=to == "cuda")
        torch.cuda.synchronize()
        torch.cuda._sleep(own.SLEEP_CYCLES)
        made = source.to(device=to, non_blocking=is_async)
        equal(stream.query(), not is_async, f"whether the stream is idle (to {to})")
        stream.synchronize()
        check(torch.equal(source.cpu(), made.cpu()), "other values")
        equal(made.is_pinned(), is_async and to == "cpu", "whether it is pinned")
    torch.cuda._sleep(own.SLEEP_CYCLES)
    torch.randn(1000, device="cuda").to(device="cpu")
    check(stream.query(), "to the CPU does not wait by default")


@case("TestCuda.test_serialization_array_with_storage, _with_empty",
      "saved and loaded tensors and storages share memory as before")
def saved(child):
    import io
    torch = child.torch
    x = torch.randn(5, 5, device="cuda")
    y = torch.zeros(2, 5, device="cuda")
    file = io.BytesIO()
    torch.save([x, y, x, y.storage(), torch.empty(0, device="cuda")], file)
    file.seek(0)
    copy = torch.load(file, weights_only=False)
    check(torch.equal(copy[0], x) and copy[4].is_cuda and copy[4].numel() == 0, "other values")
    copy[0].fill_(5)
    check(torch.equal(copy[0], copy[2]), "a shared tensor is shared no more")
    copy[1].fill_(10)
    equal(copy[3].tolist(), [10.0] * 10, "what a shared storage has")


if __name__ == "__main__":
    group.run()
