// SPDX-License-Identifier: Apache-2.0
// Memory to import without an exporter: a descriptor that the driver itself made, as another
// allocator's process would.
#ifndef BERM_TESTS_RAW_SHARE_H
#define BERM_TESTS_RAW_SHARE_H

#include <stddef.h>
#include <stdint.h>

// A descriptor of `size_bytes` on `device`. Nothing but the descriptor holds the memory.
int raw_export(uint64_t size_bytes, int device);

// A message as berm_share_send's, for tests that change it: 96 bytes.
typedef struct raw_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t size_bytes, offset_bytes, requested_bytes;
    int32_t device;
    uint32_t has_uuid;
    unsigned char uuid[16];
    uint64_t part_count, part_bytes;
    uint64_t unused[2];
} raw_header_t;

// The message of a further handle.
typedef struct raw_part {
    char magic[8];
    uint64_t index, part_bytes;
} raw_part_t;

// What a sender says of a block of `size_bytes` on simulated device `device`.
raw_header_t raw_header(uint64_t size_bytes, int device);

// Sends bytes with `fd` (-1: without), `copies` times.
void raw_send(int socket_fd, const void *bytes, size_t size_bytes, int fd, unsigned copies);

#endif
