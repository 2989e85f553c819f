// SPDX-License-Identifier: Apache-2.0
// Blocks over a socket (berm_share.h): a header that says what the block is and how many handles it
// lies in, then a message for each handle, with its descriptor beside it. One handle's descriptor
// is open at a time, on either side. Nothing in a message is believed before it is checked, and the
// driver checks the descriptor.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "berm_share.h"
#include "front/share.h"
#include "host/socket.h"

enum {
    HEADER_VERSION = 2,
    DEVICE_UNKNOWN = -2,
    PARTS_MAX = 1 << 20, // handles of a block: 2 TiB in granules of 2 MiB
};

// In the byte order of the machine, which both ends share. Members that are added take from
// `unused`, and raise the version where an old reader would go wrong without them.
typedef struct share_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t size_bytes;      // of the handles
    uint64_t offset_bytes;    // of the block in them
    uint64_t requested_bytes; // of the block
    int32_t device;           // the sender's ordinal: where there is no UUID
    uint32_t has_uuid;
    berm_cu_uuid_t uuid; // of the device that the memory lies on
    uint64_t part_count; // handles
    uint64_t part_bytes; // of the first one, whose descriptor is with this message
    uint64_t unused[2];  // 0
} share_header_t;

// Of each handle but the first.
typedef struct share_part {
    char magic[8];
    uint64_t index;
    uint64_t part_bytes;
} share_part_t;

_Static_assert(sizeof(share_header_t) == 96, "the header has no holes");
_Static_assert(sizeof(share_part_t) == 24, "nor has the other");

static const char header_magic[8] = "bermmem"; // with its 0
static const char part_magic[8] = "bermprt";

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
                               .device = exported->device,
                               .part_count = exported->part_count,
                               .part_bytes = exported->part_bytes};
    memcpy(header->magic, header_magic, sizeof header->magic);
    if (berm__heap.drv.device_get_uuid == NULL)
        return BERM_OK;
    header->has_uuid = 1;
    return uuid_read(exported->device, &header->uuid);
}

// Sends a message and the descriptor, which is closed here.
static berm_status_t message_send(int socket_fd, const void *bytes, size_t size_bytes, int fd) {
    berm_socket_result_t result = berm__socket_send(socket_fd, bytes, size_bytes, fd);
    berm_status_t status =
        result == BERM_SOCKET_OK ? BERM_OK : socket_error("berm_share_send", result);
    (void)close(fd);
    return status;
}

// The handles behind the first; the other end learns of a failure when the socket is closed.
static berm_status_t parts_send(int socket_fd, berm_addr_t addr, const share_header_t *header) {
    for (uint32_t i = 1; i < header->part_count; i++) {
        berm_exported_t exported;
        berm_status_t status =
            berm__share_export("berm_share_send", addr, BERM_EXPORT_SHOWN, i, &exported);
        if (status != BERM_OK)
            return status;
        share_part_t part = {.index = i, .part_bytes = exported.part_bytes};
        memcpy(part.magic, part_magic, sizeof part.magic);
        status = message_send(socket_fd, &part, sizeof part, exported.fd);
        if (status != BERM_OK)
            return status;
    }
    return BERM_OK;
}

berm_status_t berm_share_send(int socket_fd, berm_addr_t addr) {
    static const char call[] = "berm_share_send";
    berm_exported_t exported;
    share_header_t header;
    berm_status_t status = berm__share_export(call, addr, BERM_EXPORT_SHOWN, 0, &exported);
    if (status != BERM_OK)
        return status;
    status = header_make(&exported, &header);
    if (status != BERM_OK) {
        (void)close(exported.fd);
        return berm__error_set(status, "%s, device %d: %s", call, exported.device,
                               berm_status_text(status));
    }
    status = message_send(socket_fd, &header, sizeof header, exported.fd);
    return status == BERM_OK ? parts_send(socket_fd, addr, &header) : status;
}

berm_status_t berm_share_check(berm_addr_t addr) {
    berm_exported_t exported;
    berm_status_t status =
        berm__share_export("berm_share_check", addr, BERM_EXPORT_SHOWN, 0, &exported);
    if (status == BERM_OK)
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
    if (header->part_count == 0 || header->part_count > PARTS_MAX ||
        header->part_bytes > header->size_bytes)
        return "a block of impossible parts";
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

// Sizes are the sender's, not the caller's.
static berm_status_t status_of_sizes(berm_status_t status) {
    bool is_senders = status == BERM_ERROR_ARGUMENT || status == BERM_ERROR_SIZE_TOO_LARGE;
    return is_senders ? BERM_ERROR_PROTOCOL : status;
}

// The handles behind the first, each with its descriptor.
static berm_status_t parts_receive(int socket_fd, const share_header_t *header,
                                   berm_incoming_t *incoming) {
    for (uint32_t i = 1; i < header->part_count; i++) {
        share_part_t part;
        int fd;
        berm_socket_result_t result = berm__socket_receive(socket_fd, &part, sizeof part, &fd);
        if (result != BERM_SOCKET_OK)
            return socket_error(incoming->call, result);
        berm_status_t status = BERM_ERROR_PROTOCOL;
        if (memcmp(part.magic, part_magic, sizeof part.magic) == 0 && part.index == i)
            status = berm__incoming_part(incoming, fd, part.part_bytes);
        else
            (void)berm__error_set(status, "%s: no message of part %u of a block", incoming->call,
                                  i);
        (void)close(fd);
        if (status != BERM_OK)
            return status;
    }
    return BERM_OK;
}

static berm_status_t received_import(int socket_fd, const share_header_t *header, int fd,
                                     int device, berm_addr_t *addr) {
    int owner = DEVICE_UNKNOWN;
    const char *fault = header_fault(header);
    if (fault != NULL)
        return berm__error_set(BERM_ERROR_PROTOCOL, "berm_share_receive: %s", fault);
    berm_status_t status = owner_find(header, &owner);
    if (status != BERM_OK)
        return status;
    berm_import_request_t request = {.size_bytes = header->size_bytes,
                                     .part_count = (uint32_t)header->part_count,
                                     .offset_bytes = header->offset_bytes,
                                     .requested_bytes = header->requested_bytes};
    berm_incoming_t incoming;
    status = berm__incoming_begin(&incoming, "berm_share_receive", &request,
                                  device == BERM_DEVICE_ANY ? owner : device);
    if (status != BERM_OK)
        return status_of_sizes(status);
    status = berm__incoming_part(&incoming, fd, header->part_bytes);
    if (status == BERM_OK)
        status = parts_receive(socket_fd, header, &incoming);
    if (status == BERM_OK)
        return berm__incoming_finish(&incoming, addr);
    berm__incoming_drop(&incoming);
    return status_of_sizes(status);
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
    status = received_import(socket_fd, &header, fd, device, addr);
    (void)close(fd);
    if (status == BERM_OK && size_bytes != NULL)
        *size_bytes = header.requested_bytes;
    return status;
}
