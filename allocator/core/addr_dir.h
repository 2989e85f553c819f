// SPDX-License-Identifier: Apache-2.0
// From a device address to the reservation that holds it: two dependent loads in the usual case.
//
//   heads[addr >> 32] -> entry (highest in that 4 GiB unit) -> next lower entry -> ...
//
// All entries form one list by falling address; heads[u] is the highest entry that touches unit u.
// A find walks down to the first entry that starts at or below the address: the only one that can
// hold it. Reservations that share a unit cost one more load each.
//
// LOCKS  Insert and remove take the directory's own lock (rank SEGMENT), since devices share it.
// Finds take none and may run beside them: a find of an address whose entry is inserted before and
// removed after is always right. LIFETIME  The caller owns the entries. A removed entry may still
// be read by a find that began before: it must not be freed until no find can be running. It may be
// inserted again: each insert counts, and a find that saw the count change looks anew.
#ifndef BERM_CORE_ADDR_DIR_H
#define BERM_CORE_ADDR_DIR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/defs.h"
#include "host/lock.h"

enum {
    BERM_ADDR_DIR_UNIT_BITS = 32,
    BERM_ADDR_DIR_BITS = 57, // addresses below 2^57
};

typedef struct berm_addr_entry berm_addr_entry_t;

struct berm_addr_entry {
    berm_addr_t base;                  // written by insert, atomically
    uint64_t size_bytes;               // the same
    void *owner;                       // set by the caller before the first insert, constant after
    _Atomic(berm_addr_entry_t *) next; // the next lower entry
};

typedef struct berm_addr_dir {
    _Atomic(berm_addr_entry_t *) *heads; // 2^25 words of zero pages, committed as they are written
    atomic_uint_fast64_t inserts;        // begun so far
    berm_mutex_t mutex;                  // of the writers
    berm_addr_entry_t *top;              // the highest entry of all; under the mutex
} berm_addr_dir_t;

// False when no host memory can be reserved (256 MiB of addresses; a page per 2 TiB used).
BERM_NODISCARD bool berm__addr_dir_init(berm_addr_dir_t *dir);

// No find may run any more. Entries stay the caller's.
void berm__addr_dir_destroy(berm_addr_dir_t *dir);

// Adds [base, base + size_bytes) with entry->owner. False, and nothing changed, if the range is
// empty, goes past 2^57 or overlaps one that is there. Needs no memory.
BERM_NODISCARD bool berm__addr_dir_insert(berm_addr_dir_t *dir, berm_addr_t base,
                                          uint64_t size_bytes, berm_addr_entry_t *entry);

// Takes out an entry that is in; aborts if it is not.
void berm__addr_dir_remove(berm_addr_dir_t *dir, berm_addr_entry_t *entry);

// The owner of the range that holds addr, or NULL. Lock-free.
static inline void *berm__addr_dir_find(const berm_addr_dir_t *dir, berm_addr_t addr) {
    if (BERM_UNLIKELY(addr >> BERM_ADDR_DIR_BITS != 0))
        return NULL;
    for (;;) {
        uint64_t inserts = atomic_load_explicit(&dir->inserts, memory_order_acquire);
        berm_addr_entry_t *entry = atomic_load_explicit(
            &dir->heads[addr >> BERM_ADDR_DIR_UNIT_BITS], memory_order_acquire);
        berm_addr_t base = 0;
        while (entry != NULL && (base = __atomic_load_n(&entry->base, __ATOMIC_ACQUIRE)) > addr)
            entry = atomic_load_explicit(&entry->next, memory_order_acquire);
        bool is_inside =
            entry != NULL && addr - base < __atomic_load_n(&entry->size_bytes, __ATOMIC_ACQUIRE);
        if (BERM_LIKELY(atomic_load_explicit(&dir->inserts, memory_order_relaxed) == inserts))
            return is_inside ? entry->owner : NULL;
    }
}

#endif
