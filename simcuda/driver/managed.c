// SPDX-License-Identifier: Apache-2.0
// Managed memory: the host and kernels reach it by one address, and its pages are where they were
// touched last. Kernels do nothing here, so it is pages of the host that are taken when they are
// touched; none of it counts as used on a device. Locks: the state's, by sim_enter.
#include <stdlib.h>
#include <sys/mman.h>

#include "managed.h"

enum {
    ATTACH_GLOBAL = 1,
    ATTACH_HOST = 2
};

typedef struct sim_managed {
    berm_list_t node;
    void *pages;
    uint64_t size_bytes;
    sim_context_t *context;
} sim_managed_t;

static sim_managed_t *managed_at(uint64_t addr) {
    BERM_LIST_EACH (sim_managed_t, managed, &sim.managed, node)
        if (addr - (uintptr_t)managed->pages < managed->size_bytes)
            return managed;
    return NULL;
}

bool sim_managed_range(uint64_t addr, uint64_t *base, uint64_t *bytes) {
    const sim_managed_t *managed = managed_at(addr);
    if (managed == NULL)
        return false;
    *base = (uintptr_t)managed->pages;
    *bytes = managed->size_bytes;
    return true;
}

static void managed_destroy(sim_managed_t *managed) {
    berm__list_remove(&managed->node);
    (void)munmap(managed->pages, managed->size_bytes);
    free(managed);
}

void sim_managed_free_all(const sim_context_t *context) {
    for (berm_list_t *at = sim.managed.next, *next; at != &sim.managed; at = next) {
        sim_managed_t *managed = BERM_CONTAINER_OF(at, sim_managed_t, node);
        next = at->next;
        if (context == NULL || managed->context == context)
            managed_destroy(managed);
    }
}

bool sim_managed_free(uint64_t addr, int *result) {
    sim_managed_t *managed = managed_at(addr);
    if (managed == NULL || (uintptr_t)managed->pages != addr)
        return false;
    sim_charge(&sim.config.costs.free_, 0, managed->size_bytes);
    sim_wait_device(managed->context->device);
    *result = sim_context_observe(managed->context);
    if (*result == BERM_CU_SUCCESS)
        managed_destroy(managed);
    return true;
}

static int managed_create(berm_cu_deviceptr_t *addr, size_t bytes, unsigned flags) {
    if (addr == NULL || bytes == 0 || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST))
        return BERM_CU_INVALID_VALUE;
    sim_charge(&sim.config.costs.malloc_, 0, bytes);
    sim_managed_t *managed = malloc(sizeof *managed);
    void *pages = bytes > SIM_ADDRESS_BYTES
                      ? MAP_FAILED
                      : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (managed == NULL || pages == MAP_FAILED) {
        free(managed);
        if (pages != MAP_FAILED)
            (void)munmap(pages, bytes);
        return BERM_CU_OUT_OF_MEMORY;
    }
    *managed =
        (sim_managed_t){.pages = pages, .size_bytes = bytes, .context = sim_context_current()};
    berm__list_push_back(&sim.managed, &managed->node);
    *addr = (uintptr_t)pages;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemAllocManaged(berm_cu_deviceptr_t *addr, size_t bytes, unsigned flags) {
    int result = sim_enter(SIM_FN_cuMemAllocManaged);
    if (result == BERM_CU_SUCCESS)
        result = managed_create(addr, bytes, flags);
    return sim_leave(result);
}
