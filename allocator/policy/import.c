// SPDX-License-Identifier: Apache-2.0
// A device's imports: see share.h.
#include "host/mem.h"
#include "policy/share.h"

static size_t import_bytes(uint32_t part_count) {
    return sizeof(berm_import_t) + part_count * sizeof(berm_cu_mem_handle_t);
}

static void import_forget(berm_device_t *device, berm_import_t *import) {
    berm__list_remove(&import->link);
    atomic_fetch_sub(&device->import_records, 1);
    berm__mem_free(import, import_bytes(import->part_count));
}

static void import_count(berm_device_t *device, const berm_import_t *import) {
    device->import_count++;
    device->imported_bytes += import->size_bytes;
    device->imported_mappings += import->part_count;
}

static void import_uncount(berm_device_t *device, const berm_import_t *import) {
    device->import_count--;
    device->imported_bytes -= import->size_bytes;
    device->imported_mappings -= import->part_count;
}

// Takes it apart as far as the driver lets it; a mapping that went is counted no more.
static berm_status_t import_undo(berm_device_t *device, berm_import_t *import) {
    bool was_mapped = import->is_mapped;
    berm_status_t status = berm__import_undo(import);
    if (was_mapped && !import->is_mapped)
        import_uncount(device, import);
    return status;
}

berm_status_t berm__device_import_begin(berm_device_t *device, const berm_import_request_t *request,
                                        berm_import_t **out) {
    *out = NULL;
    if (!device->gpu.drv->has_vmm_entries)
        return BERM_ERROR_UNSUPPORTED;
    berm_status_t status = berm__device_edits_check(device);
    if (status != BERM_OK)
        return status;
    berm__device_imports_sweep(device);
    berm_import_t *import = berm__mem_alloc(import_bytes(request->part_count));
    if (import == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm__import_init(import, &device->gpu, request->size_bytes, request->part_count);
    import->is_busy = true;
    berm__list_push_back(&device->imports, &import->link);
    atomic_fetch_add(&device->import_records, 1);
    *out = import;
    return BERM_OK;
}

berm_status_t berm__device_import_part(berm_device_t *device, berm_import_t *import, int fd,
                                       uint64_t part_bytes) {
    berm_status_t status = berm__import_part(import, fd, part_bytes);
    if (status == BERM_OK && import->is_mapped)
        import_count(device, import);
    return status;
}

berm_status_t berm__device_import_finish(berm_import_t *import,
                                         const berm_import_request_t *request) {
    berm_status_t status = berm__import_finish(import);
    if (status != BERM_OK)
        return status;
    import->addr = import->base + request->offset_bytes;
    import->requested_bytes = request->requested_bytes;
    import->is_busy = false;
    return BERM_OK;
}

// Once more, if the driver refuses; what is left then is swept up later.
void berm__device_import_drop(berm_device_t *device, berm_import_t *import) {
    import->is_busy = false;
    if (import_undo(device, import) == BERM_OK || import_undo(device, import) == BERM_OK)
        import_forget(device, import);
}

berm_import_t *berm__device_import_at(berm_device_t *device, berm_addr_t addr) {
    BERM_LIST_EACH (berm_import_t, import, &device->imports, link)
        if (import->base != 0 && addr - import->base < import->size_bytes)
            return import;
    return NULL;
}

berm_status_t berm__device_import_end(berm_device_t *device, berm_import_t *import) {
    berm_status_t status = berm__device_edits_check(device);
    if (status == BERM_OK)
        status = import_undo(device, import);
    if (status == BERM_OK)
        import_forget(device, import);
    return status;
}

void berm__device_imports_sweep(berm_device_t *device) {
    for (berm_list_t *at = device->imports.next; at != &device->imports;) {
        berm_import_t *import = BERM_CONTAINER_OF(at, berm_import_t, link);
        at = at->next;
        if (import->addr == 0 && !import->is_busy)
            (void)berm__device_import_end(device, import);
    }
}

void berm__device_imports_close(berm_device_t *device, bool is_quiet) {
    while (!berm__list_is_empty(&device->imports)) {
        berm_import_t *import = BERM_CONTAINER_OF(device->imports.next, berm_import_t, link);
        if (is_quiet && import_undo(device, import) != BERM_OK)
            (void)import_undo(device, import);
        import_forget(device, import);
    }
}
