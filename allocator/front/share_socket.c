// SPDX-License-Identifier: Apache-2.0
// Blocks over a socket (berm_share.h): a header that says what the descriptor beside it is of.
// Nothing in the header is believed before it is checked, and the driver checks the descriptor.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "berm_share.h"
#include "front/share.h"
#include "host/socket.h"

enum {
    HEADER_VERSION = 1,
    DEVICE_UNKNOWN = -2
};

// In the byte order of the machine, which both ends share. Members that are added take from
// `unused`, and raise the version where an old reader would go wrong without them.
typedef struct share_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t size_bytes;      // of the handle
    uint64_t offset_bytes;    // of the block in it
    uint64_t requested_bytes; // of the block
    int32_t device;           // the sender's ordinal: where there is no UUID
    uint32_t has_uuid;
    berm_cu_uuid_t uuid; // of the device that the memory lies on
    uint64_t unused[4];  // 0
} share_header_t;

_Static_assert(sizeof(share_header_t) == 96, "the header has no holes");

static const char header_magic[8] = "bermmem"; // with its 0

// A failure of the socket; errno is of the call.
static berm_status_t socket_error(const char *call, berm_socket_result_t result) {
    int error = errno;
    switch (result) {
    case BERM_SOCKET_CLOSED:
        return berm__error_set(BERM_ERROR_DISCONNECTED, "%s: the other end of the socket is closed",
                               call);
    case BERM_SOCKET_FOREIGN:
        return berm__error_set(BERM_ERROR_PROTOCOL,
                               "%s: a message that is too short, or not with one descriptor", call);
    case BERM_SOCKET_NO_FILES:
        return berm__error_set(BERM_ERROR_CEILING,
                               "%s: this process has no descriptor left for what came", call);
    default:
        errno = error;
        return berm__error_set(BERM_ERROR_SYSTEM, "%s: the socket: %m (errno %d)", call, error);
    }
}

static berm_status_t uuid_read(int ordinal, berm_cu_uuid_t *uuid) {
    berm_drv_t *drv = &berm__heap.drv;
    berm_cu_device_t device = 0;
    berm_cu_result_t result = BERM_DRV_CALL(drv, OTHER, device_get, &device, ordinal);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, OTHER, device_get_uuid, uuid, device);
    return berm__drv_status(result);
}

// --- sending -----------------------------------------------------------------------------------

static berm_status_t header_make(const berm_exported_t *exported, share_header_t *header) {
    *header = (share_header_t){.version = HEADER_VERSION,
                               .header_bytes = sizeof *header,
                               .size_bytes = exported->size_bytes,
                               .offset_bytes = exported->offset_bytes,
                               .requested_bytes = exported->requested_bytes,
                               .device = exported->device};
    memcpy(header->magic, header_magic, sizeof header->magic);
    if (berm__heap.drv.device_get_uuid == NULL)
        return BERM_OK;
    header->has_uuid = 1;
    return uuid_read(exported->device, &header->uuid);
}

berm_status_t berm_share_send(int socket_fd, berm_addr_t addr) {
    static const char call[] = "berm_share_send";
    berm_exported_t exported;
    share_header_t header;
    berm_status_t status = berm__share_export(call, addr, &exported);
    if (status != BERM_OK)
        return status;
    status = header_make(&exported, &header);
    if (status != BERM_OK)
        (void)berm__error_set(status, "%s, device %d: %s", call, exported.device,
                              berm_status_text(status));
    if (status == BERM_OK) {
        berm_socket_result_t result =
            berm__socket_send(socket_fd, &header, sizeof header, exported.fd);
        if (result != BERM_SOCKET_OK)
            status = socket_error(call, result);
    }
    (void)close(exported.fd);
    return status;
}

// --- receiving ---------------------------------------------------------------------------------

// What is wrong with a header, in words; NULL: nothing.
static const char *header_fault(const share_header_t *header) {
    if (memcmp(header->magic, header_magic, sizeof header->magic) != 0)
        return "no message of berm";
    if (header->version != HEADER_VERSION || header->header_bytes != sizeof *header)
        return "a message of another version of berm";
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(header->unused); i++)
        if (header->unused[i] != 0)
            return "a message with a member that is to be 0";
    if (header->offset_bytes >= header->size_bytes || header->requested_bytes == 0 ||
        header->requested_bytes > header->size_bytes - header->offset_bytes)
        return "a block that is not within its memory";
    if (header->device < 0 || header->has_uuid > 1)
        return "a message that names no device";
    return NULL;
}

// This process's ordinal for the device that the memory lies on; DEVICE if it does not see it.
static berm_status_t owner_find(const share_header_t *header, int *owner) {
    int count = berm__heap.drv.device_count;
    bool is_by_uuid = header->has_uuid != 0 && berm__heap.drv.device_get_uuid != NULL;
    *owner = is_by_uuid || header->device >= count ? DEVICE_UNKNOWN : header->device;
    for (int ordinal = 0; is_by_uuid && ordinal < count; ordinal++) {
        berm_cu_uuid_t uuid;
        berm_status_t status = uuid_read(ordinal, &uuid);
        if (status != BERM_OK)
            return berm__error_set(status, "berm_share_receive, device %d: %s", ordinal,
                                   berm_status_text(status));
        if (memcmp(&uuid, &header->uuid, sizeof uuid) == 0)
            *owner = ordinal;
    }
    if (*owner == DEVICE_UNKNOWN)
        return berm__error_set(BERM_ERROR_DEVICE,
                               "berm_share_receive: the memory is on a device (the sender's %d) "
                               "that this process does not see",
                               header->device);
    return BERM_OK;
}

static berm_status_t received_import(const share_header_t *header, int fd, int device,
                                     berm_addr_t *addr) {
    int owner = DEVICE_UNKNOWN;
    const char *fault = header_fault(header);
    if (fault != NULL)
        return berm__error_set(BERM_ERROR_PROTOCOL, "berm_share_receive: %s", fault);
    berm_status_t status = owner_find(header, &owner);
    if (status != BERM_OK)
        return status;
    berm_import_request_t request = {.fd = fd,
                                     .size_bytes = header->size_bytes,
                                     .offset_bytes = header->offset_bytes,
                                     .requested_bytes = header->requested_bytes};
    status = berm__share_import("berm_share_receive", &request,
                                device == BERM_DEVICE_ANY ? owner : device, addr);
    // Sizes are the sender's, not the caller's.
    bool is_senders = status == BERM_ERROR_ARGUMENT || status == BERM_ERROR_SIZE_TOO_LARGE;
    return is_senders ? BERM_ERROR_PROTOCOL : status;
}

berm_status_t berm_share_receive(int socket_fd, int device, berm_addr_t *addr,
                                 uint64_t *size_bytes) {
    static const char call[] = "berm_share_receive";
    share_header_t header;
    int fd;
    if (addr == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: addr is NULL", call);
    *addr = 0;
    berm_status_t status = berm__heap_ready();
    if (status != BERM_OK)
        return status;
    if (device != BERM_DEVICE_ANY && (device < 0 || device >= berm__heap.drv.device_count))
        return berm__error_set(BERM_ERROR_DEVICE, "no device %d: the driver has %d", device,
                               berm__heap.drv.device_count);
    berm_socket_result_t result = berm__socket_receive(socket_fd, &header, sizeof header, &fd);
    if (result != BERM_SOCKET_OK)
        return socket_error(call, result);
    status = received_import(&header, fd, device, addr);
    (void)close(fd);
    if (status == BERM_OK && size_bytes != NULL)
        *size_bytes = header.requested_bytes;
    return status;
}
