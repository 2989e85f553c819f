// SPDX-License-Identifier: Apache-2.0
// Files behind memory (backing.h): contents in backed mode, and passing memory to other processes.
//
// A file is an unlinked memfd of fixed, sealed size: pages are taken when written and go with the
// last descriptor or mapping, whichever process has it, also one that was killed. In backed mode
// the region of addresses is one inaccessible mapping, over which memory is mapped.
//
// Bounds: host memory in proportion to what was written; one descriptor for each exportable handle.
// Locks: the state's. May fail: no address space, descriptors, or mappings of the kernel's.
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Half of what a process has, which is what an allocator may plan with, and a little more; between
// where sanitizers and where programs lie.
#define REGION_HINT        UINT64_C(0x100000000000)
#define REGION_BYTES       (UINT64_C(68) << 40)
#define REGION_BYTES_LEAST (UINT64_C(1) << 30)
#define PROCESS_FILE_BYTES (UINT64_C(1) << 46)

static const char ticket_magic[8] = "simcuda";

// --- identity ------------------------------------------------------------------------------------

uint64_t sim_process_identity(void) {
    static uint64_t identity;
    static pid_t owner;
    if (owner == getpid())
        return identity;
    owner = getpid();
    if (getrandom(&identity, sizeof(identity), GRND_NONBLOCK) != (ssize_t)sizeof(identity)) {
        struct timespec now = {0, 0};
        (void)clock_gettime(CLOCK_REALTIME, &now);
        identity = (uint64_t)owner << 32 ^ (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
    }
    return identity;
}

// --- files ---------------------------------------------------------------------------------------

// A file for `ticket`, sealed; -1: cannot be had.
static int file_create(const sim_ticket_t *ticket) {
    char page[SIM_TICKET_BYTES] = {0};
    int fd = memfd_create("simcuda-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    memcpy(page, ticket, sizeof(*ticket));
    off_t at = (off_t)ticket->contents_bytes;
    if (ftruncate(fd, at + SIM_TICKET_BYTES) == 0 &&
        pwrite(fd, page, sizeof(page), at) == (ssize_t)sizeof(page) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static sim_ticket_t ticket_make(uint64_t id, uint64_t memory_bytes, uint64_t contents_bytes) {
    sim_ticket_t ticket = {.identity = {sim_process_identity(), id},
                           .memory_bytes = memory_bytes,
                           .contents_bytes = sim.config.is_backed ? contents_bytes : 0,
                           .granule_bytes = sim.config.granule_bytes};
    memcpy(ticket.magic, ticket_magic, sizeof(ticket.magic));
    return ticket;
}

int sim_process_file(void) {
    if (sim.process_fd < 0) {
        sim_ticket_t ticket = ticket_make(0, 0, PROCESS_FILE_BYTES);
        sim.process_fd = file_create(&ticket);
    }
    return sim.process_fd;
}

bool sim_memory_file(sim_memory_t *memory) {
    if (memory->has_file)
        return true;
    sim_ticket_t ticket = ticket_make(memory->identity[1], memory->size_bytes, memory->size_bytes);
    ticket.device = memory->device;
    ticket.is_rdma_capable = memory->prop.alloc_flags.gpu_direct_rdma_capable;
    int fd = file_create(&ticket);
    if (fd < 0)
        return false;
    memory->has_file = true;
    memory->fd = fd;
    memory->file_offset = 0;
    return true;
}

bool sim_ticket_read(int fd, sim_ticket_t *ticket) {
    struct stat about;
    int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &about) != 0 ||
        about.st_size < SIM_TICKET_BYTES ||
        pread(fd, ticket, sizeof(*ticket), about.st_size - SIM_TICKET_BYTES) !=
            (ssize_t)sizeof(*ticket))
        return false;
    uint64_t contents = (uint64_t)about.st_size - SIM_TICKET_BYTES;
    return memcmp(ticket->magic, ticket_magic, sizeof(ticket->magic)) == 0 &&
           ticket->contents_bytes == contents && (contents != 0) == (sim.config.is_backed != 0) &&
           ticket->granule_bytes == sim.config.granule_bytes &&
           sim_is_granular(ticket->memory_bytes) &&
           (ticket->identity[1] == 0 || contents == 0 || contents == ticket->memory_bytes);
}

// --- the region ----------------------------------------------------------------------------------

static bool region_take(void) {
    uint64_t granule = sim.config.granule_bytes;
    for (uint64_t bytes = REGION_BYTES; bytes >= REGION_BYTES_LEAST; bytes /= 2) {
        void *at = mmap((void *)(uintptr_t)REGION_HINT, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            continue;
        sim.region = (uint64_t)(uintptr_t)at;
        sim.region_bytes = bytes;
        sim.addresses.base = sim.addresses.next = berm__align_up(sim.region, granule);
        sim.addresses.end = berm__align_down(sim.region + bytes, granule);
        return true;
    }
    return false;
}

bool sim_backing_start(void) {
    if (!sim.config.is_backed)
        return true;
    if (!region_take())
        return false;
    uint64_t first = sim.config.granule_bytes; // 0 is no offset
    sim.file_space = (sim_space_t){.base = first, .next = first, .end = PROCESS_FILE_BYTES};
    return sim_process_file() >= 0;
}

void sim_backing_stop(void) {
    if (sim.region != 0)
        (void)munmap((void *)(uintptr_t)sim.region, sim.region_bytes);
    sim.region = 0;
    sim_space_clear(&sim.file_space);
    if (sim.process_fd >= 0)
        (void)close(sim.process_fd);
    sim.process_fd = -1;
}

// --- a memory's place ----------------------------------------------------------------------------

bool sim_backing_take(sim_memory_t *memory) {
    if (!sim.config.is_backed)
        return true;
    if ((memory->prop.requested_handle_types & BERM_CU_MEM_HANDLE_POSIX_FD) != 0)
        return sim_memory_file(memory);
    memory->file_offset =
        sim_space_take(&sim.file_space, memory->size_bytes, sim.config.granule_bytes, false);
    memory->fd = memory->file_offset != 0 ? sim.process_fd : -1;
    return memory->file_offset != 0;
}

void sim_backing_give(sim_memory_t *memory) {
    if (memory->has_file) {
        (void)close(memory->fd);
    } else if (memory->fd >= 0) { // new memory reads as zeros
        (void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)memory->file_offset, (off_t)memory->size_bytes);
        sim_space_give(&sim.file_space, memory->file_offset, memory->size_bytes);
    }
    memory->has_file = false;
    memory->fd = -1;
}

// --- addresses -----------------------------------------------------------------------------------

static int access_protection(unsigned access) {
    return ((access & BERM_CU_MEM_ACCESS_READ) != 0 ? PROT_READ : 0) |
           ((access & ~(unsigned)BERM_CU_MEM_ACCESS_READ) != 0 ? PROT_WRITE : 0);
}

bool sim_backing_map(uint64_t addr, uint64_t bytes, const sim_memory_t *memory,
                     uint64_t memory_offset, unsigned access) {
    if (!sim.config.is_backed)
        return true;
    void *at = (void *)(uintptr_t)addr;
    if (mmap(at, bytes, access_protection(access), MAP_SHARED | MAP_FIXED, memory->fd,
             (off_t)(memory->file_offset + memory_offset)) != at)
        return false;
    (void)madvise(at, bytes, MADV_DONTFORK); // a forked child has no device
    return true;
}

bool sim_backing_protect(uint64_t addr, uint64_t bytes, unsigned access) {
    return !sim.config.is_backed ||
           mprotect((void *)(uintptr_t)addr, bytes, access_protection(access)) == 0;
}

void sim_backing_unmap(uint64_t addr, uint64_t bytes) {
    if (!sim.config.is_backed)
        return;
    void *at = (void *)(uintptr_t)addr;
    if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        (void)mprotect(at, bytes,
                       PROT_NONE); // the kernel has no mapping left: out of reach at least
}
