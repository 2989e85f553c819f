# SPDX-License-Identifier: Apache-2.0
"""Snapshots, history, settings: cases of TestCudaAllocator, which was TestCudaMallocAsync (own.py)."""
import contextlib
import gc
import json
import os
import pathlib
import pickle
import random
import subprocess
import tempfile

import own
from own import MIB, check, equal, raises

group = own.Group(__file__)
case = group.case
MINE = os.path.basename(__file__)


def blocks_of(snapshot, requested):
    return [block for segment in snapshot["segments"] for block in segment["blocks"]
            if block["requested_size"] == requested and block["state"] == "active_allocated"]


@case("TestCudaAllocator.test_memory_snapshot",
      "blocks say where they are and which line made them, among many that came and went; segments "
      "have frames; the last event after empty_cache gives memory back")
def snapshot(child):
    torch, memory = child.torch, child.torch.cuda.memory
    with child.plain(), child.history("state", stacks="python"):
        torch.rand(2 * 311, 411, device="cuda")
        unused = torch.rand(310, 410, device="cuda")
        x = torch.rand(311, 411, device="cuda")
        tensors = [torch.rand(128, device="cuda") for _ in range(300)]
        while tensors:
            del tensors[random.randrange(len(tensors))]
        torch.rand(128 * 5, device="cuda")
        taken = memory._snapshot()
        check(all("frames" in segment for segment in taken["segments"]), "a segment without frames")
        found = blocks_of(taken, 311 * 411 * 4)
        equal([block["address"] for block in found], [x.untyped_storage().data_ptr()], "addresses")
        check(MINE in found[0]["frames"][0]["filename"], f"its line: {found[0]['frames'][:1]}")
        del unused, x
        torch.cuda.empty_cache()
        last = memory._snapshot()["device_traces"][0][-1]["action"]
        check(last in ("segment_free", "segment_unmap"), f"the last event is {last}")


@case("TestCudaAllocator.test_direct_traceback", "a stack with C++ and Python is gathered and named")
def traceback(child):
    from torch._C._profiler import gather_traceback, symbolize_tracebacks
    frames = str(symbolize_tracebacks([gather_traceback(True, True, True)]))
    check(MINE in frames and "unwind" in frames, frames[:300])


@case("TestCudaAllocator.test_memory_snapshot_with_cpp", "blocks have C++ frames where asked for")
def snapshot_cpp(child):
    torch = child.torch
    with child.history("state", stacks="all"):
        x = torch.rand(311, 411, device="cuda")
        found = blocks_of(torch.cuda.memory._snapshot(), 311 * 411 * 4)
        check(found and "::rand" in str(found[0]["frames"]), "no C++ frames")
        del x


@case("TestCudaAllocator.test_memory_snapshot_script", "a TorchScript function is a frame")
def snapshot_script(child):
    torch = child.torch
    with child.history("state", stacks="python"):
        x = scripted(torch)()
        found = blocks_of(torch.cuda.memory._snapshot(), 311 * 411 * 4)
        check(found and found[0]["frames"][0]["name"] == "made_by_script", str(found)[:300])
        del x


def scripted(torch):
    unit = torch.jit.CompilationUnit(
        "def made_by_script():\n    return torch.rand([311, 411], device='cuda')\n")
    return unit.made_by_script


@case("TestCudaAllocator.test_memory_profiler_viz",
      "the profiler's memory events have sizes, stacks and categories, and become a snapshot")
def profiler(child):
    torch = child.torch
    from torch.cuda._memory_viz import _profile_to_snapshot, profile_plot
    with torch.profiler.profile(with_stack=True, profile_memory=True, record_shapes=True) as made:
        x = torch.rand(128, 128, device="cuda")
        x * x + x * x
    profile_plot(made)
    text = json.dumps(_profile_to_snapshot(made))
    for word in (MINE, "profiler", "category", str(128 * 128 * 4)):
        check(word in text, f"no {word}")


@case("TestCudaAllocator.test_memory_profiler_viz (events)",
      "the profiler's memory events: allocations and frees with what is allocated and reserved then")
def profiler_events(child):
    torch = child.torch
    with child.plain(), torch.profiler.profile(
            profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as made:
        with torch.profiler.record_function("work"):
            x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
            allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
            address = x.data_ptr()
            del x
    events = [event.typed[1] for event in walk(made.profiler.kineto_results.experimental_event_tree())
              if str(event.typed[0]).endswith("Allocation") and event.typed[1].device.type == "cuda"]
    counted = torch.cuda.memory_stats()["allocated_bytes.all.current"]
    equal([(event.ptr, event.total_allocated) for event in events],
          [(address, allocated), (address, counted)], "addresses and totals")
    equal(events[0].alloc_size, -events[1].alloc_size, "sizes")
    check(0 <= events[0].alloc_size - 5 * MIB <= MIB, f"{events[0].alloc_size} is not 5 MiB")
    equal(events[0].total_reserved, reserved, "what is reserved")


def walk(nodes):
    for node in nodes:
        yield node
        yield from walk(node.children)


@case("TestCudaAllocator.test_cycles", "tensors of the device in reference cycles are reported")
def cycles(child):
    torch, told = child.torch, []
    from torch.utils.viz._cycles import observe_tensor_cycles
    disarm = observe_tensor_cycles(told.append)
    try:
        def create():
            x = torch.empty(3, 4, device="cuda")

            def function(again):
                return function(not again) if again else x
            return function

        create()
        gc.collect()
        (lambda: None)()  # the report comes with the next call
    finally:
        disarm()
    check(told and "torch.Tensor" in told[0] and "cell_contents" in told[0], "nothing was reported")


@case("TestCudaAllocator.test_memory_plots",
      "pictures are made of a snapshot; it has Python's and C++'s stacks as asked for, and sizes")
def plots(child):
    torch = child.torch
    from torch.cuda._memory_viz import segment_plot, trace_plot
    for context, stacks in (("all", "all"), ("all", "python"), (None, "python")):
        with child.plain(), child.history("all", context=context, stacks=stacks):
            def program_of_plots():
                x = torch.rand(128, 128, device="cuda")
                x * x + x * x

            program_of_plots()
            taken = torch.cuda.memory._snapshot()
            text = json.dumps(taken)
            for picture in (trace_plot(taken), trace_plot(taken, filter_freed=True),
                            segment_plot(taken)):
                check("<html>" in picture.lower() or "<script" in picture, picture[:100])
            equal("program_of_plots" in text, context is not None, "whether there are stacks")
            equal("::rand" in text, stacks == "all", "whether there are C++ stacks")
            check(str(128 * 128 * 4) in text, "no size")


@case("TestCudaAllocator.test_memory_plots_free_stack, _free_segment_stack",
      "which stacks events have: of allocations with alloc and all, of frees and of empty_cache with "
      "all only")
def stacks(child):
    torch = child.torch
    for context in ("alloc", "all", "state"):
        child.settle()
        with child.history(context=context):
            held = []

            def the_allocation():
                held.append(torch.rand(3, 4, device="cuda"))

            def the_free():
                held.clear()

            the_allocation()
            the_free()
            text = json.dumps(torch.cuda.memory._snapshot())
            equal("the_free" in text, context == "all", f"frees' stacks ({context})")
            equal("the_allocation" in text, context != "state", f"allocations' stacks ({context})")
            torch.cuda.empty_cache()
            text = json.dumps(torch.cuda.memory._snapshot())
            equal("empty_cache" in text, context == "all", f"empty_cache's stack ({context})")


@case("TestCudaAllocator.test_memory_plots_history_context",
      "recording goes on with other settings, and keeps what it has")
def history_again(child):
    torch = child.torch
    record, made = torch.cuda.memory._record_memory_history, []

    def seen_first():
        made.append(torch.rand(4, 4, device="cuda"))

    def not_seen():
        made.append(torch.rand(3, 4, device="cuda"))

    def seen_again():
        made.append(torch.rand(4, 4, device="cuda"))

    try:
        record(context="all", stacks="python")
        seen_first()
        record(context=None)
        not_seen()
        record(context="all", stacks="python")
        seen_again()
        text = json.dumps(torch.cuda.memory._snapshot())
        equal(["seen_first" in text, "not_seen" in text, "seen_again" in text], [True, False, True],
              "what is in the history")
    finally:
        record(None)


@case("TestCudaAllocator.test_memory_plots_metadata", "every event has the metadata of its time")
def metadata(child):
    torch = child.torch
    for context in ("alloc", "all", "state"):
        child.settle()
        torch.cuda.memory._set_memory_metadata("what it was for")
        with child.history(context=context):
            torch.rand(3, 4, device="cuda")
            torch.cuda.empty_cache()
            torch.cuda.memory._set_memory_metadata("")
            found = {event["user_metadata"] for event in
                     torch.cuda.memory._snapshot()["device_traces"][0]}
            equal(found, {"what it was for"}, f"metadata ({context})")


@case("annotations (2.15 on)", "a live tensor is annotated: an event with its address and the text")
def annotated(child):
    torch, memory = child.torch, child.torch.cuda.memory
    check(memory._memory_metadata_supported(), "metadata is not supported")
    with child.history("all"):
        x = torch.rand(1000, device="cuda")
        memory._annotate_tensor(x, "a note")
        events = [event for event in memory._snapshot()["device_traces"][0]
                  if event["action"] == "annotate"]
        equal([(event["addr"], event["user_metadata"]) for event in events],
              [(x.data_ptr(), "a note")], "annotations")
        del x


@case("TestCudaAllocator.test_memory_snapshot_skip_actions", "events of some kinds are left out")
def skipped(child):
    torch = child.torch
    for actions in (["free_requested"], ["free_requested", "free_completed"], ["alloc"],
                    ["segment_alloc", "segment_free"], [], None):
        child.settle()
        with child.history(context="all", stacks="python", skip_actions=actions):
            torch.rand(128, 128, device="cuda")
            torch.cuda.synchronize()
            found = {event["action"] for event in
                     torch.cuda.memory._snapshot()["device_traces"][0]}
        check(not found & set(actions or ()), f"{actions} are there: {found}")
        check(found, f"nothing is there without {actions}")


# --- in C++ --------------------------------------------------------------------------------------

PICKLED = """
#include <string>
#include <cstring>
#include <optional>
#include <torch/csrc/cuda/memory_snapshot.h>
static std::string taken;
extern "C" size_t take() {
    taken = torch::cuda::_memory_snapshot_pickled();
    return taken.size();
}
extern "C" void copy(char *to) { memcpy(to, taken.data(), taken.size()); }
extern "C" void record(bool on, bool stacks) {
    torch::cuda::_record_memory_history(on, stacks, 10, stacks, stacks);
}
"""


def compiled(torch, folder, source, name):
    """A library of the source, against torch's headers and libraries."""
    from berm import _subclass
    path, home = os.path.join(folder, f"lib{name}.so"), os.path.dirname(torch.__file__)
    with open(os.path.join(folder, f"{name}.cpp"), "w", encoding="utf-8") as file:
        file.write(source)
    include = [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include",
               f"-I{_subclass._cuda_headers(pathlib.Path(home))}"]
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-O0", "-w",
                    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", *include,
                    os.path.join(folder, f"{name}.cpp"), "-o", path], check=True)
    return path


@case("TestCudaAllocator.test_cpp_memory_snapshot_pickle",
      "a C++ program records history and pickles a snapshot, whose last event is the allocation")
def pickled(child):
    import ctypes
    torch = child.torch
    with tempfile.TemporaryDirectory() as folder:
        folder_of_torch = os.path.join(os.path.dirname(torch.__file__), "lib")
        ctypes.CDLL(os.path.join(folder_of_torch, "libtorch_cuda.so"), mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(compiled(torch, folder, PICKLED, "pickled"))
        library.take.restype = ctypes.c_size_t
        for stacks in (False, True):
            library.record(True, stacks)
            try:
                x = scripted(torch)()
                data = ctypes.create_string_buffer(library.take())
                library.copy(data)
                taken = pickle.loads(data.raw)
                found = blocks_of(taken, 311 * 411 * 4)
                equal(len(found), 1, "blocks of that size")
                if stacks:
                    frames = str(found[0]["frames"])
                    for word in ("::rand", "made_by_script", MINE):
                        check(word in frames, f"no {word} in {frames[:300]}")
                last = taken["device_traces"][0][-1]
                equal((last["action"], last["size"]), ("alloc", 311 * 411 * 4), "the last event")
                del x
            finally:
                library.record(False, False)


# --- settings ------------------------------------------------------------------------------------


def next_step(size, divisions):
    """Sizes between powers of two in that many steps."""
    power = 1
    while power * 2 < size:
        power *= 2
    step = power // divisions
    return -(-size // step) * step


@case("TestCudaAllocator.test_allocator_settings",
      "roundup_power2_divisions, one number or by size, makes blocks larger and not what was asked "
      "for; a later setting takes it back; wrong keys and values raise ValueError")
def settings(child):
    torch = child.torch
    change, stats = torch._C._accelerator_setAllocatorSettings, torch.cuda.memory_stats
    size, large = 84 * MIB, 400 * MIB

    def grown(key, make):
        before = stats()[key]
        made.append(make())
        return stats()[key] - before

    made, active, requested = [], "active_bytes.all.allocated", "requested_bytes.all.allocated"
    try:
        change("")
        equal(grown(active, lambda: child.bytes(84)), size, "without")
        change("roundup_power2_divisions:4")
        equal(grown(active, lambda: child.bytes(84)), next_step(size, 4), "with 4 divisions")
        equal(grown(requested, lambda: child.bytes(84)), size, "what was asked for")
        change("garbage_collection_threshold:0.5")
        change("garbage_collection_threshold:0.5,max_split_size_mb:40")
        torch.cuda.empty_cache()
        equal(grown(active, lambda: child.bytes(84)), size, "after another setting")
        change("garbage_collection_threshold:0.5,"
               "roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]")
        made.clear()
        torch.cuda.empty_cache()
        equal(grown(active, lambda: child.bytes(84)), next_step(size, 8), "with 8 divisions by size")
        equal(grown(active, lambda: child.bytes(400)), next_step(large, 2), "with 2 by size")
        change("release_lock_on_cudamalloc:True")
        equal(grown(active, lambda: child.bytes(84)), size, "after release_lock_on_cudamalloc")
        for wrong in ("foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2",
                      "release_lock_on_cudamalloc:none", "pinned_use_cuda_host_register:none",
                      "pinned_num_register_threads:none", "pinned_num_register_threads:1024"):
            with raises(ValueError):
                change(wrong)
    finally:
        change(f"release_lock_on_cudamalloc:False,expandable_segments:{child.is_expandable}")


@contextlib.contextmanager
def expandable_after(child):
    """Gives back what the route began with."""
    try:
        yield child.torch._C._accelerator_setAllocatorSettings
    finally:
        child.torch._C._accelerator_setAllocatorSettings(
            f"expandable_segments:{child.is_expandable}")


@case("TestCudaAllocator.test_max_split_expandable",
      "expandable_segments turned on and off while a limit holds: out of memory where it must be, "
      "and all of the limit afterwards")
def toggled(child):
    torch = child.torch
    with expandable_after(child) as change, child.limited(120):
        kept = []
        for expandable in (False, True, False):
            change(f"expandable_segments:{expandable},max_split_size_mb:40")
            kept.append(child.bytes(40))
        with raises(torch.OutOfMemoryError):
            child.bytes(40)
        kept.clear()
        child.bytes(120)


@case("TestCudaAllocator.test_garbage_collect_expandable",
      "the same with garbage_collection_threshold")
def collected(child):
    with expandable_after(child) as change, child.limited(120):
        kept = []
        for expandable in (False, True):
            change(f"expandable_segments:{expandable},garbage_collection_threshold:0.5")
            kept.append(child.bytes(40))
        kept.clear()
        child.bytes(80)


@case("TestCudaAllocator.test_allocator_backend", "backend:cudaMallocAsync is another allocator",
      unmet={"subclass": "berm was asked for, and is what serves"})
def backend(child):
    done = child.apart("torch.cuda.init()\nprint(torch.cuda.get_allocator_backend())",
                       route="native" if child.is_expandable else None,
                       PYTORCH_ALLOC_CONF="max_split_size_mb:20,backend:cudaMallocAsync")
    equal(done.stdout.split(), ["cudaMallocAsync"], f"the backend ({done.stderr[-300:]})")


if __name__ == "__main__":
    group.run()
