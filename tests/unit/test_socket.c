// SPDX-License-Identifier: Apache-2.0
// Messages with a descriptor: whole, in pieces, with too few or too many descriptors, from ends
// that go away. No case leaves a descriptor open.
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "host/socket.h"
#include "tests/support/other_process.h"

enum {
    MESSAGE_BYTES = 96
};

typedef struct ends {
    int a, b;
    int files; // open before
} ends_t;

static ends_t ends_make(int type) {
    ends_t ends = {.files = open_files()};
    int sockets[2];
    cr_assert(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets) == 0);
    ends.a = sockets[0];
    ends.b = sockets[1];
    return ends;
}

static void ends_close(ends_t *ends) {
    (void)close(ends->a);
    (void)close(ends->b);
    cr_assert(open_files() == ends->files, "%d descriptors are left", open_files() - ends->files);
}

// Sends bytes with some descriptors, as a stranger might.
static void raw_send(int socket_fd, const void *bytes, size_t size_bytes, size_t files) {
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec data = {(char *)(uintptr_t)bytes, size_bytes};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    int fds[8];
    if (files > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(files * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(files * sizeof(int));
        for (size_t i = 0; i < files; i++)
            fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
        memcpy(CMSG_DATA(header), fds, files * sizeof(int));
    }
    cr_assert(sendmsg(socket_fd, &message, 0) == (ssize_t)size_bytes);
    for (size_t i = 0; i < files; i++)
        (void)close(fds[i]);
}

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

static void expect_refused(int type, size_t size_bytes, size_t files, berm_socket_result_t want) {
    ends_t ends = ends_make(type);
    char bytes[2 * MESSAGE_BYTES] = "x";
    int fd = 7;
    raw_send(ends.a, bytes, size_bytes, files);
    (void)shutdown(ends.a, SHUT_WR);
    berm_socket_result_t got = berm__socket_receive(ends.b, bytes, MESSAGE_BYTES, &fd);
    cr_assert(got == want, "%zu bytes with %zu descriptors, type %d: %d", size_bytes, files, type,
              (int)got);
    cr_assert(fd == -1);
    ends_close(&ends);
}

Test(socket, a_message_goes_through) {
    for (size_t i = 0; i < 2; i++) {
        ends_t ends = ends_make(types[i]);
        char sent[MESSAGE_BYTES], received[MESSAGE_BYTES];
        memset(sent, 'a' + (int)i, sizeof sent);
        int file = open("/dev/zero", O_RDONLY | O_CLOEXEC), fd = -1;
        cr_assert(berm__socket_send(ends.a, sent, sizeof sent, file) == BERM_SOCKET_OK);
        (void)close(file);
        cr_assert(berm__socket_receive(ends.b, received, sizeof received, &fd) == BERM_SOCKET_OK);
        cr_assert(memcmp(sent, received, sizeof sent) == 0);
        cr_assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        cr_assert(read(fd, received, 1) == 1 && received[0] == 0, "the same file");
        (void)close(fd);
        ends_close(&ends);
    }
}

Test(socket, pieces_of_a_stream_are_put_together) {
    ends_t ends = ends_make(SOCK_STREAM);
    char bytes[MESSAGE_BYTES], received[MESSAGE_BYTES];
    memset(bytes, 'q', sizeof bytes);
    int fd = -1;
    raw_send(ends.a, bytes, 1, 1);
    for (size_t i = 1; i < sizeof bytes; i++)
        raw_send(ends.a, bytes, 1, 0);
    raw_send(ends.a, bytes, sizeof bytes, 1); // the next one
    for (int i = 0; i < 2; i++) {
        cr_assert(berm__socket_receive(ends.b, received, sizeof received, &fd) == BERM_SOCKET_OK);
        cr_assert(memcmp(bytes, received, sizeof bytes) == 0 && fd >= 0);
        (void)close(fd);
    }
    ends_close(&ends);
}

Test(socket, other_messages_are_refused) {
    for (size_t i = 0; i < 2; i++) {
        expect_refused(types[i], MESSAGE_BYTES, 0, BERM_SOCKET_FOREIGN);
        expect_refused(types[i], MESSAGE_BYTES, 2, BERM_SOCKET_FOREIGN);
        expect_refused(types[i], MESSAGE_BYTES, 8, BERM_SOCKET_FOREIGN);
    }
    expect_refused(SOCK_SEQPACKET, MESSAGE_BYTES - 1, 1, BERM_SOCKET_FOREIGN);
    expect_refused(SOCK_SEQPACKET, MESSAGE_BYTES + 1, 1, BERM_SOCKET_FOREIGN);
    expect_refused(SOCK_STREAM, MESSAGE_BYTES - 1, 1, BERM_SOCKET_CLOSED);
    expect_refused(SOCK_STREAM, MESSAGE_BYTES - 1, 3, BERM_SOCKET_CLOSED);
}

Test(socket, descriptors_in_more_than_one_piece_are_refused) {
    ends_t ends = ends_make(SOCK_STREAM);
    char bytes[MESSAGE_BYTES] = "x";
    int fd = 7;
    raw_send(ends.a, bytes, MESSAGE_BYTES / 2, 1);
    raw_send(ends.a, bytes, MESSAGE_BYTES / 2, 2);
    cr_assert(berm__socket_receive(ends.b, bytes, sizeof bytes, &fd) == BERM_SOCKET_FOREIGN);
    cr_assert(fd == -1);
    ends_close(&ends);
}

Test(socket, the_other_end_is_closed) {
    for (size_t i = 0; i < 2; i++) {
        ends_t ends = ends_make(types[i]);
        char bytes[MESSAGE_BYTES] = "x";
        int fd = 7;
        (void)close(ends.a);
        ends.a = -1;
        cr_assert(berm__socket_receive(ends.b, bytes, sizeof bytes, &fd) == BERM_SOCKET_CLOSED);
        cr_assert(fd == -1);
        cr_assert(berm__socket_send(ends.b, bytes, sizeof bytes, ends.b) == BERM_SOCKET_CLOSED,
                  "and no SIGPIPE");
        ends_close(&ends);
    }
}

Test(socket, what_is_no_socket) {
    char bytes[MESSAGE_BYTES] = "x";
    int fd = 7, file = open("/dev/null", O_RDWR | O_CLOEXEC);
    cr_assert(berm__socket_receive(file, bytes, sizeof bytes, &fd) == BERM_SOCKET_ERROR);
    cr_assert(errno == ENOTSOCK && fd == -1);
    cr_assert(berm__socket_send(file, bytes, sizeof bytes, file) == BERM_SOCKET_ERROR);
    cr_assert(errno == ENOTSOCK);
    cr_assert(berm__socket_receive(-1, bytes, sizeof bytes, &fd) == BERM_SOCKET_ERROR);
    cr_assert(errno == EBADF);
    (void)close(file);
}

Test(socket, a_time_limit_holds) {
    ends_t ends = ends_make(SOCK_STREAM);
    char bytes[MESSAGE_BYTES] = "x";
    struct timeval limit = {.tv_usec = 10000};
    int fd = 7;
    cr_assert(setsockopt(ends.b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    raw_send(ends.a, bytes, 10, 1); // and no more
    cr_assert(berm__socket_receive(ends.b, bytes, sizeof bytes, &fd) == BERM_SOCKET_ERROR);
    cr_assert(errno == EAGAIN && fd == -1);
    ends_close(&ends);
}

Test(socket, no_descriptor_is_left_for_what_comes) {
    ends_t ends = ends_make(SOCK_STREAM);
    char bytes[MESSAGE_BYTES] = "x";
    struct rlimit before, none;
    int fd = 7;
    raw_send(ends.a, bytes, sizeof bytes, 1);
    cr_assert(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 3; // fewer than are open
    cr_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
    berm_socket_result_t result = berm__socket_receive(ends.b, bytes, sizeof bytes, &fd);
    cr_assert(setrlimit(RLIMIT_NOFILE, &before) == 0);
    cr_assert(result == BERM_SOCKET_NO_FILES && fd == -1);
    ends_close(&ends);
}

static void signal_ignore(int number) {
    (void)number;
}

static void *trickle(void *argument) {
    const ends_t *ends = argument;
    char bytes[MESSAGE_BYTES] = "x";
    for (size_t i = 0; i < sizeof bytes; i++) {
        raw_send(ends->a, bytes, 1, i == 0);
        (void)usleep(500);
    }
    return NULL;
}

// Signals come all the time, without SA_RESTART; then the same with a socket that does not block.
Test(socket, signals_and_sockets_that_do_not_block) {
    ends_t ends = ends_make(SOCK_STREAM);
    char bytes[MESSAGE_BYTES];
    struct sigaction action = {.sa_handler = signal_ignore};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    pthread_t thread;
    cr_assert(sigaction(SIGALRM, &action, NULL) == 0);
    cr_assert(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int round = 0; round < 2; round++) {
        int fd = -1;
        if (round == 1)
            cr_assert(fcntl(ends.b, F_SETFL, O_NONBLOCK) == 0);
        cr_assert(pthread_create(&thread, NULL, trickle, &ends) == 0);
        cr_assert(berm__socket_receive(ends.b, bytes, sizeof bytes, &fd) == BERM_SOCKET_OK);
        (void)pthread_join(thread, NULL);
        cr_assert(fd >= 0 && close(fd) == 0);
    }
    cr_assert(setitimer(ITIMER_REAL, &never, NULL) == 0);
    ends_close(&ends);
}

static void *drain(void *argument) {
    const ends_t *ends = argument;
    char bytes[4096];
    (void)usleep(20000);
    while (recv(ends->b, bytes, sizeof bytes, 0) > 0)
        continue;
    return NULL;
}

// More than the socket holds: sent in pieces, the descriptor with the first only.
Test(socket, a_full_socket_is_waited_for) {
    ends_t ends = ends_make(SOCK_STREAM);
    static char bytes[1 << 20];
    pthread_t thread;
    cr_assert(fcntl(ends.a, F_SETFL, O_NONBLOCK) == 0);
    cr_assert(pthread_create(&thread, NULL, drain, &ends) == 0);
    cr_assert(berm__socket_send(ends.a, bytes, sizeof bytes, ends.a) == BERM_SOCKET_OK);
    (void)shutdown(ends.a, SHUT_WR);
    (void)pthread_join(thread, NULL);
    ends_close(&ends);
}
