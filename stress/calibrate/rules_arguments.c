// SPDX-License-Identifier: Apache-2.0
// Rules about arguments: calls that the driver must refuse, with the result it must give. berm
// makes none of them, so a driver that differs only surprises; but berm does rely on the result of
// a cuMemCreate that does not fit. Running the rules is left to rules.c.
//
// A refused call has no effect. Where the driver accepts one, its effect is undone at once.
// No work runs on the device. Nothing is allocated on the host.
#include "base/defs.h"
#include "stress/calibrate/rules.h"

enum {
    NO_SUCH_DEVICE = 1023,
};

static int create(stress_place_t *p, uint64_t bytes, unsigned long long flags) {
    berm_cu_mem_handle_t handle = 0;
    int result = p->d->mem_create(&handle, bytes, &p->c->prop, flags);
    if (result == BERM_CU_SUCCESS)
        (void)p->d->mem_release(handle);
    return result;
}

static int create_size(stress_place_t *p) {
    return create(p, p->c->granule_bytes + p->c->granule_bytes / 2, 0);
}

static int create_zero(stress_place_t *p) {
    return create(p, 0, 0);
}

static int create_flags(stress_place_t *p) {
    return create(p, p->unit_bytes, 1);
}

static int create_beyond(stress_place_t *p) {
    size_t free_bytes = 0, total_bytes = 0;
    int result = p->d->mem_get_info(&free_bytes, &total_bytes);
    if (result != BERM_CU_SUCCESS)
        return result;
    return create(p, (total_bytes / p->unit_bytes + 2) * p->unit_bytes, 0);
}

static int reserve_zero(stress_place_t *p) {
    berm_cu_deviceptr_t addr = 0;
    int result = p->d->address_reserve(&addr, 0, 0, 0, 0);
    if (result == BERM_CU_SUCCESS)
        (void)p->d->address_free(addr, 0);
    return result;
}

// A map that must be refused; one that is not is undone.
static int map_refused(stress_place_t *p, unsigned unit, uint64_t bytes, uint64_t offset,
                       stress_place_handle_t handle, unsigned long long flags) {
    uint64_t addr = stress_place_at(p, unit);
    int result = p->d->mem_map(addr, bytes, offset, p->handles[handle], flags);
    if (result == BERM_CU_SUCCESS)
        (void)p->d->mem_unmap(addr, bytes);
    return result;
}

static int map_size(stress_place_t *p) {
    return map_refused(p, 0, p->c->granule_bytes / 2, 0, STRESS_PLACE_A, 0);
}

static int map_offset(stress_place_t *p) {
    return map_refused(p, 0, p->unit_bytes, p->unit_bytes, STRESS_PLACE_WIDE, 0);
}

static int map_flags(stress_place_t *p) {
    return map_refused(p, 0, p->unit_bytes, 0, STRESS_PLACE_A, 1);
}

static int map_longer(stress_place_t *p) {
    return map_refused(p, 0, 2 * p->unit_bytes, 0, STRESS_PLACE_A, 0);
}

static int map_outside(stress_place_t *p) {
    return map_refused(p, STRESS_PLACE_UNITS - 1, 2 * p->unit_bytes, 0, STRESS_PLACE_WIDE, 0);
}

static int map_over(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    if (result != BERM_CU_SUCCESS)
        return result;
    return p->d->mem_map(stress_place_at(p, 0), p->unit_bytes, 0, p->handles[STRESS_PLACE_B], 0);
}

static int access_hole(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    if (result == BERM_CU_SUCCESS)
        result = stress_place_map(p, 2, STRESS_PLACE_B);
    return result == BERM_CU_SUCCESS ? stress_place_access(p, 0, 3) : result;
}

static int access_part(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_WIDE);
    return result == BERM_CU_SUCCESS ? stress_place_access(p, 0, 1) : result;
}

static int access_device(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    berm_cu_mem_access_t access = p->c->access;
    access.location.id = NO_SUCH_DEVICE;
    if (result != BERM_CU_SUCCESS)
        return result;
    return p->d->set_access(stress_place_at(p, 0), p->unit_bytes, &access, 1);
}

static int unmap_hole(stress_place_t *p) {
    return p->d->mem_unmap(stress_place_at(p, 0), p->unit_bytes);
}

static int unmap_part(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_WIDE);
    if (result != BERM_CU_SUCCESS)
        return result;
    return p->d->mem_unmap(stress_place_at(p, 0), p->unit_bytes);
}

static int free_size(stress_place_t *p) {
    int result = p->d->address_free(p->addr, p->unit_bytes);
    if (result == BERM_CU_SUCCESS)
        p->addr = 0; // gone, whole or in part: not to be freed again
    return result;
}

static int free_mapped(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    if (result != BERM_CU_SUCCESS)
        return result;
    result = p->d->address_free(p->addr, STRESS_PLACE_UNITS * p->unit_bytes);
    if (result == BERM_CU_SUCCESS)
        p->addr = 0;
    return result;
}

#define REFUSED(name, text)                                                                        \
    { #name, text, false, BERM_CU_INVALID_VALUE, name }

const stress_rule_t stress_rules_of_arguments[] = {
    {"create_beyond", "cuMemCreate of more than the device has is out of memory", true,
     BERM_CU_OUT_OF_MEMORY, create_beyond},
    REFUSED(create_size, "cuMemCreate of a size that is no multiple of the granule is refused"),
    REFUSED(create_zero, "cuMemCreate of 0 bytes is refused"),
    REFUSED(create_flags, "cuMemCreate with flags is refused"),
    REFUSED(reserve_zero, "cuMemAddressReserve of 0 bytes is refused"),
    REFUSED(map_size, "cuMemMap of a size that is no multiple of the granule is refused"),
    REFUSED(map_offset, "cuMemMap at an offset into the handle is refused"),
    REFUSED(map_flags, "cuMemMap with flags is refused"),
    REFUSED(map_longer, "cuMemMap of more than the handle is refused"),
    REFUSED(map_outside, "cuMemMap past the end of the reservation is refused"),
    REFUSED(map_over, "cuMemMap over a mapping is refused"),
    REFUSED(access_hole, "cuMemSetAccess over a hole is refused"),
    REFUSED(access_part, "cuMemSetAccess over a part of a mapping is refused"),
    {"access_device", "cuMemSetAccess for a device that is not there is refused", false,
     BERM_CU_INVALID_DEVICE, access_device},
    REFUSED(unmap_hole, "cuMemUnmap of what is not mapped is refused"),
    REFUSED(unmap_part, "cuMemUnmap of a part of a mapping is refused"),
    REFUSED(free_size, "cuMemAddressFree of another size than was reserved is refused"),
    REFUSED(free_mapped, "cuMemAddressFree with mappings inside is refused"),
};
const size_t stress_rules_of_arguments_count = BERM_ARRAY_LENGTH(stress_rules_of_arguments);
