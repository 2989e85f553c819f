# SPDX-License-Identifier: Apache-2.0
"""Memory pools: cases of TestMemPool (see own.py)."""
import contextlib
import ctypes
import pathlib
import subprocess
import tempfile
import threading

import own
from own import MIB, check, equal, raises

group = own.Group(__file__)
case = group.case
SIZES = "fixes native's segment sizes"
LACKS = {**{route: "the simulated driver does not tell on which nodes a graph's node depends"
            for route in ("native", "expandable")},
         "subclass": "graph_capture_record_stream_reuse does nothing: the block comes back after the "
         "capture"}

SOURCE = """
#include <stddef.h>
int cudaMalloc(void **pointer, size_t size);
int cudaFree(void *pointer);
int allocs, frees;
void *source_alloc(size_t size, int device, void *stream) {
    void *pointer = 0;
    (void)device, (void)stream;
    if (cudaMalloc(&pointer, size) != 0)
        return 0;
    allocs++;
    return pointer;
}
void source_free(void *pointer, size_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    frees++;
    cudaFree(pointer);
}
"""


@contextlib.contextmanager
def source(child):
    """(an allocator of the driver's memory, what counts its calls)"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "libsource.so"
        path.with_suffix(".c").write_text(SOURCE, encoding="utf-8")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c")], check=True)
        library = ctypes.CDLL(str(path))
        yield [child.torch.cuda.memory.CUDAPluggableAllocator(str(path), "source_alloc",
                                                              "source_free")], \
            lambda: (ctypes.c_int.in_dll(library, "allocs").value,
                     ctypes.c_int.in_dll(library, "frees").value)


@case("TestMemPool.test_mempool_id, test_mempool_multithread",
      "ids of pools go up, are of one kind with graphs' of users, and differ between threads")
def ids(child):
    torch = child.torch
    first, second = torch.cuda.graph_pool_handle(), torch.cuda.MemPool().id
    equal((first[0] == 0, first[1] < second[1]), (second[0] == 0, True), f"{first}, {second}")
    made = []
    threads = [threading.Thread(target=lambda: made.append(torch.cuda.MemPool().id))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(len(set(made)), 4, "ids of threads' pools")


@case("TestMemPool.test_mempool_with_allocator",
      "a pool with an allocator: use counts 1, 2, 1, its functions are called, and get "
      "all back with the pool")
def with_allocator(child):
    torch = child.torch
    with source(child) as (kept, count):
        pool = torch.cuda.MemPool(kept[0].allocator())
        equal((pool.use_count(), count()), (1, (0, 0)), "before")
        with torch.cuda.use_mem_pool(pool):
            made = [torch.randn(MIB // 4, device="cuda")]
            equal(pool.use_count(), 2, "uses inside")
        equal(pool.use_count(), 1, "uses afterwards")
        check(count()[0] >= 1, "it was not called")
        calls = count()[0]
        outside = torch.empty(MIB // 4, device="cuda")
        equal(count()[0], calls, "calls for a tensor outside")
        with torch.cuda.use_mem_pool(pool):
            equal(len(pool.snapshot()), 1, "segments with one block of 1 MiB")
            made.append(torch.randn(MIB // 4, device="cuda"))
            equal(len(pool.snapshot()), 1, "segments with two")
            made.append(torch.randn(MIB // 4, device="cuda"))
            equal(len(pool.snapshot()), 2, "segments with three")
        equal(len(pool.snapshot()), 2, "segments afterwards")
        made.clear()
        del pool
        torch.cuda.empty_cache()
        calls, returns = count()
        equal(returns, calls, "how much was given back")
        del outside


@case("TestMemPool.test_mempool_empty_cache, _empty_cache_inactive, "
      "test_tensor_delete_after_allocator_delete",
      "a tensor outlives its pool and the allocator's object; then its memory goes back")
def outlives(child):
    torch = child.torch
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        torch.empty(1024, 1024, device="cuda")
    del pool
    with source(child) as (kept, count):
        pool = torch.cuda.MemPool(kept[0].allocator())
        with torch.cuda.use_mem_pool(pool):
            x = torch.arange(2 * MIB, device="cuda")
        calls = count()[0]
        check(calls >= 1, "the allocator was not called")
        del pool
        kept.clear()
        torch.cuda.empty_cache()
        equal(count()[1], 0, "frees while the tensor lives")
        equal(x[-1].item(), 2 * MIB - 1, "its last value")
        del x
        torch.cuda.empty_cache()
        equal(count()[1], calls, "frees")


def at_limit(child, is_strict):
    torch = child.torch
    with source(child) as (kept, _):
        closed = torch.cuda.MemPool(kept[0].allocator())
        opened = torch.cuda.MemPool(kept[0].allocator(), use_on_oom=True)
        with child.limited(80):
            with torch.cuda.use_mem_pool(closed):
                a = child.bytes(40)
            with torch.cuda.use_mem_pool(opened):
                b = child.bytes(40)
            address = b.data_ptr()
            with raises(torch.OutOfMemoryError):
                child.bytes(40)
            del a, b
            c = child.bytes(30)
            if is_strict:
                equal(c.data_ptr(), address, "whose memory it is")
                with raises(torch.OutOfMemoryError):
                    child.bytes(30)
            del c
            with torch.cuda.use_mem_pool(opened):
                e = child.bytes(20)
            equal(e.data_ptr(), address, "the address in the pool")
            del e
            del opened, closed
            torch.cuda.empty_cache()


@case("TestMemPool.test_mempool_limited_memory_with_allocator",
      "at the limit what a pool has free serves others; then it serves the pool as before")
def on_oom(child):
    at_limit(child, False)


@case("TestMemPool.test_mempool_limited_memory_with_allocator (only use_on_oom)",
      "only a use_on_oom pool does so: what another one has free stays idle, and requests fail")
def on_oom_only(child):
    at_limit(child, True)


@case("TestMemPool.test_deleted_mempool_not_used_on_oom",
      "pools with use_on_oom that are gone hold nothing and are not asked")
def on_oom_gone(child):
    torch = child.torch
    with source(child) as (kept, _), child.limited(40):
        for _ in range(10):
            pool = torch.cuda.MemPool(kept[0].allocator(), use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                child.bytes(40)
            del pool
        pool = torch.cuda.MemPool(kept[0].allocator(), use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            child.bytes(40)
        b, c = child.bytes(20), child.bytes(20)
        del b, c, pool
        torch.cuda.empty_cache()


@case("TestMemPool.test_mempool_no_split",
      "a pool that does not split has a segment for each block and one block in each",
      unmet={"expandable": "native splits its expandable segments also there"})
def no_split(child):
    torch = child.torch
    plain, whole = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
    kept = []
    for _ in range(2):
        for pool in (plain, whole):
            with torch.cuda.use_mem_pool(pool):
                kept.append(child.bytes(4))
    equal([len(segment["blocks"]) for segment in whole.snapshot()], [1, 1], "blocks of its segments")
    check(len(plain.snapshot()) < 2, "a plain pool has as many segments")
    kept.clear()


@case("TestMemPool.test_mempool_no_split (numbers)",
      "a plain pool has more blocks than it: the rest of a segment of 20 MiB",
      unmet={"subclass": SIZES})
def no_split_numbers(child):
    torch = child.torch
    plain, whole = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
    kept, counts = [], []
    for pool in (plain, whole):
        with torch.cuda.use_mem_pool(pool):
            kept += [child.bytes(4), child.bytes(4)]
        counts.append(sum(len(segment["blocks"]) for segment in pool.snapshot()))
    kept.clear()
    check(counts[1] < counts[0], f"{counts}")


@case("TestMemPool.test_mempool_emptycache_multithread",
      "empty_cache by a thread in a pool leaves that pool's memory")
def emptied(child):
    torch, failed = child.torch, []

    def use(pool):
        try:
            with torch.cuda.use_mem_pool(pool):
                torch.randn(4, device="cuda")
                torch.cuda.empty_cache()
        except Exception as error:
            failed.append(error)

    pools = [torch.cuda.MemPool() for _ in range(4)]
    threads = [threading.Thread(target=use, args=(pool,)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failed, [], "errors of threads")
    equal([len(pool.snapshot()) for pool in pools], [1] * 4, "segments of the pools")


@case("TestMemPool.test_nested_mempool", "pools in pools: each request is of the innermost")
def nested(child):
    torch = child.torch
    pools, kept = [torch.cuda.MemPool() for _ in range(3)], []
    with torch.cuda.use_mem_pool(pools[0]):
        kept.append((0, child.bytes(20)))
        with torch.cuda.use_mem_pool(pools[1]):
            kept.append((1, child.bytes(20)))
            with torch.cuda.use_mem_pool(pools[2]):
                kept.append((2, child.bytes(20)))
            kept.append((1, child.bytes(20)))
        kept.append((0, child.bytes(20)))
    for at, pool in enumerate(pools):
        live = sorted(block["address"] for segment in torch.cuda.memory.memory_snapshot(pool.id)
                      for block in segment["blocks"] if block["state"] == "active_allocated")
        equal(live, sorted(tensor.data_ptr() for of, tensor in kept if of == at), f"blocks of {at}")
    counts = [len(torch.cuda.memory.memory_snapshot(pool.id)) for pool in pools]
    kept.clear()
    nested.counts = counts


@case("TestMemPool.test_nested_mempool (segments)", "each of those blocks is a segment",
      unmet={"expandable": SIZES, "subclass": SIZES})
def nested_segments(child):
    equal(nested.counts, [2, 2, 1], "segments")


@case("TestMemPool.test_mempool_ctx_multithread",
      "only the thread that entered a pool takes from it; what it freed is not counted as active")
def other_thread(child):
    torch = child.torch
    entered, looked, failed, segments = threading.Event(), threading.Event(), [], []
    before = torch.cuda.memory_stats()["active_bytes.all.current"]

    def first():
        try:
            pool = torch.cuda.MemPool()
            outside = child.bytes(1)
            with torch.cuda.use_mem_pool(pool):
                child.bytes(1)
                entered.set()
                looked.wait(60)
            del outside
        except Exception as error:
            failed.append(error)
            entered.set()

    def second():
        try:
            entered.wait(60)
            made = child.bytes(1)
            segments.extend(torch.cuda.memory._snapshot()["segments"])
            del made
        except Exception as error:
            failed.append(error)
        looked.set()

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failed, [], "errors of threads")
    usual = [segment for segment in segments if tuple(segment["segment_pool_id"]) == (0, 0)]
    own_ones = [segment for segment in segments if tuple(segment["segment_pool_id"]) != (0, 0)]
    equal(sum(segment["active_size"] for segment in usual) - before, 2 * MIB, "active outside")
    equal((len(own_ones), sum(segment["active_size"] for segment in own_ones)), (1, 0),
          "segments and active bytes of the pool")


@case("TestMemPool.test_mempool_expandable",
      "expandable_segments is not for pools with an allocator: their segments are not expandable, "
      "others are")
def expandable(child):
    torch = child.torch
    change = torch._C._accelerator_setAllocatorSettings
    change("expandable_segments:True")
    try:
        with source(child) as (kept, _):
            pool = torch.cuda.MemPool(kept[0].allocator())
            with torch.cuda.use_mem_pool(pool):
                inside = child.bytes(1)
            outside = child.bytes(1)
            found = {segment["is_expandable"]: (segment["address"], segment["total_size"])
                     for segment in torch.cuda.memory.memory_snapshot()
                     if segment["active_size"] > 0}
            for tensor, is_expandable in ((inside, False), (outside, True)):
                address, size = found[is_expandable]
                check(address <= tensor.data_ptr() < address + size, f"expandable: {is_expandable}")
            del inside, outside, pool
            kept.clear()
            torch.cuda.empty_cache()
    finally:
        change(f"expandable_segments:{child.is_expandable}")


# --- reuse inside a capture ----------------------------------------------------------------------


@contextlib.contextmanager
def captured(graph):
    """A capture that ends also where a case fails in it: the next one needs the device."""
    graph.capture_begin()
    try:
        yield
    finally:
        graph.capture_end()


@contextlib.contextmanager
def reuse(child):
    with child.settings("graph_capture_record_stream_reuse:True",
                        "graph_capture_record_stream_reuse:False"):
        yield


@case("TestMemPool.test_graph_capture_reclaim_2_streams",
      "graph_capture_record_stream_reuse: what a capture freed while another stream used it is not "
      "reused before the streams join, and is after", unmet=LACKS)
def reclaim(child):
    torch = child.torch
    with reuse(child):
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(one), captured(graph):
            end, data = torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
            address = data.data_ptr()
            two.wait_stream(one)
            with torch.cuda.stream(two):
                other = torch.empty_like(data)
                torch.add(data, 2.0, out=other)
                data.record_stream(two)
            del data
            early = torch.empty(8, device="cuda")
            one.wait_stream(two)
            end.fill_(1.0)
            late = torch.empty(8, device="cuda")
            addresses = early.data_ptr(), late.data_ptr()
        torch.cuda.synchronize()
        check(addresses[0] != address, "reused before the join")
        equal(addresses[1], address, "the address after the join")
        del graph, early, late, end, other


@case("TestMemPool.test_graph_capture_reclaim_4_streams",
      "the same of four streams: not before the last has joined", unmet=LACKS)
def reclaim_four(child):
    torch = child.torch
    with reuse(child):
        streams = [torch.cuda.Stream() for _ in range(4)]
        one = streams[0]
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(one), captured(graph):
            data = torch.ones(8, device="cuda")
            address = data.data_ptr()
            first, third = torch.empty_like(data), torch.empty_like(data)
            others = []
            for number, stream in enumerate(streams[1:]):
                stream.wait_stream(one)
                with torch.cuda.stream(stream):
                    others.append(torch.empty_like(data))
                    torch.add(data, number + 2.0, out=others[-1])
                    data.record_stream(stream)
            del data
            one.wait_stream(streams[1])
            first.fill_(1.0)
            streams[2].wait_stream(streams[3])
            with torch.cuda.stream(streams[2]):
                third.fill_(3.0)
                third.record_stream(streams[2])
            early = torch.empty(8, device="cuda")
            one.wait_stream(streams[2])
            first.add_(third)
            late = torch.empty(8, device="cuda")
            addresses = early.data_ptr(), late.data_ptr()
        torch.cuda.synchronize()
        check(addresses[0] != address, "reused before all joined")
        equal(addresses[1], address, "the address after all joined")
        del graph, early, late, first, third, others


if __name__ == "__main__":
    group.run()
