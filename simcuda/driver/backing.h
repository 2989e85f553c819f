// SPDX-License-Identifier: Apache-2.0
// Files behind memory: contents in backed mode, and what passes memory to other processes in both.
//
//   file = [contents, `contents_bytes`][ticket, SIM_TICKET_BYTES]
//
// Contents are there in backed mode only. An exportable handle has a file of its own; everything
// else shares the process's file, at an offset.
#ifndef SIM_BACKING_H
#define SIM_BACKING_H

#include "sim.h"

enum {
    SIM_TICKET_BYTES = 4096,
};

// What a file says about the memory in it.
typedef struct sim_ticket {
    char magic[8];
    uint64_t identity[2];    // of the memory; of the process where the second is 0
    uint64_t contents_bytes; // 0: metadata only
    uint64_t memory_bytes;
    uint64_t granule_bytes;
    int32_t device;
    int32_t is_rdma_capable;
} sim_ticket_t;

// The region of addresses and the process's file, where config.is_backed. False: cannot be had.
bool sim_backing_start(void);
void sim_backing_stop(void);

// Gives new memory a place for its contents; true with nothing done in metadata mode.
bool sim_backing_take(sim_memory_t *memory);
void sim_backing_give(sim_memory_t *memory);

// Puts memory at addresses, changes who may touch it (BERM_CU_MEM_ACCESS_*), takes it away. No-ops
// in metadata mode. Sizes are whole pages.
bool sim_backing_map(uint64_t addr, uint64_t bytes, const sim_memory_t *memory,
                     uint64_t memory_offset, unsigned access);
bool sim_backing_protect(uint64_t addr, uint64_t bytes, unsigned access);
void sim_backing_unmap(uint64_t addr, uint64_t bytes);

// A number for the process, the same in no two.
uint64_t sim_process_identity(void);
// The process's file, made when first asked for; -1: cannot be had.
int sim_process_file(void);
// Makes sure that the memory has a file of its own; false: cannot be had.
bool sim_memory_file(sim_memory_t *memory);
// Reads and checks what a descriptor is; false: not one of ours, or one that could shrink.
bool sim_ticket_read(int fd, sim_ticket_t *ticket);

#endif
