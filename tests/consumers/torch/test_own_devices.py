# SPDX-License-Identifier: Apache-2.0
"""Two devices, and what goes between processes: cases of TestCuda and of test_cuda_multigpu and
test_multiprocessing (see own.py)."""
import own
from own import MIB, check, equal, raises

group = own.Group(__file__, SIMCUDA_DEVICES="2")
case = group.case


@case("TestCuda.test_multi_device_context_manager, _stream_context_manager",
      "devices and streams of another device as contexts")
def contexts(child):
    torch, cuda = child.torch, child.torch.cuda
    before = [cuda.current_stream(device) for device in range(2)]
    with torch.accelerator.device_index(1):
        equal(cuda.current_device(), 1, "the device")
    equal(cuda.current_device(), 0, "the device")
    with cuda.Stream(1) as stream:
        equal((cuda.current_device(), cuda.current_stream()), (1, stream), "inside")
        equal(cuda.current_stream(0), before[0], "the other device's stream")
    equal([cuda.current_stream(device) for device in range(2)], before, "streams")


@case("TestCuda.test_device_count_not_cached_pre_init",
      "CUDA_VISIBLE_DEVICES changed before CUDA is used changes the number of devices")
def visible(child):
    done = child.apart("import os\n"
                       "first = torch.cuda.device_count()\n"
                       "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
                       "second = torch.cuda.device_count()\n"
                       "torch.empty(10, device='cuda')\nprint(first, second)")
    equal(done.stdout.split(), ["2", "1"], f"numbers of devices ({done.stderr[-300:]})")


@case("TestCudaMultiGPU.test_memory_stats_multigpu (in parts)",
      "statistics of devices are apart; so are peaks and limits")
def statistics(child):
    torch, cuda = child.torch, child.torch.cuda
    before = [cuda.memory_allocated(device) for device in range(2)]
    made = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda:1")
    size = cuda.memory_allocated(1) - before[1]
    check(5 * MIB <= size <= 6 * MIB, f"{size} bytes of 5 MiB")
    equal(cuda.memory_allocated(0), before[0], "what the other has")
    cuda.set_per_process_memory_fraction(0.001, 1)
    with raises(torch.OutOfMemoryError, "GPU 1"):
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1")
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
    cuda.set_per_process_memory_fraction(1.0, 1)
    del made


@case("TestCudaMultiGPU.test_copy_device, test_cat_autogpu, test_peer_to_peer (in parts)",
      "copies from device to device have the values, both ways, before and after peers have access, "
      "of memory that was there before and that came later")
def copies(child):
    torch = child.torch
    check(torch.cuda.can_device_access_peer(0, 1), "no access")
    early = torch.arange(1000, dtype=torch.float32, device="cuda:0")
    there = early.to("cuda:1")
    equal(there.device.index, 1, "the device of the copy")
    late = torch.arange(3 * MIB, dtype=torch.int32, device="cuda:1")
    for tensor in (early, there, late):
        other = tensor.to(f"cuda:{1 - tensor.device.index}", non_blocking=True)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        check(torch.equal(other.cpu(), tensor.cpu()), "other values")


@case("TestCudaMultiGPU.test_stream_event_on_other_device (in parts)",
      "a block of one device that a stream of its own recorded is safe from reuse there too")
def recorded(child):
    torch = child.torch
    with torch.cuda.device(1):
        user, home = torch.cuda.Stream(), torch.cuda.current_stream()
        tensor = torch.empty(3 * MIB, device="cuda")
        user.wait_stream(home)
        with torch.cuda.stream(user):
            torch.cuda._sleep(own.SLEEP_CYCLES)
            tensor.fill_(1)
        tensor.record_stream(user)
        address = tensor.data_ptr()
        del tensor
        check(torch.empty(3 * MIB, device="cuda").data_ptr() != address, "reused too early")
        torch.cuda.synchronize()


@case("TestMultiprocessing.test_cuda_simple (in parts)",
      "a tensor of the default pool is sent to another process", keeps=True)
def default_pool(child):
    torch = child.torch
    tensor = torch.ones(1000, device="cuda")
    handle = tensor.untyped_storage()._share_cuda_()
    check(len(handle) == 8 and handle[1], "no handle")
    del tensor


if __name__ == "__main__":
    group.run()
