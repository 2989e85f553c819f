// SPDX-License-Identifier: Apache-2.0
// Writers of the address directory; the find is inline in the header.
//
// D1  entries do not overlap; `top` and `next` list them all by falling base
// D2  heads[u] is the highest entry that touches unit u, NULL if none does
//
// Insert links the new entry to the one below before anything points at it, remove leaves its link
// alone: a find on its way down always reaches every entry that was in throughout, unless an entry
// on the way is inserted anew, which the count of inserts tells.
// Cost: the list of entries (a few per device) plus one store per 4 GiB of the entry.
//
// Locks: writers take the directory's, of rank SEGMENT. Only init can fail for lack of memory.
#include "core/addr_dir.h"

#include "base/insist.h"
#include "host/mem.h"

#define HEAD_COUNT ((uint64_t)1 << (BERM_ADDR_DIR_BITS - BERM_ADDR_DIR_UNIT_BITS))
#define HEADS_SIZE ((size_t)(HEAD_COUNT * sizeof(_Atomic(berm_addr_entry_t *))))

bool berm__addr_dir_init(berm_addr_dir_t *dir) {
    berm__mutex_init(&dir->mutex, BERM_LOCK_SEGMENT, "address directory");
    dir->heads = berm__mem_reserve(HEADS_SIZE);
    berm__mutex_lock(&dir->mutex);
    dir->top = NULL;
    atomic_init(&dir->inserts, 0);
    berm__mutex_unlock(&dir->mutex);
    return dir->heads != NULL;
}

void berm__addr_dir_destroy(berm_addr_dir_t *dir) {
    berm__mem_unreserve(dir->heads, HEADS_SIZE);
    dir->heads = NULL;
    berm__mutex_destroy(&dir->mutex);
}

static berm_addr_entry_t *entry_below(const berm_addr_entry_t *entry) {
    return atomic_load_explicit(&((berm_addr_entry_t *)(uintptr_t)entry)->next,
                                memory_order_relaxed);
}

static uint64_t unit_of(berm_addr_t addr) {
    return addr >> BERM_ADDR_DIR_UNIT_BITS;
}

static uint64_t entry_last_unit(const berm_addr_entry_t *entry) {
    return unit_of(entry->base + entry->size_bytes - 1);
}

// The lowest entry that starts above base; NULL if none does.
static berm_addr_entry_t *entry_above_locked(const berm_addr_dir_t *dir, berm_addr_t base)
    BERM_REQUIRES(dir->mutex) {
    berm_addr_entry_t *above = NULL;
    for (berm_addr_entry_t *at = dir->top; at != NULL && at->base > base; at = entry_below(at))
        above = at;
    return above;
}

// Makes `entry` what comes after `above`, or the top of the list.
static void entry_link_locked(berm_addr_dir_t *dir, berm_addr_entry_t *above,
                              berm_addr_entry_t *entry) BERM_REQUIRES(dir->mutex) {
    if (above != NULL)
        atomic_store_explicit(&above->next, entry, memory_order_release);
    else
        dir->top = entry;
}

static bool insert_locked(berm_addr_dir_t *dir, berm_addr_t base, uint64_t size_bytes,
                          berm_addr_entry_t *entry) BERM_REQUIRES(dir->mutex) {
    berm_addr_entry_t *above = entry_above_locked(dir, base);
    berm_addr_entry_t *below = above != NULL ? entry_below(above) : dir->top;
    if (above != NULL && above->base - base < size_bytes)
        return false;
    if (below != NULL && base - below->base < below->size_bytes)
        return false;
    // A find that is still at the entry, from before it was removed, sees the count if it sees what
    // is written here.
    atomic_fetch_add_explicit(&dir->inserts, 1, memory_order_relaxed);
    __atomic_store_n(&entry->base, base, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->size_bytes, size_bytes, __ATOMIC_RELEASE);
    atomic_store_explicit(&entry->next, below, memory_order_release);
    for (uint64_t unit = unit_of(base); unit <= entry_last_unit(entry); unit++) {
        berm_addr_entry_t *head = atomic_load_explicit(&dir->heads[unit], memory_order_relaxed);
        if (head == NULL || head->base < base)
            atomic_store_explicit(&dir->heads[unit], entry, memory_order_release);
    }
    entry_link_locked(dir, above, entry);
    return true;
}

static void remove_locked(berm_addr_dir_t *dir, berm_addr_entry_t *entry)
    BERM_REQUIRES(dir->mutex) {
    berm_addr_entry_t *above = entry_above_locked(dir, entry->base);
    berm_addr_entry_t *below = entry_below(entry);
    BERM_INSIST((above != NULL ? entry_below(above) : dir->top) == entry,
                "only an entry that is in the directory is removed");
    for (uint64_t unit = unit_of(entry->base); unit <= entry_last_unit(entry); unit++) {
        if (atomic_load_explicit(&dir->heads[unit], memory_order_relaxed) != entry)
            continue;
        bool is_shared = below != NULL && entry_last_unit(below) == unit;
        atomic_store_explicit(&dir->heads[unit], is_shared ? below : NULL, memory_order_release);
    }
    entry_link_locked(dir, above, below);
}

bool berm__addr_dir_insert(berm_addr_dir_t *dir, berm_addr_t base, uint64_t size_bytes,
                           berm_addr_entry_t *entry) {
    const uint64_t most = ((uint64_t)1 << BERM_ADDR_DIR_BITS) - 1;
    if (size_bytes == 0 || base > most || size_bytes - 1 > most - base)
        return false;
    berm__mutex_lock(&dir->mutex);
    bool is_inserted = insert_locked(dir, base, size_bytes, entry);
    berm__mutex_unlock(&dir->mutex);
    return is_inserted;
}

void berm__addr_dir_remove(berm_addr_dir_t *dir, berm_addr_entry_t *entry) {
    berm__mutex_lock(&dir->mutex);
    remove_locked(dir, entry);
    berm__mutex_unlock(&dir->mutex);
}
