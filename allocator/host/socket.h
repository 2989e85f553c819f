// SPDX-License-Identifier: Apache-2.0
// One message with one file descriptor over a UNIX socket (SCM_RIGHTS). Of a socket of any type:
// on a stream a message may come in pieces, on others it is one packet.
//
// Whoever is at the other end is not trusted: descriptors beyond the one that is wanted are closed,
// as are all where the message is not whole. Signals do not end a call. A socket that does not
// block is waited for; one with a time limit (SO_RCVTIMEO, SO_SNDTIMEO) gives EAGAIN.
//
// Thread safety: as the socket's; two calls at once on a stream mix their bytes. Locks: none.
#ifndef BERM_HOST_SOCKET_H
#define BERM_HOST_SOCKET_H

#include <stdbool.h>

#include "base/defs.h"

typedef enum berm_socket_result {
    BERM_SOCKET_OK,
    BERM_SOCKET_CLOSED,   // the other end is closed: nothing, or not all of it, went through
    BERM_SOCKET_FOREIGN,  // not a message of this kind: too short, or with another number of files
    BERM_SOCKET_NO_FILES, // this process has no descriptor left for what came
    BERM_SOCKET_ERROR,    // a system call failed: errno
} berm_socket_result_t;

// Sends `size_bytes` bytes, and `fd` with the first. `fd` stays the caller's.
berm_socket_result_t berm__socket_send(int socket_fd, const void *bytes, size_t size_bytes, int fd);

// Receives exactly `size_bytes` bytes and one descriptor, close-on-exec, which is the caller's.
// *fd is -1 if anything failed.
berm_socket_result_t berm__socket_receive(int socket_fd, void *bytes, size_t size_bytes, int *fd);

#endif
