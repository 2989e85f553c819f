# SPDX-License-Identifier: Apache-2.0
"""Every function of torch.cuda.memory and torch.accelerator.memory, also those with an underscore,
called by one program under the native allocator, expandable segments and the subclass: results have
the same types, figures of what is allocated are the same, and figures of what is reserved lie between
what is allocated and what native reserves. A function that torch has and this table lacks is a
failure; so it is with any version of torch. Under the hooks, torch.accelerator.memory: what works,
and that the rest raises."""
import collections
import json
import os
import pickle
import re
import sys
import tempfile
import time

import torch_test

MIB = 1 << 20
# Figures that do not depend on how segments are made.
SAME = ("allocation.", "allocated_bytes.", "active.", "active_bytes.", "requested_bytes.")
RESERVED = ("memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached")
NOT_CALLED = {
    "_CUDAAllocator": "a type",
    "_record_memory_history_impl": "behind _record_memory_history",
    "_record_memory_history_legacy": "the form of old arguments, behind _record_memory_history",
    "_recurse_add_to_result": "behind memory_stats",
    "_flatten_stats": "behind memory_stats",
    "_make_uvm_allocator": "behind _use_uvm",
    "_use_uvm": "needs NVIDIA's package cuda.bindings",
    "_save_segment_usage": "fetches a script for flame graphs from the network",
    "_save_memory_usage": "the same",
}


def shape(*values):
    """The types of results and of what is in them; a list's items are taken together."""
    names = sorted({type(value).__name__ for value in values})
    dicts = [value for value in values if isinstance(value, dict)]
    keys = sorted({str(key) for value in dicts for key in value
                   if not str(key).startswith("reserved_bytes_by")})
    inside = {key: shape(*(value[name] for value in dicts for name in value if str(name) == key))
              for key in keys}
    items = [item for value in values if isinstance(value, (list, tuple)) for item in value]
    if items:
        inside["items"] = shape(*items)
    return [*names, inside] if inside else names


def functions_of(module):
    """The names of its own functions and classes, public or not."""
    own = {name for name in dir(module) if callable(getattr(module, name)) and
           getattr(getattr(module, name), "__module__", None) == module.__name__}
    return own | set(module.__all__)


class Table:
    """Calls each function, and notes what it gave: [types, exact value or None, reserved bytes and
    what they must cover, or None]."""

    def __init__(self, torch):
        self.torch, self.notes, self.called = torch, {}, collections.defaultdict(set)

    def call(self, module, name, *arguments, same=False, **named):
        self.called[module.__name__].add(name)
        result = getattr(module, name)(*arguments, **named)
        words = [argument for argument in arguments if isinstance(argument, (str, float))]
        reserved = None
        if name in RESERVED:
            covers = "active_bytes.all." + ("peak" if name.startswith("max_") else "current")
            reserved = [result, self.torch.cuda.memory_stats()[covers]]
        self.notes[f"{module.__name__}.{name}{words}"] = [
            shape(result), result if same else None, reserved]
        return result

    def note(self, key, types=None, value=None):
        self.notes[key] = [types, value, None]

    def finish(self, module):
        missing = functions_of(module) - self.called[module.__name__] - set(NOT_CALLED)
        assert not missing, f"{module.__name__} has functions that this table lacks: {missing}"


def statistics(table, memory):
    torch = table.torch
    stats = table.call(memory, "memory_stats")
    table.note("figures", value={name: value for name, value in stats.items()
                                 if name.startswith(SAME)})
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        parts = [stats[f"{name}.{pool}.current"] for pool in ("all", "small_pool", "large_pool")]
        assert parts[0] == parts[1] + parts[2] and min(parts) >= 0, (name, parts)
        for pool in ("all", "small_pool", "large_pool"):
            of_pool = [stats[f"{name}.{pool}.{kind}"] for kind in ("current", "peak", "allocated",
                                                                  "freed")]
            assert of_pool[0] == of_pool[2] - of_pool[3] and of_pool[1] >= of_pool[0], of_pool
    for pool in ("all", "small_pool", "large_pool"):
        assert (stats[f"reserved_bytes.{pool}.current"] >= stats[f"active_bytes.{pool}.current"] >=
                stats[f"allocated_bytes.{pool}.current"] >= 0), pool
    free, total = table.call(memory, "mem_get_info")
    assert 0 <= free <= total - table.call(memory, "memory_reserved")
    table.note("total memory", value=total)
    table.call(memory, "memory_stats_as_nested_dict")
    table.call(memory, "host_memory_stats")
    table.call(memory, "host_memory_stats_as_nested_dict")
    table.call(memory, "reset_accumulated_host_memory_stats")
    table.call(memory, "reset_peak_host_memory_stats")
    table.call(memory, "memory_allocated", same=True)
    table.call(memory, "max_memory_allocated", same=True)
    assert table.call(memory, "max_memory_reserved") >= torch.cuda.memory_reserved()
    table.call(memory, "memory_cached")
    table.call(memory, "max_memory_cached")
    summary = table.call(memory, "memory_summary")
    assert "Requested memory" in summary and "Allocated memory" in summary, summary
    # The rows, and what stands in those of what is allocated.
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in summary.splitlines()]
    table.note("rows of memory_summary", value=[row[0] for row in rows if len(row) > 1])
    processes = table.call(memory, "list_gpu_processes")
    table.note("list_gpu_processes", value=re.sub(r"[\d.]+", "N", processes))


def resets(table, memory):
    torch = table.torch
    for name in ("reset_peak_memory_stats", "reset_max_memory_allocated",
                 "reset_max_memory_cached"):
        big = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        del big
        assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() + 64 * MIB
        table.call(memory, name)
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    table.call(memory, "reset_accumulated_memory_stats")
    stats = torch.cuda.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 0
    kept = torch.empty(5, device="cuda")
    stats = torch.cuda.memory_stats()
    assert stats["allocation.all.allocated"] == 1 and stats["requested_bytes.all.allocated"] == 20
    del kept
    assert torch.cuda.memory_stats()["allocated_bytes.small_pool.freed"] == 512


def raw(table, memory):
    torch = table.torch
    before = torch.cuda.memory_allocated()
    pointer = table.call(memory, "caching_allocator_alloc", 1000)
    assert pointer != 0 and torch.cuda.memory_allocated() == before + 1024
    table.call(memory, "caching_allocator_delete", pointer)
    assert torch.cuda.memory_allocated() == before
    side = torch.cuda.Stream()
    memory.caching_allocator_delete(memory.caching_allocator_alloc(3 * MIB, stream=side))
    assert memory.caching_allocator_alloc(0) in (0, None)
    table.call(memory, "caching_allocator_enable", False)
    outside = torch.empty(MIB, device="cuda")
    assert torch.cuda.memory_allocated() == before
    del outside
    pointer = memory.caching_allocator_alloc(1000)
    memory.caching_allocator_delete(pointer)
    table.call(memory, "caching_allocator_enable", True)
    table.called[memory.__name__].add("caching_allocator_disabled")
    with memory.caching_allocator_disabled():
        outside = torch.empty(MIB, device="cuda")
        del outside
    assert torch.cuda.memory_allocated() == before
    try:
        memory.caching_allocator_delete(0x1234_5678_9000)
    except RuntimeError:
        pass
    else:
        raise AssertionError("an address that was never handed out can be freed")


def limits(table, memory):
    torch = table.torch
    assert table.call(memory, "get_per_process_memory_fraction", same=True) == 1.0
    table.call(memory, "set_per_process_memory_fraction", 0.25)
    assert memory.get_per_process_memory_fraction() == 0.25
    total = torch.cuda.mem_get_info()[1]
    fits = torch.empty(int(total * 0.2), dtype=torch.uint8, device="cuda")
    del fits
    for size in (int(total * 0.26), 1 << 45, 1 << 61):
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert str(error).startswith("CUDA out of memory. Tried to allocate"), error
        else:
            raise AssertionError("more than the limit can be allocated")
    memory.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_stats()["num_ooms"] == 2


def told(table, memory):
    torch = table.torch
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *values: seen.append(values))
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    device, size, total, free = seen[0]
    assert (device, size) == (0, 1 << 44) and 0 <= free <= total, seen
    table.call(memory, "empty_cache")
    assert table.call(memory, "get_allocator_backend") in ("native", "berm")
    assert table.call(memory, "_get_current_allocator") is not None
    assert table.call(memory, "_host_allocator") is not None


def history(table, memory):
    torch = table.torch
    table.call(memory, "_record_memory_history", stacks="python", max_entries=1000)
    table.call(memory, "_set_memory_metadata", "mine")
    assert table.call(memory, "_get_memory_metadata", same=True) == "mine"
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    memory._set_memory_metadata("")
    gone = torch.empty(5000, dtype=torch.uint8, device="cuda")
    gone_at = gone.data_ptr()
    del gone
    has_annotations = hasattr(memory, "_annotate_tensor")
    if has_annotations:
        assert table.call(memory, "_memory_metadata_supported", same=True)
        table.call(memory, "_annotate_tensor", kept[100:], "afterwards")
    big = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    del big
    torch.cuda.empty_cache()
    snapshot = table.call(memory, "_snapshot")
    assert table.call(torch.accelerator.memory, "_snapshot").keys() == snapshot.keys()
    segments = table.call(memory, "memory_snapshot")
    assert segments and snapshot["segments"]
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at, (block, at)
            at += block["size"]
    live = [block for segment in snapshot["segments"] for block in segment["blocks"]
            if block["address"] == kept.data_ptr()]
    assert len(live) == 1 and live[0]["state"] == "active_allocated"
    assert live[0]["requested_size"] == 3 * MIB
    assert any(frame["name"] == "history" for frame in live[0]["frames"])
    trace = snapshot["device_traces"][0]
    of_kept = [entry for entry in trace if entry["addr"] == kept.data_ptr()] if trace else []
    assert [entry["action"] for entry in of_kept][:1] == ["alloc"] or any(
        entry["action"] == "alloc" for entry in of_kept), of_kept
    alloc = [entry for entry in of_kept if entry["action"] == "alloc"][-1]
    assert alloc["size"] == 3 * MIB and alloc["user_metadata"] == "mine", alloc
    assert any(frame["name"] == "history" for frame in alloc["frames"])
    assert [entry["user_metadata"] for entry in of_kept if entry["action"] == "annotate"] == [
        "afterwards"] * has_annotations, of_kept
    assert all(abs(entry["time_us"] / 1e6 - time.time()) < 600 for entry in trace)
    actions = [entry["action"] for entry in trace if entry.get("addr") == gone_at]
    assert [action for action in actions if action.startswith(("alloc", "free"))] == [
        "alloc", "free_requested", "free_completed"], actions
    assert trace[-1]["action"] in ("segment_free", "segment_unmap"), trace[-1]
    assert table.call(memory, "_allocation_traceback", kept.data_ptr()) is not None
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        table.call(memory, "_dump_snapshot", path)
        table.notes = {key: value for key, value in table.notes.items() if folder not in key}
        with open(path, "rb") as file:
            dumped = pickle.load(file)
        from torch.cuda import _memory_viz
        assert _memory_viz.trace_plot(dumped) and _memory_viz.segsum(dumped)
    table.note("snapshot", shape({key: snapshot[key] for key in ("segments", "device_traces")}))
    memory._record_memory_history(enabled=None)
    assert not torch.cuda.memory._snapshot()["device_traces"][0]
    table.note("settings", sorted(snapshot["allocator_settings"]))
    table.call(memory, "_set_allocator_settings", "garbage_collection_threshold:0.9")
    changed = memory._snapshot()["allocator_settings"]
    assert abs(changed["garbage_collection_threshold"] - 0.9) < 1e-6, changed
    del kept


def pools(table, memory):
    torch = table.torch
    table.called[memory.__name__] |= {"MemPool", "use_mem_pool"}
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        kept = torch.empty(MIB, device="cuda")
    assert pool.use_count() == 1
    assert [block["state"] for segment in pool.snapshot() for block in segment["blocks"]
            if block["address"] == kept.data_ptr()] == ["active_allocated"]
    del kept, pool
    table.called[memory.__name__] |= {"CUDAPluggableAllocator", "change_current_allocator"}
    hooks = memory.CUDAPluggableAllocator(str(torch_test.BUILD / "lib/libberm_torch.so"),
                                          "berm_torch_malloc", "berm_torch_free")
    try:
        memory.change_current_allocator(hooks)
    except RuntimeError as error:
        assert "initialized" in str(error), error
    else:
        raise AssertionError("the allocator can be changed after it was used")


def accelerator(table):
    torch = table.torch
    module = torch.accelerator.memory
    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
    assert table.call(module, "memory_allocated", same=True) == torch.cuda.memory_allocated()
    assert table.call(module, "max_memory_allocated") == torch.cuda.max_memory_allocated()
    assert table.call(module, "memory_reserved") == torch.cuda.memory_reserved()
    assert table.call(module, "max_memory_reserved") == torch.cuda.max_memory_reserved()
    stats = table.call(module, "memory_stats")
    assert stats == torch.cuda.memory_stats() or stats.keys() <= torch.cuda.memory_stats().keys()
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    assert table.call(module, "get_memory_info") == torch.cuda.mem_get_info()
    big = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    del big
    table.call(module, "reset_accumulated_memory_stats")
    table.call(module, "reset_peak_memory_stats")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    assert module.max_memory_allocated() == module.memory_allocated()
    del kept
    before = torch.cuda.memory_reserved()
    table.call(module, "empty_cache")
    assert torch.cuda.memory_reserved() < before
    table.call(module, "empty_host_cache")
    table.finish(module)


def program(torch):
    table = Table(torch)
    memory = torch.cuda.memory
    kept = [torch.empty(size, dtype=torch.uint8, device="cuda")
            for size in (1, 512, 513, 70_000, MIB, MIB + 1, 3 * MIB, 30 * MIB)]
    kept[3] = None
    kept[6] = None
    for part in (statistics, resets, raw, limits, told, history, pools):
        part(table, memory)
    accelerator(table)
    table.finish(memory)
    return table.notes


def accelerator_of_hooks(torch):
    """What needs figures of the allocator raises, and gives no figures of one that is not in use."""
    module = torch.accelerator.memory
    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
    assert module.get_memory_info() == torch.cuda.mem_get_info()
    module.empty_host_cache()
    requests, live, requested = torch_test.berm_counts(0)
    assert (live, requested) == (1, 2 * MIB), (requests, live, requested)
    del kept
    before = torch.cuda.mem_get_info()[0]
    module.empty_cache()
    assert torch.cuda.mem_get_info()[0] > before
    raising = functions_of(module) - {"get_memory_info", "empty_host_cache", "empty_cache",
                                      "_snapshot", "_flatten_stats"}
    for name in sorted(raising):
        try:
            result = getattr(module, name)()
        except RuntimeError as error:
            assert "does not yet support" in str(error), (name, error)
        else:
            raise AssertionError(f"torch.accelerator.memory.{name} gives {result!r}")
    return sorted(raising)


def is_plausible(ours, theirs):
    """Reserved bytes: no less than they must cover, no more than native's, or than berm's headroom of
    2 % and one of its largest handles above what they cover."""
    return ours is None or ours[1] <= ours[0] <= max(theirs[0], ours[1] * 102 // 100 + 32 * MIB)


def compare(notes):
    failed = False
    for route in ("native", "expandable"):
        for key in sorted(notes[route].keys() | notes["subclass"].keys()):
            theirs, ours = notes[route].get(key), notes["subclass"].get(key)
            if key == "figures" and route == "native":
                # Native hands out up to 1 MiB more than it needs rather than split a segment.
                theirs, ours = ([None, {name: value for name, value in side[1].items()
                                        if "_bytes" not in name or "requested" in name}, None]
                                for side in (theirs, ours))
            if None in (theirs, ours) or theirs[:2] != ours[:2] or not is_plausible(ours[2],
                                                                                   theirs[2]):
                failed = True
                print(f"FAIL: {key}: subclass {json.dumps(ours)[:700]}\n  {route} "
                      f"{json.dumps(theirs)[:700]}")
    return failed


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        run = accelerator_of_hooks if route == "hooks" else program
        print(json.dumps(run(torch_test.load(route))))
        return 0
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    notes = {}
    for route in torch_test.ROUTES:
        notes[route] = torch_test.child_marks(__file__, route, {})
    if None in notes.values():
        return 1
    failed = compare(notes)
    if not failed:
        print(f"ok: {len(notes['subclass'])} results of the subclass are as native's; of "
              f"torch.accelerator.memory raise under the hooks: {', '.join(notes['hooks'])}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
