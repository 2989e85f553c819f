// SPDX-License-Identifier: Apache-2.0
// See raw_share.h. Calls of the driver count twice where a fault is meant for berm's.
#include "tests/support/raw_share.h"

#include <string.h>
#include <sys/socket.h>

#include "base/cuda_abi.h"
#include "tests/support/heap_fixture.h"
#include "tests/support/simcuda_forward.h"

#define CU_LOAD(variable, symbol)                                                                  \
    do {                                                                                           \
        void *function_ = simcuda_symbol(symbol);                                                  \
        memcpy(&(variable), &function_, sizeof(variable));                                         \
    } while (0)

#define TWICE(call) ((call) == BERM_CU_SUCCESS || (call) == BERM_CU_SUCCESS)

int raw_export(uint64_t size_bytes, int device) {
    berm_cu_mem_create_fn create;
    berm_cu_mem_export_fn export;
    berm_cu_mem_release_fn release;
    CU_LOAD(create, "cuMemCreate");
    CU_LOAD(export, "cuMemExportToShareableHandle");
    CU_LOAD(release, "cuMemRelease");
    berm_cu_mem_prop_t prop = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                               .requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD,
                               .location = {BERM_CU_MEM_LOCATION_DEVICE, device}};
    berm_cu_mem_handle_t handle = 0;
    int fd = -1;
    HEAP_INSIST(TWICE(create(&handle, size_bytes, &prop, 0)));
    HEAP_INSIST(TWICE(export(&fd, handle, BERM_CU_MEM_HANDLE_POSIX_FD, 0)));
    HEAP_INSIST(TWICE(release(handle)));
    return fd;
}

raw_header_t raw_header(uint64_t size_bytes, int device) {
    berm_cu_device_get_uuid_fn get_uuid;
    CU_LOAD(get_uuid, "cuDeviceGetUuid_v2");
    raw_header_t header = {.magic = "bermmem",
                           .version = 2,
                           .header_bytes = sizeof header,
                           .size_bytes = size_bytes,
                           .requested_bytes = size_bytes,
                           .device = device,
                           .has_uuid = 1,
                           .part_count = 1,
                           .part_bytes = size_bytes};
    berm_cu_uuid_t uuid;
    HEAP_INSIST(TWICE(get_uuid(&uuid, device)));
    memcpy(header.uuid, &uuid, sizeof header.uuid);
    return header;
}

void raw_send(int socket_fd, const void *bytes, size_t size_bytes, int fd, unsigned copies) {
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec data = {(char *)(uintptr_t)bytes, size_bytes};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    HEAP_INSIST(copies <= 8);
    if (fd >= 0 && copies > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(copies * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(copies * sizeof(int));
        for (unsigned i = 0; i < copies; i++)
            memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
    HEAP_INSIST(sendmsg(socket_fd, &message, MSG_NOSIGNAL) == (ssize_t)size_bytes);
}
