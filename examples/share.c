// SPDX-License-Identifier: Apache-2.0
// Two processes share a block of device memory over a socket: both write and read it, one is
// killed, and the other goes on. On the simulated device it needs contents: SIMCUDA_BACKED=1.
#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berm_introspect.h"
#include "berm_share.h"

enum {
    SOCKET_FD = 3, // in the second process
    TEXT_BYTES = 64
};

static const char *who = "A";

#define MUST(call)                                                                                 \
    do {                                                                                           \
        berm_status_t status = (call);                                                             \
        if (status != BERM_OK) {                                                                   \
            (void)fprintf(stderr, "%s: %s: %s: %s\n", who, #call, berm_status_name(status),        \
                          berm_error_message());                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// The driver's copy, as any program would use it: berm itself never touches device memory.
static int driver_copy(const char *name, void *host, berm_addr_t addr) {
    static int is_ready;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        return -1;
    if (!is_ready) { // berm holds the device's primary context: it is made current in this thread
        void *context = NULL;
        int (*retain)(void **, int) =
            (int (*)(void **, int))(uintptr_t)dlsym(driver, "cuDevicePrimaryCtxRetain");
        int (*set)(void *) = (int (*)(void *))(uintptr_t)dlsym(driver, "cuCtxSetCurrent");
        if (retain(&context, 0) != 0 || set(context) != 0)
            return -1;
        is_ready = 1;
    }
    void *copy = dlsym(driver, name);
    if (strcmp(name, "cuMemcpyHtoD_v2") == 0)
        return ((int (*)(uint64_t, const void *, size_t))(uintptr_t)copy)(addr, host, TEXT_BYTES);
    return ((int (*)(void *, uint64_t, size_t))(uintptr_t)copy)(host, addr, TEXT_BYTES);
}

static void text_write(berm_addr_t addr, const char *text) {
    char bytes[TEXT_BYTES] = "";
    (void)snprintf(bytes, sizeof bytes, "%s", text);
    if (driver_copy("cuMemcpyHtoD_v2", bytes, addr) != 0)
        exit(1);
    printf("%s writes \"%s\"\n", who, bytes);
    (void)fflush(stdout);
}

static void text_read(berm_addr_t addr, const char *expected) {
    char bytes[TEXT_BYTES] = "";
    if (driver_copy("cuMemcpyDtoH_v2", bytes, addr) != 0)
        exit(1);
    if (strncmp(bytes, expected, sizeof bytes) != 0) {
        (void)fprintf(stderr,
                      "%s reads \"%.*s\" and not \"%s\": memory of the simulated device has "
                      "contents only with SIMCUDA_BACKED=1 in the environment\n",
                      who, TEXT_BYTES - 1, bytes, expected);
        exit(1);
    }
    printf("%s reads  \"%.*s\"\n", who, TEXT_BYTES - 1, bytes);
    (void)fflush(stdout);
}

static void figures_print(const char *when) {
    berm_stats_t stats = BERM_STATS_INIT;
    MUST(berm_stats_read(0, &stats));
    printf("%s: %s: reserved %" PRIu64 " MiB, exported %" PRIu64 " MiB, imported %" PRIu64 " MiB\n",
           who, when, stats.reserved_bytes.current >> 20, stats.exported_bytes >> 20,
           stats.imported_bytes >> 20);
    (void)fflush(stdout);
}

static void importer(void) {
    berm_addr_t addr;
    uint64_t size_bytes;
    who = "B";
    MUST(berm_share_receive(SOCKET_FD, BERM_DEVICE_ANY, &addr, &size_bytes));
    text_read(addr, "from A");
    text_write(addr, "from B");
    figures_print("imported");
    if (write(SOCKET_FD, "", 1) != 1)
        exit(1);
    for (;;)
        (void)pause(); // until it is killed
}

static pid_t importer_start(char *program, int socket_fd) {
    extern char **environ;
    pid_t process = -1;
    posix_spawn_file_actions_t actions;
    char *arguments[] = {program, (char *)(uintptr_t) "importer", NULL};
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, socket_fd, SOCKET_FD);
    if (posix_spawn(&process, "/proc/self/exe", &actions, NULL, arguments, environ) != 0)
        exit(1);
    (void)posix_spawn_file_actions_destroy(&actions);
    return process;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "importer") == 0)
        importer();
    int sockets[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return 1;
    pid_t process = importer_start(argv[0], sockets[1]); // a process with CUDA must not just fork
    (void)close(sockets[1]);

    const berm_pool_id_t id = {0, 1};
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    berm_addr_t block, more;
    options.traits = BERM_POOL_EXPORTABLE;
    MUST(berm_pool_create(0, id, &options));
    MUST(berm_alloc_from(id, 8 << 20, 1, 0, NULL, &block));
    text_write(block, "from A");
    MUST(berm_share_send(sockets[0], block));
    if (read(sockets[0], &byte, 1) != 1) // B has said why
        return fprintf(stderr, "A: the other process is gone\n"), 1;
    text_read(block, "from B");
    figures_print("exported");

    (void)kill(process, SIGKILL);
    (void)waitpid(process, NULL, 0);
    printf("B is killed\n");
    MUST(berm_alloc(64 << 20, 0, NULL, &more));
    text_write(block, "from A alone");
    text_read(block, "from A alone");
    MUST(berm_free(block, 0, NULL));
    MUST(berm_free(more, 0, NULL));
    MUST(berm_trim(0, 0, NULL));
    figures_print("freed");
    return berm_shutdown(NULL) == BERM_OK ? 0 : 1;
}
