// SPDX-License-Identifier: Apache-2.0
// Memory of one process in another: exported handles, legacy IPC, and processes that are killed.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

static void start_mode(int is_backed, int devices) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_backed = is_backed;
    config.devices = devices;
    start_with(&config);
}

static volatile unsigned char *at(berm_cu_deviceptr_t addr) {
    return (volatile unsigned char *)(uintptr_t)addr;
}

// --- processes -----------------------------------------------------------------------------------

// Another process, made before this one has a device; `socket` leads to it.
typedef struct peer {
    pid_t process;
    int socket;
} peer_t;

static peer_t peer_start(void (*body)(int socket, int argument), int argument) {
    int sockets[2];
    cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    pid_t process = fork();
    cr_assert(process >= 0);
    if (process == 0) {
        (void)close(sockets[0]);
        (void)alarm(60); // a failed assertion here ends nothing by itself
        body(sockets[1], argument);
        _exit(0);
    }
    (void)close(sockets[1]);
    return (peer_t){process, sockets[0]};
}

static void peer_end(peer_t *peer) {
    int status = -1;
    (void)close(peer->socket);
    cr_assert(waitpid(peer->process, &status, 0) == peer->process);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process: %x", status);
}

static void peer_kill(peer_t *peer) {
    int status = -1;
    cr_assert(kill(peer->process, SIGKILL) == 0);
    cr_assert(waitpid(peer->process, &status, 0) == peer->process);
    (void)close(peer->socket);
}

static void put(int socket, const void *data, size_t size) {
    cr_assert(send(socket, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void get(int socket, void *data, size_t size) {
    cr_assert(recv(socket, data, size, 0) == (ssize_t)size);
}

static void sync_put(int socket) {
    put(socket, "", 1);
}

static void sync_get(int socket) {
    char byte;
    get(socket, &byte, 1);
}

static void put_fd(int socket, int fd) {
    char byte = 0;
    struct iovec data = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    cr_assert(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

static int get_fd(int socket) {
    char byte;
    int fd = -1;
    struct iovec data = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    cr_assert(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    cr_assert(header != NULL && header->cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

// --- handles -------------------------------------------------------------------------------------

static berm_cu_mem_handle_t create_shared(uint64_t bytes, int device) {
    berm_cu_mem_handle_t handle = 0;
    berm_cu_mem_prop_t prop = device_prop;
    prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    prop.location.id = device;
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static int export_fd(berm_cu_mem_handle_t handle) {
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, handle, BERM_CU_MEM_HANDLE_POSIX_FD, 0));
    return fd;
}

static int import_fd(int fd, berm_cu_mem_handle_t *handle) {
    return cuMemImportFromShareableHandle(handle, (void *)(intptr_t)fd,
                                          BERM_CU_MEM_HANDLE_POSIX_FD);
}

static berm_cu_deviceptr_t map_handle(berm_cu_mem_handle_t handle, uint64_t bytes) {
    berm_cu_deviceptr_t addr = reserve(bytes);
    OK(cuMemMap(addr, bytes, 0, handle, 0));
    OK(cuMemSetAccess(addr, bytes, &read_write, 1));
    return addr;
}

static void check_ledger(uint64_t handles, uint64_t imports, uint64_t used_bytes) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.handles == handles && ledger.imports == imports, "%llu handles, %llu imports",
              (unsigned long long)ledger.handles, (unsigned long long)ledger.imports);
    cr_assert(ledger.used_bytes == used_bytes);
}

// Imports, checks what it is, and answers through it.
static void importer(int socket, int is_backed) {
    start_mode(is_backed, 1);
    int fd = get_fd(socket);
    berm_cu_mem_handle_t handle = 0, again = 0;
    berm_cu_mem_prop_t prop;
    OK(import_fd(fd, &handle));
    OK(import_fd(fd, &again));
    cr_assert(handle == again);
    OK(cuMemRelease(again));
    (void)close(fd);
    check_ledger(1, 1, MIB(4));
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    cr_assert(prop.requested_handle_types == BERM_CU_MEM_HANDLE_POSIX_FD && prop.location.id == 0);
    berm_cu_deviceptr_t addr = map_handle(handle, MIB(4));
    if (is_backed) {
        cr_assert(*at(addr + 100) == 42);
        OK(cuMemsetD8_v2(addr + 100, 43, 1));
    }
    OK(cuCtxSynchronize());
    OK(cuMemRelease(handle));
    check_ledger(1, 1, MIB(4)); // mapped still
    sync_put(socket);
    sync_get(socket);
    OK(cuMemUnmap(addr, MIB(4)));
    check_ledger(0, 0, 0);
    HAZARDS(0);
}

Test(share, a_handle_goes_to_another_process) {
    peer_t peer = peer_start(importer, 0);
    start_mode(0, 1);
    berm_cu_mem_handle_t handle = create_shared(MIB(4), 0);
    berm_cu_deviceptr_t addr = map_handle(handle, MIB(4));
    int fd = export_fd(handle);
    put_fd(peer.socket, fd);
    (void)close(fd);
    sync_get(peer.socket);
    OK(cuMemUnmap(addr, MIB(4)));
    OK(cuMemRelease(handle));
    check_ledger(0, 0, 0);
    sync_put(peer.socket); // the importer has it still
    peer_end(&peer);
}

Test(share, a_handle_with_contents_goes_to_another_process) {
    peer_t peer = peer_start(importer, 1);
    start_mode(1, 1);
    berm_cu_mem_handle_t handle = create_shared(MIB(4), 0);
    berm_cu_deviceptr_t addr = map_handle(handle, MIB(4));
    *at(addr + 100) = 42;
    int fd = export_fd(handle);
    put_fd(peer.socket, fd);
    (void)close(fd);
    sync_get(peer.socket);
    cr_assert(*at(addr + 100) == 43);
    sync_put(peer.socket);
    peer_end(&peer);
    check_ledger(1, 0, MIB(4));
}

static void exporter(int socket, int value) {
    start_mode(1, 1);
    berm_cu_mem_handle_t handle = create_shared(MIB(2), 0);
    berm_cu_deviceptr_t addr = map_handle(handle, MIB(2));
    *at(addr) = (unsigned char)value;
    put_fd(socket, export_fd(handle));
    sync_get(socket); // until it is killed, or told to end
}

Test(share, the_importer_goes_on_when_the_exporter_is_killed) {
    peer_t peer = peer_start(exporter, 5);
    start_mode(1, 1);
    berm_cu_mem_handle_t handle = 0;
    int fd = get_fd(peer.socket);
    OK(import_fd(fd, &handle));
    peer_kill(&peer);
    berm_cu_deviceptr_t addr = map_handle(handle, MIB(2));
    cr_assert(*at(addr) == 5);
    *at(addr) = 6;
    check_ledger(1, 1, MIB(2));
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemRelease(handle));
    check_ledger(0, 0, 0);
    OK(import_fd(fd, &handle)); // the descriptor alone keeps it
    addr = map_handle(handle, MIB(2));
    cr_assert(*at(addr) == 6);
    (void)close(fd);
}

// Takes whatever it is sent, and writes its number into it, for ever.
static void rover(int socket, int number) {
    start_mode(1, 8);
    for (;;) {
        berm_cu_mem_handle_t handle = 0;
        int fd = get_fd(socket);
        OK(import_fd(fd, &handle));
        (void)close(fd);
        berm_cu_deviceptr_t addr = map_handle(handle, MIB(2));
        *at(addr + (berm_cu_deviceptr_t)number) = (unsigned char)(number + 1);
        OK(cuMemUnmap(addr, MIB(2)));
        OK(cuMemRelease(handle));
        sync_put(socket);
    }
}

enum {
    ROVERS = 6,
    ROVED = 8
};

typedef struct roving {
    peer_t peers[ROVERS];
    int pending[ROVERS]; // answers to come
    int is_alive[ROVERS], alive;
    berm_cu_mem_handle_t handles[ROVED];
    berm_cu_deviceptr_t addrs[ROVED];
} roving_t;

static void rover_drain(roving_t *r, size_t i) {
    for (; r->pending[i] > 0; r->pending[i]--)
        sync_get(r->peers[i].socket);
}

// Sends a handle, drawn by chance, to the rover, which may be killed over it.
static void rover_send(roving_t *r, size_t i, berm_rng_t *rng) {
    if (r->pending[i] > 3)
        rover_drain(r, i);
    int fd = export_fd(r->handles[berm__rng_below(rng, ROVED)]);
    put_fd(r->peers[i].socket, fd);
    (void)close(fd);
    r->pending[i]++;
    if (berm__rng_below(rng, 100) == 0) {
        peer_kill(&r->peers[i]);
        r->is_alive[i] = 0;
        r->alive--;
    }
}

// Every byte is as it was or what its rover writes; the number of those written.
static int rovers_check(const roving_t *r) {
    int seen = 0;
    for (int h = 0; h < ROVED; h++) {
        for (int i = 0; i < ROVERS; i++) {
            int value = *at(r->addrs[h] + (berm_cu_deviceptr_t)i);
            cr_assert(value == 0 || value == i + 1);
            seen += value != 0;
        }
        OK(cuMemUnmap(r->addrs[h], MIB(2)));
        OK(cuMemRelease(r->handles[h]));
    }
    return seen;
}

Test(share, processes_are_killed_at_random) {
    roving_t r = {.alive = ROVERS};
    berm_rng_t rng;
    simcuda_ledger_t ledger;
    berm__rng_seed(&rng, 11);
    for (int i = 0; i < ROVERS; i++) {
        r.peers[i] = peer_start(rover, i);
        r.is_alive[i] = 1;
    }
    start_mode(1, 8);
    for (int i = 0; i < ROVED; i++) {
        r.handles[i] = create_shared(MIB(2), i);
        r.addrs[i] = map_handle(r.handles[i], MIB(2));
    }
    int before = open_files();
    for (int step = 0; step < 600 && r.alive > 0; step++) {
        size_t i = berm__rng_below(&rng, ROVERS);
        if (r.is_alive[i])
            rover_send(&r, i, &rng);
    }
    cr_assert(open_files() == before - (ROVERS - r.alive), "no descriptor is left");
    for (size_t i = 0; i < ROVERS; i++) {
        if (r.is_alive[i]) {
            rover_drain(&r, i);
            peer_kill(&r.peers[i]);
        }
    }
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.handles == ROVED && ledger.used_bytes == ROVED * MIB(2));
    cr_assert(rovers_check(&r) > ROVED);
    HAZARDS(0);
}

Test(share, an_import_needs_room_and_a_device) {
    peer_t peer = peer_start(exporter, 1);
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_backed = 1;
    config.memory_bytes = MIB(2);
    start_with(&config);
    int fd = get_fd(peer.socket);
    int before = open_files();
    berm_cu_mem_handle_t handle = 0, own = create(MIB(2));
    FAILS(import_fd(fd, &handle), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemRelease(own));
    OK(import_fd(fd, &handle));
    OK(cuMemRelease(handle));
    cr_assert(open_files() == before);
    sync_put(peer.socket);
    peer_end(&peer);
    start_mode(0, 1);
    FAILS(import_fd(fd, &handle), BERM_CU_INVALID_VALUE); // contents, and here are none
    check_ledger(0, 0, 0);
}

// What a stranger may send instead.
Test(share, other_files_are_refused) {
    start_mode(1, 1);
    berm_cu_mem_handle_t handle = create_shared(MIB(2), 0), imported = 0;
    int good = export_fd(handle), bad[4];
    char page[4096];
    cr_assert(pread(good, page, sizeof(page), (off_t)MIB(2)) == (ssize_t)sizeof(page));
    bad[0] = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING); // could shrink under us
    cr_assert(ftruncate(bad[0], (off_t)MIB(2)) == 0);
    cr_assert(pwrite(bad[0], page, sizeof(page), (off_t)MIB(2)) == (ssize_t)sizeof(page));
    bad[1] = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING); // less than it says
    cr_assert(write(bad[1], page, sizeof(page)) == (ssize_t)sizeof(page));
    cr_assert(fcntl(bad[1], F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    bad[2] = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING); // empty
    cr_assert(fcntl(bad[2], F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    bad[3] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 4; i++)
        FAILS(import_fd(bad[i], &imported), BERM_CU_INVALID_VALUE);
    OK(import_fd(good, &imported));
    cr_assert(imported == handle);
}

Test(share, only_what_was_made_for_it_has_a_file) {
    start_mode(1, 1);
    int before = open_files();
    for (int i = 0; i < 200; i++)
        (void)create(MIB(2));
    cr_assert(open_files() == before);
    (void)create_shared(MIB(2), 0);
    cr_assert(open_files() == before + 1);
}

// --- legacy IPC ----------------------------------------------------------------------------------

typedef struct offer {
    berm_cu_ipc_mem_handle_t small, large;
    berm_cu_ipc_event_handle_t event;
} offer_t;

static void ipc_exporter(int socket, int is_backed) {
    start_mode(is_backed, 1);
    offer_t offer;
    berm_cu_deviceptr_t first, small, large;
    berm_cu_event_t event;
    OK(cuMemAlloc_v2(&first, 700)); // so that the next does not start its granule
    OK(cuMemAlloc_v2(&small, 1000));
    OK(cuMemAlloc_v2(&large, MIB(3)));
    OK(cuEventCreate(&event, BERM_CU_EVENT_DISABLE_TIMING | BERM_CU_EVENT_INTERPROCESS));
    if (is_backed) {
        *at(small + 999) = 17;
        *at(large + MIB(3) - 1) = 18;
    }
    OK(cuIpcGetMemHandle(&offer.small, small));
    OK(cuIpcGetMemHandle(&offer.large, large));
    OK(cuIpcGetEventHandle(&offer.event, event));
    put(socket, &offer, sizeof(offer));
    sync_get(socket);
    if (is_backed)
        cr_assert(*at(small) == 19);
}

static int open_ipc(const berm_cu_ipc_mem_handle_t *handle, berm_cu_deviceptr_t *addr) {
    return cuIpcOpenMemHandle_v2(addr, *handle, BERM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

Test(ipc, a_block_with_contents) {
    peer_t peer = peer_start(ipc_exporter, 1);
    start_mode(1, 1);
    offer_t offer;
    berm_cu_deviceptr_t small = 0, large = 0, again = 0, base = 0;
    size_t bytes = 0;
    get(peer.socket, &offer, sizeof(offer));
    OK(open_ipc(&offer.small, &small));
    OK(open_ipc(&offer.large, &large));
    OK(open_ipc(&offer.small, &again));
    cr_assert(again == small);
    OK(cuMemGetAddressRange_v2(&base, &bytes, small + 10));
    cr_assert(base == small && bytes == 1000);
    cr_assert(*at(small + 999) == 17 && *at(large + MIB(3) - 1) == 18);
    OK(cuMemsetD8Async(small, 19, 1, NULL));
    OK(cuCtxSynchronize());
    sync_put(peer.socket);
    peer_end(&peer);
    OK(open_ipc(&offer.large, &again)); // open already
    cr_assert(*at(small) == 19, "what is open outlives its process");
    FAILS(cuMemFree_v2(small), BERM_CU_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(small));
    OK(launch(NULL, 1000, small, 8, 1));
    OK(cuCtxSynchronize()); // it was opened twice
    OK(cuIpcCloseMemHandle(small));
    FAILS(cuIpcCloseMemHandle(small), BERM_CU_INVALID_VALUE);
    FAILS(open_ipc(&offer.small, &again), BERM_CU_INVALID_VALUE); // its process is gone
    HAZARDS(0);
    OK(launch(NULL, 1000, large, 8, 1));
    OK(cuIpcCloseMemHandle(large));
    OK(cuIpcCloseMemHandle(large));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK);
    check_ledger(0, 0, 0);
}

Test(ipc, metadata_and_events) {
    peer_t peer = peer_start(ipc_exporter, 0);
    start_mode(0, 1);
    offer_t offer;
    berm_cu_deviceptr_t addr = 0;
    berm_cu_event_t event = NULL;
    get(peer.socket, &offer, sizeof(offer));
    OK(open_ipc(&offer.large, &addr));
    OK(launch(NULL, 1000, addr, MIB(3), 1));
    HAZARDS(0);
    check_ledger(0, 1, MIB(4));
    OK(cuIpcOpenEventHandle(&event, offer.event));
    OK(cuEventQuery(event));
    OK(cuStreamWaitEvent(stream_new(1), event, 0));
    OK(cuEventRecord(event, NULL));
    OK(cuEventSynchronize(event));
    sync_put(peer.socket);
    peer_end(&peer);
    FAILS(cuIpcOpenEventHandle(&event, offer.event), BERM_CU_INVALID_VALUE);
    OK(cuDevicePrimaryCtxReset_v2(0)); // closes what its context has open
    check_ledger(0, 0, 0);
}

Test(ipc, misuse) {
    start_mode(0, 1);
    berm_cu_ipc_mem_handle_t handle = {{0}};
    berm_cu_ipc_event_handle_t event_handle = {{0}};
    berm_cu_deviceptr_t addr = reserve(MIB(2)), plain, pooled, opened;
    berm_cu_event_t event;
    (void)map_at(addr, MIB(2));
    OK(cuMemAlloc_v2(&plain, 1000));
    OK(cuMemAllocAsync(&pooled, 1000, NULL));
    FAILS(cuIpcGetMemHandle(&handle, addr), BERM_CU_INVALID_VALUE);   // of the VMM calls
    FAILS(cuIpcGetMemHandle(&handle, pooled), BERM_CU_INVALID_VALUE); // of a pool
    FAILS(cuIpcGetMemHandle(&handle, plain + 8), BERM_CU_INVALID_VALUE);
    FAILS(cuIpcGetMemHandle(NULL, plain), BERM_CU_INVALID_VALUE);
    FAILS(open_ipc(&handle, &opened), BERM_CU_INVALID_VALUE); // zeros
    OK(cuIpcGetMemHandle(&handle, plain));
    FAILS(open_ipc(&handle, &opened), BERM_CU_INVALID_CONTEXT); // not in its own process
    FAILS(cuIpcOpenMemHandle_v2(&opened, handle, 0), BERM_CU_INVALID_VALUE);
    handle.reserved[20] ^= 1; // another process's, it says
    FAILS(open_ipc(&handle, &opened), BERM_CU_INVALID_VALUE);
    FAILS(cuIpcCloseMemHandle(plain), BERM_CU_INVALID_VALUE);
    FAILS(cuIpcGetEventHandle(&event_handle, event_new()), BERM_CU_INVALID_HANDLE);
    OK(cuEventCreate(&event, BERM_CU_EVENT_DISABLE_TIMING | BERM_CU_EVENT_INTERPROCESS));
    OK(cuIpcGetEventHandle(&event_handle, event));
    FAILS(cuIpcOpenEventHandle(&event, event_handle), BERM_CU_INVALID_CONTEXT);
    int capable = 1;
    OK(cuPointerGetAttribute(&capable, BERM_CU_POINTER_IS_LEGACY_IPC_CAPABLE, pooled));
    cr_assert(capable == 0);
    HAZARDS(0);
}
