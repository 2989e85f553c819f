// SPDX-License-Identifier: Apache-2.0
// The audit of what a device shares: imports (I31), exported handles (I32), peers (I33).
#include <inttypes.h>

#include "front/audit.h"
#include "policy/share.h"

// I32: what was exported and is mapped nowhere leaves; the sum over all that was exported.
int berm__audit_exports(const berm_audit_t *audit, uint64_t *leaving) {
    const berm_phys_t *phys = &audit->device->phys;
    uint64_t granules = 0;
    *leaving = 0;
    for (const berm_list_t *link = phys->leaving.next;
         link != &phys->leaving && *leaving <= phys->leaving_count; link = link->next, ++*leaving) {
        const berm_phys_handle_t *handle =
            BERM_CONTAINER_OF((uintptr_t)link, berm_phys_handle_t, link);
        if (!handle->is_exported || handle->segment != NULL)
            return berm__audit_fail(audit, 32, 0, "a handle that leaves %s",
                                    handle->is_exported ? "is mapped" : "was never exported");
        granules += handle->granules;
    }
    uint64_t bytes = audit->sums.exported_bytes + (granules << phys->gpu->lg_granule);
    if (*leaving == phys->leaving_count && granules == phys->leaving_granules &&
        bytes == phys->exported_bytes)
        return 0;
    return berm__audit_fail(audit, 32, 0,
                            "%" PRIu64 " handles leave and %" PRIu64
                            " bytes were exported, %" PRIu64 " and %" PRIu64 " are counted",
                            *leaving, bytes, phys->leaving_count, phys->exported_bytes);
}

// I31: figures are those of the list, and what is mapped is whole.
static int imports_check(const berm_audit_t *audit) {
    const berm_device_t *device = audit->device;
    uint64_t count = 0, bytes = 0, mappings = 0;
    for (const berm_list_t *link = device->imports.next; link != &device->imports;
         link = link->next) {
        const berm_import_t *import = BERM_CONTAINER_OF((uintptr_t)link, berm_import_t, link);
        if (!import->is_mapped)
            continue;
        bool is_its = import->addr == 0 || import->addr - import->base < import->size_bytes;
        bool is_whole =
            import->held_count == import->part_count && import->mapped_bytes == import->size_bytes;
        if (import->base == 0 || !is_whole || !is_its)
            return berm__audit_fail(
                audit, 31, import->base,
                "an import is mapped without its handles or addresses of its own");
        count++;
        bytes += import->size_bytes;
        mappings += import->part_count;
    }
    if (count == device->import_count && bytes == device->imported_bytes &&
        mappings == device->imported_mappings)
        return 0;
    return berm__audit_fail(audit, 31, 0,
                            "%" PRIu64 " imports of %" PRIu64 " bytes, in %" PRIu64
                            " handles, are mapped; %" PRIu64 " of %" PRIu64 " in %" PRIu64
                            " are counted",
                            count, bytes, mappings, device->import_count, device->imported_bytes,
                            device->imported_mappings);
}

// I33.
static int peers_check(const berm_audit_t *audit) {
    const berm_gpu_t *gpu = &audit->device->gpu;
    bool is_right = gpu->access_count >= 1 && gpu->access_count <= BERM_GPU_ACCESS_MAX &&
                    gpu->access[0].location.id == gpu->ordinal;
    for (unsigned i = 1; is_right && i < gpu->access_count; i++)
        for (unsigned j = 0; j < i; j++)
            is_right &= gpu->access[j].location.id != gpu->access[i].location.id;
    if (is_right)
        return 0;
    return berm__audit_fail(audit, 33, 0,
                            "%u devices may use its memory: not itself first and each peer once",
                            gpu->access_count);
}

int berm__audit_share(const berm_audit_t *audit) {
    int broken = imports_check(audit);
    return broken != 0 ? broken : peers_check(audit);
}
