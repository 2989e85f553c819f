// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc and cuMemFree, and how much memory there is.
//
// A block above half a granule has whole granules of its own. Smaller ones share a granule in
// units of 512 bytes, first fit: capacity is counted in whole granules, as the driver does. The
// mapping of a block is exactly as long as was asked for, so that an overrun is seen.
// cuMemFree waits for the device, whoever uses the block. Locks: the state's, by sim_enter.
#include <stdlib.h>

#include "gpu.h"
#include "backing.h"
#include "ipc.h"
#include "pool.h"
#include "managed.h"

#define MALLOC_UNIT_BYTES UINT64_C(512)

// --- chunks --------------------------------------------------------------------------------------

static bool chunk_bit(const sim_chunk_t *chunk, uint64_t unit) {
    return (chunk->bits[unit / 64] >> (unit % 64) & 1) != 0;
}

static void chunk_flip(sim_chunk_t *chunk, uint64_t unit, uint64_t count) {
    for (uint64_t i = unit; i < unit + count; i++)
        chunk->bits[i / 64] ^= UINT64_C(1) << (i % 64);
}

// The first run of `count` free units; chunk->units if there is none.
static uint64_t chunk_find(const sim_chunk_t *chunk, uint64_t count) {
    uint64_t run = 0;
    if (chunk->free_units < count)
        return chunk->units;
    for (uint64_t i = 0; i < chunk->units; i++) {
        if (i % 64 == 0 && chunk->bits[i / 64] == UINT64_MAX) {
            run = 0;
            i += 63;
            continue;
        }
        run = chunk_bit(chunk, i) ? 0 : run + 1;
        if (run == count)
            return i + 1 - count;
    }
    return chunk->units;
}

static sim_chunk_t *chunk_create(int device) {
    uint64_t granule = sim.config.granule_bytes;
    uint64_t units = granule / MALLOC_UNIT_BYTES;
    uint64_t words = (units + 63) / 64;
    berm_cu_mem_prop_t prop = sim_device_prop(device);
    int result;
    sim_chunk_t *chunk = calloc(1, sizeof(*chunk) + words * sizeof(chunk->bits[0]));
    if (chunk == NULL)
        return NULL;
    chunk->memory = sim_memory_create(granule, &prop, false, NULL, &result);
    chunk->addr = chunk->memory != NULL ? sim_address_take(granule, granule) : 0;
    if (chunk->addr != 0 &&
        !sim_backing_map(chunk->addr, granule, chunk->memory, 0, BERM_CU_MEM_ACCESS_READWRITE)) {
        sim_address_give(chunk->addr, granule);
        chunk->addr = 0;
    }
    if (chunk->addr == 0) {
        if (chunk->memory != NULL)
            sim_memory_settle(chunk->memory);
        free(chunk);
        return NULL;
    }
    chunk->memory->refs = 1; // the chunk's
    chunk->units = chunk->free_units = units;
    berm__list_push_front(&sim.devices[device].chunks, &chunk->node);
    return chunk;
}

static void chunk_destroy(sim_chunk_t *chunk) {
    berm__list_remove(&chunk->node);
    sim_backing_unmap(chunk->addr, sim.config.granule_bytes);
    sim_address_give(chunk->addr, sim.config.granule_bytes);
    chunk->memory->refs = 0;
    sim_memory_settle(chunk->memory);
    free(chunk);
}

// --- blocks --------------------------------------------------------------------------------------

static sim_mapping_t *block_create_small(uint64_t bytes, int device) {
    uint64_t count = (bytes + MALLOC_UNIT_BYTES - 1) / MALLOC_UNIT_BYTES;
    berm_list_t *chunks = &sim.devices[device].chunks;
    sim_chunk_t *chunk = NULL;
    uint64_t unit = 0;
    for (berm_list_t *at = chunks->next; chunk == NULL && at != chunks; at = at->next) {
        sim_chunk_t *each = BERM_CONTAINER_OF(at, sim_chunk_t, node);
        unit = chunk_find(each, count);
        if (unit < each->units)
            chunk = each;
    }
    if (chunk == NULL) {
        chunk = chunk_create(device);
        unit = 0;
    }
    if (chunk == NULL)
        return NULL;
    berm__list_remove(&chunk->node); // to the front: where there was room there may be more
    berm__list_push_front(chunks, &chunk->node);
    uint64_t offset = unit * MALLOC_UNIT_BYTES;
    sim_mapping_t *mapping = sim_mapping_create(chunk->addr + offset, bytes, chunk->memory);
    if (mapping == NULL) {
        if (chunk->free_units == chunk->units)
            chunk_destroy(chunk);
        return NULL;
    }
    mapping->chunk = chunk;
    mapping->memory_offset = offset;
    chunk_flip(chunk, unit, count);
    chunk->free_units -= count;
    return mapping;
}

static sim_mapping_t *block_create_large(uint64_t bytes, int device) {
    berm_cu_mem_prop_t prop = sim_device_prop(device);
    uint64_t span = berm__align_up(bytes, sim.config.granule_bytes);
    int result;
    sim_memory_t *memory = sim_memory_create(span, &prop, false, NULL, &result);
    if (memory == NULL)
        return NULL;
    uint64_t addr = sim_address_take(span, sim.config.granule_bytes);
    sim_mapping_t *mapping = NULL;
    if (addr != 0 && sim_backing_map(addr, span, memory, 0, BERM_CU_MEM_ACCESS_READWRITE))
        mapping = sim_mapping_create(addr, bytes, memory);
    if (mapping == NULL) {
        if (addr != 0) {
            sim_backing_unmap(addr, span);
            sim_address_give(addr, span);
        }
        sim_memory_settle(memory);
    }
    return mapping;
}

static void block_destroy(sim_mapping_t *mapping) {
    sim_effects_run();
    if (mapping->opened != NULL) {
        sim_opened_destroy(mapping->opened);
        return;
    }
    sim_chunk_t *chunk = mapping->chunk;
    uint64_t bytes = mapping->size_bytes;
    uint64_t addr = mapping->node.key;
    sim_ledger_allocation(mapping->memory->device, (uint64_t)-1, 0 - bytes);
    sim_mapping_destroy(mapping);
    if (chunk == NULL) {
        bytes = berm__align_up(bytes, sim.config.granule_bytes);
        sim_backing_unmap(addr, bytes);
        sim_address_give(addr, bytes);
        return;
    }
    uint64_t count = (bytes + MALLOC_UNIT_BYTES - 1) / MALLOC_UNIT_BYTES;
    chunk_flip(chunk, (addr - chunk->addr) / MALLOC_UNIT_BYTES, count);
    chunk->free_units += count;
    if (chunk->free_units == chunk->units)
        chunk_destroy(chunk);
}

void sim_malloc_free_all(const sim_context_t *context) {
    for (sim_node_t *node = sim_tree_first(&sim.mappings), *next; node != NULL; node = next) {
        sim_mapping_t *mapping = BERM_CONTAINER_OF(node, sim_mapping_t, node);
        next = sim_tree_next(node);
        if (mapping->is_plain && (context == NULL || mapping->context == context))
            block_destroy(mapping);
    }
}

// --- calls ---------------------------------------------------------------------------------------

static int block_alloc(uint64_t *addr, uint64_t bytes, bool is_array) {
    sim_context_t *context = sim_context_current();
    sim_charge(&sim.config.costs.malloc_, 0, bytes);
    if (bytes > sim.config.memory_bytes)
        return BERM_CU_OUT_OF_MEMORY;
    sim_mapping_t *mapping = bytes <= sim.config.granule_bytes / 2
                                 ? block_create_small(bytes, context->device)
                                 : block_create_large(bytes, context->device);
    if (mapping == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    mapping->is_plain = true;
    mapping->is_array = is_array;
    mapping->context = context;
    mapping->access[context->device] = BERM_CU_MEM_ACCESS_READWRITE;
    sim_ledger_allocation(context->device, 1, bytes);
    *addr = mapping->node.key;
    return BERM_CU_SUCCESS;
}

static int mem_alloc(berm_cu_deviceptr_t *addr, uint64_t bytes) {
    if (addr == NULL || bytes == 0)
        return BERM_CU_INVALID_VALUE;
    uint64_t at = 0;
    int result = block_alloc(&at, bytes, false);
    if (result == BERM_CU_SUCCESS)
        *addr = at;
    return result;
}

int sim_malloc_hidden(uint64_t bytes, uint64_t *addr) {
    return block_alloc(addr, bytes, true);
}

berm_cu_result_t cuMemAlloc_v2(berm_cu_deviceptr_t *addr, size_t bytes) {
    int result = sim_enter(SIM_FN_cuMemAlloc_v2);
    if (result == BERM_CU_SUCCESS)
        result = mem_alloc(addr, bytes);
    return sim_leave(result);
}

// Rows begin at multiples of MALLOC_UNIT_BYTES, whatever the size of an element.
static int mem_alloc_pitch(berm_cu_deviceptr_t *addr, size_t *pitch, size_t width_bytes,
                           size_t height, unsigned element_bytes) {
    uint64_t bytes = 0;
    if (pitch == NULL || width_bytes == 0 || height == 0 ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return BERM_CU_INVALID_VALUE;
    if (width_bytes > SIM_ADDRESS_BYTES)
        return BERM_CU_OUT_OF_MEMORY;
    uint64_t row_bytes = berm__align_up(width_bytes, MALLOC_UNIT_BYTES);
    if (!berm__mul_checked(row_bytes, height, &bytes))
        return BERM_CU_OUT_OF_MEMORY;
    int result = mem_alloc(addr, bytes);
    if (result == BERM_CU_SUCCESS)
        *pitch = row_bytes;
    return result;
}

berm_cu_result_t cuMemAllocPitch_v2(berm_cu_deviceptr_t *addr, size_t *pitch, size_t width_bytes,
                                    size_t height, unsigned element_bytes) {
    int result = sim_enter(SIM_FN_cuMemAllocPitch_v2);
    if (result == BERM_CU_SUCCESS)
        result = mem_alloc_pitch(addr, pitch, width_bytes, height, element_bytes);
    return sim_leave(result);
}

static int block_free(uint64_t addr, bool is_array) {
    sim_mapping_t *mapping = sim_mapping_at(addr);
    bool is_block = mapping != NULL && mapping->is_plain && mapping->node.key == addr &&
                    mapping->is_array == is_array;
    if (!is_block || mapping->opened != NULL) {
        if (addr != 0 && !is_block)
            sim_hazard(SIMCUDA_HAZARD_DOUBLE_FREE, addr,
                       "cuMemFree of 0x%llx, where no live cuMemAlloc block starts",
                       (unsigned long long)addr);
        return BERM_CU_INVALID_VALUE;
    }
    sim_charge(&sim.config.costs.free_, 0, mapping->size_bytes);
    sim_wait_device(mapping->memory->device);
    sim_context_t *owner = mapping->context != NULL ? mapping->context : sim_context_current();
    int result = sim_context_observe(owner);
    if (result != BERM_CU_SUCCESS)
        return result;
    sim_mapping_check_idle(mapping, "cuMemFree"); // work of another device does not hold it up
    if (mapping->piece != NULL)
        sim_piece_free(mapping->piece, NULL, NULL);
    else
        block_destroy(mapping);
    return result;
}

int sim_malloc_hidden_free(uint64_t addr) {
    return block_free(addr, true);
}

berm_cu_result_t cuMemFree_v2(berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuMemFree_v2);
    if (result == BERM_CU_SUCCESS && !sim_managed_free(addr, &result))
        result = block_free(addr, false);
    return sim_leave(result);
}

berm_cu_result_t cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    int result = sim_enter(SIM_FN_cuMemGetInfo_v2);
    if (result == BERM_CU_SUCCESS) {
        const sim_device_t *device = &sim.devices[sim_context_current()->device];
        sim_charge(&sim.config.costs.mem_info, 0, 0);
        if (free_bytes == NULL || total_bytes == NULL) {
            result = BERM_CU_INVALID_VALUE;
        } else {
            *free_bytes = sim_device_free_bytes(device);
            *total_bytes = sim.config.memory_bytes;
        }
    }
    return sim_leave(result);
}
