# SPDX-License-Identifier: Apache-2.0
"""MemPool with an allocator of its own: its functions give the segments, and get all of them back; the
pool caches and counts as PyTorch says. What outlives the pool and the allocator's object stays valid.
And MemPool(no_split=True), MemPool(use_on_oom=True). Under native and the subclass alike."""
import ctypes
import pathlib
import subprocess
import tempfile

import torch_test

MIB = 1 << 20
SOURCE = """
#include <stddef.h>
int cudaMalloc(void **pointer, size_t size);
int cudaFree(void *pointer);
size_t allocs, frees, bytes;
void *source_alloc(size_t size, int device, void *stream) {
    void *pointer = 0;
    (void)device, (void)stream;
    if (size > (size_t)1 << 30 || cudaMalloc(&pointer, size) != 0)
        return 0;
    allocs++, bytes += size;
    return pointer;
}
void source_free(void *pointer, size_t size, int device, void *stream) {
    (void)device, (void)stream;
    frees++, bytes -= size;
    cudaFree(pointer);
}
"""


def compiled(folder):
    path = pathlib.Path(folder) / "libsource.so"
    path.with_suffix(".c").write_text(SOURCE, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c")], check=True)
    return path


def count(library, name):
    return ctypes.c_size_t.in_dll(library, name).value


def with_source(child, library, path):
    torch = child.torch
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "source_alloc", "source_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        small = torch.empty(1000, dtype=torch.uint8, device="cuda")
        assert (count(library, "allocs"), count(library, "bytes")) == (1, 2 * MIB)
        other = torch.empty(5000, dtype=torch.uint8, device="cuda")  # of the same segment
        assert count(library, "allocs") == 1
        middle = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        assert (count(library, "allocs"), count(library, "bytes")) == (2, 22 * MIB)
        large = torch.empty(31 * MIB, dtype=torch.uint8, device="cuda")
        assert (count(library, "allocs"), count(library, "bytes")) == (3, 54 * MIB)
        assert pool.use_count() == 2
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("the source has no such segment")
    child.mark("of a source")
    at = large.data_ptr()
    del large, other
    with torch.cuda.use_mem_pool(pool):
        large = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    assert large.data_ptr() == at and count(library, "allocs") == 3  # cached
    del large, middle
    del pool, allocator
    child.mark("pool dropped")
    small[0] = 1
    del small
    torch.cuda.empty_cache()
    assert count(library, "frees") == 3 and count(library, "bytes") == 0
    child.mark("all given back")


def no_split(child):
    torch = child.torch
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.empty(3 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
    for segment in pool.snapshot():
        assert len([block for block in segment["blocks"]
                    if block["state"] == "active_allocated"]) <= 3
    child.mark("not split")
    del kept, pool


def on_oom(child):
    torch = child.torch
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1 / 80)  # 1 GiB
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        kept = torch.empty(800 * MIB, dtype=torch.uint8, device="cuda")
    del kept
    kept = torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")  # the limit has no room for both
    assert torch.cuda.memory_reserved() <= 1 << 30
    child.mark("from the pool")
    del kept, pool
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)


def program(child):
    with tempfile.TemporaryDirectory() as folder:
        path = compiled(folder)
        with_source(child, ctypes.CDLL(str(path)), path)
    no_split(child)
    on_oom(child)


if __name__ == "__main__":
    torch_test.compare(__file__, program, routes=("native", "subclass"))
