// SPDX-License-Identifier: Apache-2.0
// Memory that goes to other processes: what torch.multiprocessing sends is a string.
//
//   "bermfd\0" SOCKET \0 ADDRESS   a block whose handles can be exported: all of them, by the
//   option
//       shareable, which install() turns on. The importer asks for it on the exporter's socket, and
//       gets descriptors with the answer (SCM_RIGHTS), which needs no right to trace the exporter,
//       as pidfd_getfd does;
//   "bermipc" and 64 bytes         plain memory: the driver's legacy handle.
//
// The socket is in the abstract name space of the kernel: it has no file, goes with the process,
// and a network name space of its own (most containers) has its own names. Its name holds 128
// random bits, and only processes of the same user are answered. One thread answers, from the first
// handle on; a process that forked has it not, and shares nothing.
//
// LOCK: ipc_lock, over what is open; libberm is called under it when a handle is opened, so that
// two threads do not open one twice.
#include "adapters/torch/subclass/allocator.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cinttypes>
#include <cstring>
#include <thread>
#include <unordered_map>

namespace berm_torch {

namespace {

constexpr char fd_kind[] = "bermfd";
constexpr char legacy_kind[] = "bermipc";
constexpr int request_seconds = 10; // the longest an exporter or importer is waited for

std::mutex ipc_lock;
std::unordered_map<std::string, std::weak_ptr<void>> opened; // by handle

// The address of a socket by its name, and the length of it.
socklen_t address_make(const std::string &name, sockaddr_un *address) {
    *address = {};
    address->sun_family = AF_UNIX;
    TORCH_CHECK(name.size() + 1 < sizeof address->sun_path, "berm: a handle of no socket's name");
    memcpy(address->sun_path + 1, name.data(), name.size()); // the first byte is 0: abstract
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

void time_limit(int socket) {
    const timeval limit{request_seconds, 0};
    (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool is_same_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void answer(int connection) {
    uint64_t addr = 0;
    time_limit(connection);
    if (is_same_user(connection) &&
        recv(connection, &addr, sizeof addr, MSG_WAITALL) == ssize_t{sizeof addr} &&
        berm_share_send(connection, addr) != BERM_OK)
        fprintf(stderr, "berm: sending a block to another process: %s\n", berm_error_message());
    (void)close(connection);
}

void serve(int socket) {
    for (;;) {
        const int connection = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection >= 0)
            answer(connection);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

// The name of this process's socket; made by the first call.
const std::string &socket_name() {
    static const std::string made = [] {
        uint64_t random[2] = {};
        TORCH_CHECK(getrandom(random, sizeof random, 0) == ssize_t{sizeof random},
                    "berm: no random bits for a socket's name");
        char name[64];
        (void)snprintf(name, sizeof name, "berm-%d-%016" PRIx64 "%016" PRIx64, getpid(), random[0],
                       random[1]);
        const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address;
        const socklen_t size = address_make(name, &address);
        TORCH_CHECK(socket >= 0 &&
                        bind(socket, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
                        listen(socket, 64) == 0,
                    "berm: a socket for other processes: ", strerror(errno));
        std::thread(serve, socket).detach();
        return std::string(name);
    }();
    return made;
}

// Asks the exporter for a block.
berm_addr_t fd_open(const std::string &name, uint64_t block) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TORCH_CHECK(socket >= 0, "berm: a socket: ", strerror(errno));
    sockaddr_un address;
    const socklen_t size = address_make(name, &address);
    time_limit(socket);
    berm_addr_t addr = 0;
    berm_status_t status = BERM_ERROR_DISCONNECTED;
    const bool is_asked = connect(socket, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
                          is_same_user(socket) &&
                          send(socket, &block, sizeof block, MSG_NOSIGNAL) == ssize_t{sizeof block};
    const int error = errno;
    if (is_asked)
        status = berm_share_receive(socket, c10::cuda::current_device(), &addr, nullptr);
    (void)close(socket);
    TORCH_CHECK(is_asked,
                "berm: the process that shared this memory does not answer: ", strerror(error));
    check("berm_share_receive", status);
    return addr;
}

berm_addr_t legacy_open(const std::string &handle) {
    berm_addr_t addr = 0;
    TORCH_CHECK(handle.size() == BERM_IPC_HANDLE_BYTES, "berm: a handle of ", handle.size(),
                " bytes is none of berm's");
    check("berm_ipc_open", berm_ipc_open(reinterpret_cast<const unsigned char *>(handle.data()),
                                         c10::cuda::current_device(), 0, &addr));
    return addr;
}

std::shared_ptr<void> handle_open(const std::string &handle) {
    const std::string fd_prefix(fd_kind, sizeof fd_kind);
    const std::string legacy_prefix(legacy_kind, sizeof legacy_kind - 1);
    if (handle.compare(0, fd_prefix.size(), fd_prefix) == 0) {
        const size_t end = handle.find('\0', fd_prefix.size());
        uint64_t block = 0;
        TORCH_CHECK(end != std::string::npos && handle.size() - end - 1 == sizeof block,
                    "berm: a handle that was cut");
        memcpy(&block, handle.data() + end + 1, sizeof block);
        const berm_addr_t addr =
            fd_open(handle.substr(fd_prefix.size(), end - fd_prefix.size()), block);
        return {pointer_of(addr), [](void *imported) {
                    (void)berm_import_close(address_of(imported), BERM_STREAM_NONE);
                }};
    }
    TORCH_CHECK(handle.compare(0, legacy_prefix.size(), legacy_prefix) == 0,
                "berm: a handle of another allocator: every process that shares memory must use "
                "berm, or none");
    const berm_addr_t addr = legacy_open(handle.substr(legacy_prefix.size()));
    return {pointer_of(addr), [](void *imported) { (void)berm_ipc_close(address_of(imported)); }};
}

} // namespace

caching::ShareableHandle Allocator::shareIpcHandle(void *pointer) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    check("berm_whatis", berm_whatis(address_of(pointer), &whatis));
    TORCH_CHECK(whatis.kind == BERM_ADDRESS_LIVE, "berm: ", pointer, " is in no live block");
    if (berm_share_check(whatis.block) == BERM_OK) {
        std::string handle(fd_kind, sizeof fd_kind);
        handle += socket_name();
        handle += '\0';
        handle.append(reinterpret_cast<const char *>(&whatis.block), sizeof whatis.block);
        return {static_cast<ptrdiff_t>(whatis.offset_bytes), std::move(handle)};
    }
    unsigned char legacy[BERM_IPC_HANDLE_BYTES];
    uint64_t offset = 0;
    const berm_status_t status = berm_ipc_export(whatis.block, legacy, &offset);
    TORCH_CHECK(
        status != BERM_ERROR_NOT_EXPORTABLE,
        "berm: this tensor's memory cannot be sent to another process: it shares pages with other "
        "tensors, and the option shareable is off. Turn it on, or allocate the tensor in a "
        "torch.cuda.MemPool(no_split=True)");
    check("berm_ipc_export", status);
    return {static_cast<ptrdiff_t>(offset + whatis.offset_bytes),
            std::string(legacy_kind) +
                std::string(reinterpret_cast<const char *>(legacy), sizeof legacy)};
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
    const std::lock_guard<std::mutex> guard(ipc_lock);
    std::shared_ptr<void> memory = opened[handle].lock();
    if (memory == nullptr) {
        memory = handle_open(handle);
        opened[handle] = memory;
    }
    return memory;
}

} // namespace berm_torch
