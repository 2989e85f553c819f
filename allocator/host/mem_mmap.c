// SPDX-License-Identifier: Apache-2.0
// The mmap backend: berm's records without the process's malloc, which may be what berm serves.
//
//   chunk of 1 MiB   [next chunk | block | block | ... | not yet cut]
//   free[class]      blocks given back, linked through their first word
//
// Blocks up to 32 KiB have 35 classes: multiples of 16 to 64, of 64 to 256, then four per doubling,
// so above 256 bytes at most a fifth of a block is unused. Those above 64 bytes are whole cache
// lines. A chunk's end that is too short for a block is left: under 1/32 of it. Larger blocks are
// mappings of their own. The last free of a small block unmaps all chunks.
//
// B1  live_count is the number of small blocks handed out; 0 means that there is no chunk
//
// Locks: one of rank HOST, never during the clearing of a block. Fails only when mmap does.
#include "host/mem_backend.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "host/lock.h"

#define CHUNK_BYTES       ((size_t)BERM_MIB(1))
#define CHUNK_HEAD_BYTES  ((size_t)64)
#define SMALL_BYTES       ((size_t)BERM_KIB(32))
#define SMALL_CLASS_COUNT 35u

typedef struct chunk {
    struct chunk *next;
} chunk_t;

typedef struct free_block {
    struct free_block *next;
} free_block_t;

static berm_mutex_t mutex = BERM_MUTEX_INITIALIZER(BERM_LOCK_HOST, "host memory chunks");
static chunk_t *chunks BERM_GUARDED_BY(mutex);     // the newest first: blocks are cut from it
static size_t cut_bytes BERM_GUARDED_BY(mutex);    // of the newest chunk, head included
static uint64_t live_count BERM_GUARDED_BY(mutex); // B1
static free_block_t *free_blocks[SMALL_CLASS_COUNT] BERM_GUARDED_BY(mutex);

static unsigned class_of(size_t size_bytes) {
    uint64_t last = size_bytes - 1;
    if (last < 64)
        return (unsigned)(last / 16);
    if (last < 256)
        return 3 + (unsigned)(last / 64);
    unsigned high = berm__bit_highest(last);
    return 7 + (high - 8) * 4 + (unsigned)(last >> (high - 2) & 3);
}

static size_t class_bytes(unsigned block_class) {
    if (block_class < 4)
        return ((size_t)block_class + 1) * 16;
    if (block_class < 7)
        return ((size_t)block_class - 2) * 64;
    unsigned above = block_class - 7;
    return (size_t)(5 + above % 4) << (6 + above / 4);
}

static void *pages_map(size_t size_bytes) {
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void pages_unmap(void *memory, size_t size_bytes) {
    int failed = munmap(memory, size_bytes);
    BERM_INSIST(failed == 0, "host memory is freed with the size it was allocated with");
}

// A block that was never used: zero already.
static void *block_cut_locked(size_t size_bytes) BERM_REQUIRES(mutex) {
    if (size_bytes > BERM_MEM_LINE_BYTES)
        cut_bytes = berm__align_up(cut_bytes, BERM_MEM_LINE_BYTES);
    if (chunks == NULL || CHUNK_BYTES - cut_bytes < size_bytes) {
        chunk_t *chunk = pages_map(CHUNK_BYTES);
        if (chunk == NULL)
            return NULL;
        chunk->next = chunks;
        chunks = chunk;
        cut_bytes = CHUNK_HEAD_BYTES;
    }
    void *block = (char *)chunks + cut_bytes;
    cut_bytes += size_bytes;
    return block;
}

static void chunks_unmap_locked(void) BERM_REQUIRES(mutex) {
    while (chunks != NULL) {
        chunk_t *next = chunks->next;
        pages_unmap(chunks, CHUNK_BYTES);
        chunks = next;
    }
    memset(free_blocks, 0, sizeof free_blocks);
}

static bool mmap_begin(void) {
    return true;
}

static void *mmap_alloc(size_t size_bytes) {
    if (size_bytes > SMALL_BYTES)
        return pages_map(size_bytes);
    unsigned block_class = class_of(size_bytes);
    berm__mutex_lock(&mutex);
    free_block_t *used = free_blocks[block_class];
    void *block = used;
    if (used != NULL)
        free_blocks[block_class] = used->next;
    else
        block = block_cut_locked(class_bytes(block_class));
    live_count += block != NULL;
    berm__mutex_unlock(&mutex);
    if (used != NULL)
        memset(used, 0, size_bytes);
    return block;
}

static void mmap_free(void *memory, size_t size_bytes) {
    if (size_bytes > SMALL_BYTES) {
        pages_unmap(memory, size_bytes);
        return;
    }
    unsigned block_class = class_of(size_bytes);
    free_block_t *block = memory;
    berm__mutex_lock(&mutex);
    BERM_INSIST(live_count > 0, "host memory is freed once");
    block->next = free_blocks[block_class];
    free_blocks[block_class] = block;
    if (--live_count == 0)
        chunks_unmap_locked();
    berm__mutex_unlock(&mutex);
}

const berm_mem_ops_t berm__mem_ops_mmap = {"mmap", mmap_begin, mmap_alloc, mmap_free};
