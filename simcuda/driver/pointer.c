// SPDX-License-Identifier: Apache-2.0
// What is at an address: ranges and attributes. Changes nothing.
//
// A range is one mapping, even where neighbours make one block of the program's: as the driver.
// Locks: the state's, by sim_enter.
#include <string.h>

#include "pool.h"
#include "managed.h"

static int address_range(berm_cu_deviceptr_t *base, size_t *bytes, uint64_t addr) {
    const sim_mapping_t *mapping = sim_mapping_at(addr);
    uint64_t managed_base, managed_bytes;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (mapping == NULL && sim_managed_range(addr, &managed_base, &managed_bytes)) {
        if (base != NULL)
            *base = managed_base;
        if (bytes != NULL)
            *bytes = managed_bytes;
        return BERM_CU_SUCCESS;
    }
    if (mapping == NULL)
        return BERM_CU_NOT_FOUND;
    if (base != NULL)
        *base = mapping->node.key;
    if (bytes != NULL)
        *bytes = mapping->size_bytes;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemGetAddressRange_v2(berm_cu_deviceptr_t *base, size_t *bytes,
                                         berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuMemGetAddressRange_v2);
    if (result == BERM_CU_SUCCESS)
        result = address_range(base, bytes, addr);
    return sim_leave(result);
}

typedef struct answer {
    uint64_t value;
    size_t size; // 0: the attribute is not known
} answer_t;

static answer_t answer_word(uint64_t value) {
    return (answer_t){value, sizeof(uint64_t)};
}

static answer_t answer_int(int value) {
    return (answer_t){(uint64_t)(unsigned)value, sizeof(int)};
}

// Attributes of a place: a mapping, or reserved addresses without one.
static answer_t place_answer(int attribute, uint64_t addr, const sim_mapping_t *mapping,
                             const sim_reservation_t *reservation) {
    switch (attribute) {
    case BERM_CU_POINTER_MAPPED:
        return answer_int(mapping != NULL);
    case BERM_CU_POINTER_RANGE_START:
        return answer_word(reservation != NULL ? reservation->node.key : mapping->node.key);
    case BERM_CU_POINTER_RANGE_SIZE:
        return answer_word(reservation != NULL ? reservation->size_bytes : mapping->size_bytes);
    case BERM_CU_POINTER_DEVICE_POINTER:
        return answer_word(addr);
    default:
        return (answer_t){0, 0};
    }
}

static answer_t mapping_answer(int attribute, const sim_mapping_t *mapping) {
    const sim_memory_t *memory = mapping->memory;
    switch (attribute) {
    case BERM_CU_POINTER_CONTEXT: // memory of the VMM calls belongs to no context
        return answer_word(mapping->context != NULL ? mapping->context->handle : 0);
    case BERM_CU_POINTER_MEMORY_TYPE:
        return answer_int(memory->device < 0 ? BERM_CU_MEMORYTYPE_HOST : BERM_CU_MEMORYTYPE_DEVICE);
    case BERM_CU_POINTER_DEVICE_ORDINAL:
        return answer_int(memory->device < 0 ? 0 : memory->device);
    case BERM_CU_POINTER_SYNC_MEMOPS:
    case BERM_CU_POINTER_IS_MANAGED:
        return answer_int(0);
    case BERM_CU_POINTER_IS_LEGACY_IPC_CAPABLE:
        return answer_int(mapping->is_plain && mapping->piece == NULL && mapping->opened == NULL);
    case BERM_CU_POINTER_IS_RDMA_CAPABLE:
        return answer_int(memory->prop.alloc_flags.gpu_direct_rdma_capable != 0);
    case BERM_CU_POINTER_ACCESS_FLAGS:
        return answer_int(mapping->access[sim_context_current()->device]);
    case BERM_CU_POINTER_ALLOWED_HANDLE_TYPES:
        return answer_word((uint64_t)(unsigned)memory->prop.requested_handle_types);
    case BERM_CU_POINTER_MEMPOOL_HANDLE:
        return answer_word(mapping->piece != NULL ? mapping->piece->pool->handle : 0);
    case BERM_CU_POINTER_MAPPING_BASE:
        return answer_word(mapping->node.key);
    case BERM_CU_POINTER_MAPPING_SIZE:
        return answer_word(mapping->size_bytes);
    case BERM_CU_POINTER_BUFFER_ID:
    case BERM_CU_POINTER_MEMORY_BLOCK_ID:
        return answer_word(memory->id);
    default:
        return (answer_t){0, 0};
    }
}

// Of managed memory, which lies on no device for good.
static answer_t managed_answer(int attribute, uint64_t addr, uint64_t base, uint64_t bytes) {
    switch (attribute) {
    case BERM_CU_POINTER_IS_MANAGED:
    case BERM_CU_POINTER_MAPPED:
        return answer_int(1);
    case BERM_CU_POINTER_MEMORY_TYPE:
        return answer_int(BERM_CU_MEMORYTYPE_DEVICE);
    case BERM_CU_POINTER_DEVICE_ORDINAL:
        return answer_int(sim_context_current()->device);
    case BERM_CU_POINTER_RANGE_START:
        return answer_word(base);
    case BERM_CU_POINTER_RANGE_SIZE:
        return answer_word(bytes);
    case BERM_CU_POINTER_DEVICE_POINTER:
    case BERM_CU_POINTER_HOST_POINTER:
        return answer_word(addr);
    default:
        return (answer_t){0, 0};
    }
}

static int pointer_attribute(void *data, int attribute, uint64_t addr) {
    const sim_mapping_t *mapping = sim_mapping_at(addr);
    const sim_reservation_t *reservation = sim_reservation_at(addr);
    uint64_t base, bytes;
    if (data != NULL && mapping == NULL && reservation == NULL &&
        sim_managed_range(addr, &base, &bytes)) {
        answer_t answer = managed_answer(attribute, addr, base, bytes);
        if (answer.size == 0)
            return BERM_CU_INVALID_VALUE;
        memcpy(data, &answer.value, answer.size);
        return BERM_CU_SUCCESS;
    }
    if (data == NULL || (mapping == NULL && reservation == NULL))
        return BERM_CU_INVALID_VALUE;
    answer_t answer = place_answer(attribute, addr, mapping, reservation);
    if (answer.size == 0 && mapping != NULL)
        answer = mapping_answer(attribute, mapping);
    if (answer.size == 0)
        return BERM_CU_INVALID_VALUE;
    memcpy(data, &answer.value, answer.size); // little-endian: the low bytes come first
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuPointerGetAttribute(void *data, int attribute, berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuPointerGetAttribute);
    if (result == BERM_CU_SUCCESS) {
        sim_charge(&sim.config.costs.other, 0, 0);
        result = pointer_attribute(data, attribute, addr);
    }
    return sim_leave(result);
}

// What the attribute is for addresses that have none: the driver writes these and succeeds.
static void pointer_write_absent(void *data, int attribute) {
    uint64_t zero = 0;
    int none = -1;
    bool is_word =
        attribute == BERM_CU_POINTER_CONTEXT || attribute == BERM_CU_POINTER_DEVICE_POINTER ||
        attribute == BERM_CU_POINTER_HOST_POINTER || attribute == BERM_CU_POINTER_BUFFER_ID ||
        attribute == BERM_CU_POINTER_RANGE_START || attribute == BERM_CU_POINTER_RANGE_SIZE ||
        attribute == BERM_CU_POINTER_ALLOWED_HANDLE_TYPES ||
        attribute >= BERM_CU_POINTER_MEMPOOL_HANDLE;
    if (attribute == BERM_CU_POINTER_DEVICE_ORDINAL)
        memcpy(data, &none, sizeof(none));
    else
        memcpy(data, &zero, is_word ? sizeof(zero) : sizeof(int));
}

static int pointer_attributes(unsigned count, const int *attributes, void **data, uint64_t addr) {
    if (count == 0 || attributes == NULL || data == NULL)
        return BERM_CU_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (data[i] == NULL || attributes[i] < BERM_CU_POINTER_CONTEXT ||
            attributes[i] > BERM_CU_POINTER_MEMORY_BLOCK_ID)
            return BERM_CU_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        if (pointer_attribute(data[i], attributes[i], addr) != BERM_CU_SUCCESS)
            pointer_write_absent(data[i], attributes[i]);
    }
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuPointerGetAttributes(unsigned count, int *attributes, void **data,
                                        berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuPointerGetAttributes);
    if (result == BERM_CU_SUCCESS) {
        sim_charge(&sim.config.costs.other, 0, 0);
        result = pointer_attributes(count, attributes, data, addr);
    }
    return sim_leave(result);
}
