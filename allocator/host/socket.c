// SPDX-License-Identifier: Apache-2.0
// Messages with a descriptor: see socket.h.
#include "host/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FILES_MAX = 253,       // of one message, the kernel's own bound (SCM_MAX_FD)
    OTHER_BYTES_MAX = 1024 // credentials and such, where the socket asks for them
};

typedef union control {
    char bytes[CMSG_SPACE(FILES_MAX * sizeof(int)) + OTHER_BYTES_MAX];
    struct cmsghdr aligned;
} control_t;

static berm_socket_result_t result_of_errno(void) {
    return errno == EPIPE || errno == ECONNRESET || errno == ECONNREFUSED || errno == ENOTCONN
               ? BERM_SOCKET_CLOSED
               : BERM_SOCKET_ERROR;
}

// After a call that failed: true if it is to be made again. Waits where the socket does not block;
// EAGAIN of one that does is its time limit.
static bool is_again(int socket_fd, short events) {
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return false;
    int flags = fcntl(socket_fd, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK) == 0) {
        errno = EAGAIN;
        return false;
    }
    struct pollfd wait = {.fd = socket_fd, .events = events};
    int ready;
    do
        ready = poll(&wait, 1, -1);
    while (ready < 0 && errno == EINTR);
    return ready >= 0;
}

// --- sending -----------------------------------------------------------------------------------

static void control_put(struct msghdr *message, control_t *control, int fd) {
    memset(control, 0, CMSG_SPACE(sizeof fd));
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(sizeof fd);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
}

berm_socket_result_t berm__socket_send(int socket_fd, const void *bytes, size_t size_bytes,
                                       int fd) {
    size_t sent = 0;
    while (sent < size_bytes) {
        control_t control;
        struct iovec data = {(char *)(uintptr_t)bytes + sent, size_bytes - sent};
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
        if (sent == 0)
            control_put(&message, &control, fd);
        ssize_t count = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
        if (count >= 0)
            sent += (size_t)count;
        else if (!is_again(socket_fd, POLLOUT))
            return result_of_errno();
    }
    return BERM_SOCKET_OK;
}

// --- receiving ---------------------------------------------------------------------------------

// What has come so far. Every descriptor but the first is closed at once, and counted.
typedef struct inbox {
    int fd; // -1: none yet
    unsigned files;
    bool is_cut; // the kernel dropped descriptors
} inbox_t;

static void file_keep(inbox_t *inbox, int fd) {
    if (inbox->files++ == 0)
        inbox->fd = fd;
    else
        (void)close(fd);
}

static void files_take(inbox_t *inbox, struct msghdr *message) {
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    for (; header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            file_keep(inbox, fd);
        }
    }
    inbox->is_cut |= (message->msg_flags & MSG_CTRUNC) != 0;
}

// The next piece of the message; *received goes up. Bytes beyond a packet's end are refused.
static berm_socket_result_t piece_receive(int socket_fd, char *bytes, size_t size_bytes,
                                          size_t *received, inbox_t *inbox) {
    control_t control;
    struct iovec data = {bytes + *received, size_bytes - *received};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t count;
    do
        count = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    while (count < 0 && is_again(socket_fd, POLLIN));
    if (count < 0)
        return result_of_errno();
    files_take(inbox, &message);
    *received += (size_t)count;
    if (count == 0)
        return BERM_SOCKET_CLOSED;
    return (message.msg_flags & MSG_TRUNC) != 0 ? BERM_SOCKET_FOREIGN : BERM_SOCKET_OK;
}

static bool socket_is_stream(int socket_fd) {
    int type = 0;
    socklen_t length = sizeof type;
    return getsockopt(socket_fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

berm_socket_result_t berm__socket_receive(int socket_fd, void *bytes, size_t size_bytes, int *fd) {
    inbox_t inbox = {.fd = -1};
    size_t received = 0;
    bool is_stream = socket_is_stream(socket_fd);
    berm_socket_result_t result;
    do
        result = piece_receive(socket_fd, bytes, size_bytes, &received, &inbox);
    while (result == BERM_SOCKET_OK && received < size_bytes && is_stream);
    int error = errno;
    if (result == BERM_SOCKET_OK && inbox.is_cut)
        result = BERM_SOCKET_NO_FILES;
    if (result == BERM_SOCKET_OK && (received < size_bytes || inbox.files != 1))
        result = BERM_SOCKET_FOREIGN;
    *fd = inbox.fd;
    if (result != BERM_SOCKET_OK) {
        if (inbox.fd >= 0)
            (void)close(inbox.fd);
        *fd = -1;
    }
    errno = error;
    return result;
}
