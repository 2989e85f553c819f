// SPDX-License-Identifier: Apache-2.0
// What work does to memory: is it there, may it be touched, and is each use ordered after the
// earlier ones it conflicts with.
//
//   memory->used   [start, end) -> the last write, and the reads since      (byte granular)
//
// Kept by physical memory and not by address, so that uses through two addresses of one handle
// meet. A later use by a stream that follows an earlier one replaces it: what is ordered after the
// later is ordered after both. What the host has seen done is dropped: all later work follows it.
//
// Bound: O(log n + pieces touched) a use, pieces being runs of bytes used alike; one piece when a
// block is used as a whole. Mappings and memory are judged as they are when work is queued.
// Invariants: (1) pieces of one memory are disjoint and not empty; (2) no use in `reads` happened
// before another one.
// Locks: the state's. May fail: host memory runs out; then a use is not recorded in full.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum {
    PIECES_PRUNE_LEAST = 64,
};

typedef struct user {
    const sim_stream_t *stream;
    sim_use_t use;
    uint64_t addr; // of byte `start` in the mapping
    uint64_t start, end;
    uint64_t overlaps; // work of the same stream that is still running; 0: none
    bool is_write;
    bool has_reported;
    bool is_early; // it touches what that work touches, through another address
} user_t;

static sim_used_t *piece_of(sim_node_t *node) {
    return node != NULL ? BERM_CONTAINER_OF(node, sim_used_t, node) : NULL;
}

static bool use_is_before(const uint64_t *clock, const sim_use_t *use) {
    return clock[use->slot] >= use->count;
}

// --- pieces --------------------------------------------------------------------------------------

static void piece_free(sim_memory_t *memory, sim_used_t *piece) {
    sim_tree_remove(&memory->used, &piece->node);
    free(piece->reads);
    free(piece);
}

void sim_used_clear(sim_memory_t *memory) {
    while (memory->used.root != NULL)
        piece_free(memory, piece_of(memory->used.root));
}

static sim_used_t *piece_insert(sim_memory_t *memory, uint64_t start, uint64_t end) {
    sim_used_t *piece = calloc(1, sizeof(*piece));
    if (piece == NULL)
        return NULL;
    piece->end = end;
    sim_tree_insert(&memory->used, &piece->node, start);
    return piece;
}

// The first piece that ends after `start`.
static sim_used_t *piece_first(const sim_memory_t *memory, uint64_t start) {
    sim_used_t *piece = piece_of(sim_tree_floor(&memory->used, start));
    if (piece != NULL && piece->end > start)
        return piece;
    return piece_of(sim_tree_ceil(&memory->used, start));
}

// Cuts the piece that spans `at`, if one does, in two alike.
static bool piece_cut(sim_memory_t *memory, uint64_t at) {
    sim_used_t *left = piece_of(sim_tree_floor(&memory->used, at));
    if (left == NULL || left->node.key == at || left->end <= at)
        return true;
    sim_use_t *reads = NULL;
    if (left->read_count > 0) {
        reads = malloc(left->read_count * sizeof(*reads));
        if (reads == NULL)
            return false;
        memcpy(reads, left->reads, left->read_count * sizeof(*reads));
    }
    sim_used_t *right = piece_insert(memory, at, left->end);
    if (right == NULL) {
        free(reads);
        return false;
    }
    right->write = left->write;
    right->reads = reads;
    right->read_count = right->read_capacity = left->read_count;
    left->end = at;
    return true;
}

static bool piece_is_seen(const sim_used_t *piece) {
    if (!use_is_before(sim.host_clock, &piece->write))
        return false;
    for (uint32_t i = 0; i < piece->read_count; i++) {
        if (!use_is_before(sim.host_clock, &piece->reads[i]))
            return false;
    }
    return true;
}

// Drops pieces the host has seen done, each time their number has doubled.
static void pieces_prune(sim_memory_t *memory) {
    if (memory->used.count <= memory->prune_at)
        return;
    for (sim_node_t *node = sim_tree_first(&memory->used), *next; node != NULL; node = next) {
        next = sim_tree_next(node);
        if (piece_is_seen(piece_of(node)))
            piece_free(memory, piece_of(node));
    }
    memory->prune_at = berm__max_u64(PIECES_PRUNE_LEAST, memory->used.count * 2);
}

// --- conflicts -----------------------------------------------------------------------------------

static void use_report(user_t *user, const sim_used_t *piece, const sim_use_t *earlier,
                       bool was_write) {
    uint64_t start = berm__max_u64(user->start, piece->node.key);
    uint64_t end = berm__min_u64(user->end, piece->end);
    bool is_alias = earlier->mapping != user->use.mapping;
    uint64_t addr = user->addr + (start - user->start);
    bool is_early = earlier->slot == user->use.slot;
    user->is_early = user->is_early || is_early;
    sim_hazard(is_alias ? SIMCUDA_HAZARD_ALIAS : SIMCUDA_HAZARD_RACE, addr,
               "%s of %llu bytes by work %llu of stream %llu %s the %s%s by work %llu of stream "
               "%llu",
               user->is_write ? "write" : "read", (unsigned long long)(end - start),
               (unsigned long long)user->use.count, (unsigned long long)user->stream->id,
               is_early ? "starts before the end of" : "is not ordered after",
               was_write ? "write" : "read", is_alias ? " through another address" : "",
               (unsigned long long)earlier->count,
               (unsigned long long)sim.slots[earlier->slot].stream_id);
    user->has_reported = true;
}

// Whether the use follows the earlier one. Of overlapping kernels the later waits for what the
// earlier does to its addresses; through other addresses the end of the earlier alone tells.
static bool user_follows(const user_t *user, const sim_use_t *earlier) {
    if (!use_is_before(user->stream->clock, earlier))
        return false;
    return BERM_LIKELY(user->overlaps == 0) || earlier->slot != user->use.slot ||
           earlier->count != user->overlaps || earlier->mapping == user->use.mapping;
}

// Reports the first conflict of the use, over all pieces.
static void piece_check(user_t *user, const sim_used_t *piece) {
    if (!user_follows(user, &piece->write))
        use_report(user, piece, &piece->write, true);
    for (uint32_t i = 0; user->is_write && !user->has_reported && i < piece->read_count; i++) {
        if (!user_follows(user, &piece->reads[i]))
            use_report(user, piece, &piece->reads[i], false);
    }
}

static bool piece_add_read(const user_t *user, sim_used_t *piece) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < piece->read_count; i++) {
        if (!use_is_before(user->stream->clock, &piece->reads[i]))
            piece->reads[kept++] = piece->reads[i];
    }
    piece->read_count = kept;
    if (kept == piece->read_capacity) {
        uint32_t capacity = kept == 0 ? 1 : kept * 2;
        sim_use_t *reads = realloc(piece->reads, capacity * sizeof(*reads));
        if (reads == NULL)
            return false;
        piece->reads = reads;
        piece->read_capacity = capacity;
    }
    piece->reads[piece->read_count++] = user->use;
    return true;
}

// `first` is the first piece of the range, and is the whole range where `is_exact`.
static bool memory_write(user_t *user, sim_memory_t *memory, sim_used_t *first, bool is_exact) {
    sim_used_t *piece = first;
    if (!is_exact) {
        if (!piece_cut(memory, user->start) || !piece_cut(memory, user->end))
            return false;
        piece = piece_first(memory, user->start);
        while (piece != NULL && piece->node.key < user->end) {
            sim_used_t *next = piece_of(sim_tree_next(&piece->node));
            piece_free(memory, piece);
            piece = next;
        }
        piece = piece_insert(memory, user->start, user->end);
        if (piece == NULL)
            return false;
    }
    piece->write = user->use;
    piece->read_count = 0;
    return true;
}

static bool memory_read(user_t *user, sim_memory_t *memory, sim_used_t *first, bool is_exact) {
    if (is_exact)
        return piece_add_read(user, first);
    if (!piece_cut(memory, user->start) || !piece_cut(memory, user->end))
        return false;
    uint64_t at = user->start;
    while (at < user->end) {
        sim_used_t *piece = piece_first(memory, at);
        if (piece == NULL || piece->node.key > at) { // a gap: nobody used it yet
            uint64_t end = piece == NULL ? user->end : berm__min_u64(piece->node.key, user->end);
            piece = piece_insert(memory, at, end);
        }
        if (piece == NULL || !piece_add_read(user, piece))
            return false;
        at = piece->end;
    }
    return true;
}

static bool memory_use(user_t *user, sim_memory_t *memory) {
    sim_used_t *first = piece_first(memory, user->start);
    bool is_exact = first != NULL && first->node.key == user->start && first->end == user->end;
    for (sim_used_t *piece = first;
         !user->has_reported && piece != NULL && piece->node.key < user->end;
         piece = is_exact ? NULL : piece_of(sim_tree_next(&piece->node)))
        piece_check(user, piece);
    bool ok = user->is_write ? memory_write(user, memory, first, is_exact)
                             : memory_read(user, memory, first, is_exact);
    pieces_prune(memory);
    return ok;
}

// --- addresses -----------------------------------------------------------------------------------

static const char *access_word(const simcuda_access_t *access) {
    return access->is_write ? "writes" : "reads";
}

// Work on addresses with nothing behind them, or without access: an illegal access when it starts.
static void use_fault(sim_stream_t *stream, const sim_issue_t *issue,
                      const simcuda_access_t *access, simcuda_hazard_kind_t kind, uint64_t addr) {
    sim_hazard(kind, addr, "work %llu of stream %llu %s [0x%llx, +%llu), of which 0x%llx is %s",
               (unsigned long long)stream->clock[stream->slot], (unsigned long long)stream->id,
               access_word(access), (unsigned long long)access->addr,
               (unsigned long long)access->size_bytes, (unsigned long long)addr,
               kind == SIMCUDA_HAZARD_USE_UNMAPPED ? "not mapped" : "mapped without that access");
    sim_context_fault(stream->context, issue->start_ns);
}

// Without access of its own: a copy goes through the device that has the memory, a kernel reaches
// cuMemAlloc memory of a context whose peer its own has become.
bool sim_mapping_allows_peer(const sim_mapping_t *mapping, const sim_context_t *context,
                             bool is_copy, unsigned need) {
    int home = mapping->memory->device;
    if (is_copy && home >= 0 && (mapping->access[home] & need) == need)
        return true;
    for (uint32_t i = 0; mapping->context != NULL && i < context->peer_count; i++) {
        if (context->peers[i] == mapping->context->handle)
            return true;
    }
    return false;
}

static void mapping_check_stale(const sim_mapping_t *mapping, const sim_stream_t *stream,
                                sim_issue_t *issue, bool is_write) {
    if (issue->start_ns >= mapping->visible_ns)
        return;
    *(is_write ? &issue->writes_stale : &issue->reads_stale) = true;
    sim_hazard(SIMCUDA_HAZARD_STALE_MAP, mapping->node.key,
               "work %llu of stream %llu starts at %llu ns on a mapping that is visible from %llu "
               "ns: it reads zeros, and what it writes is lost",
               (unsigned long long)stream->clock[stream->slot], (unsigned long long)stream->id,
               (unsigned long long)issue->start_ns, (unsigned long long)mapping->visible_ns);
}

bool sim_use(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *access) {
    uint64_t at = access->addr;
    uint64_t end = access->addr + access->size_bytes;
    bool ok = true;
    bool has_fault = false;
    user_t user = {.stream = stream,
                   .is_write = access->is_write != 0,
                   .overlaps = issue->overlaps,
                   .use = {.slot = stream->slot, .count = stream->clock[stream->slot]}};
    for (sim_mapping_t *mapping = sim_mapping_from(at); at < end;
         mapping = sim_mapping_next(mapping)) {
        if (mapping == NULL || mapping->node.key > at) {
            if (!has_fault)
                use_fault(stream, issue, access, SIMCUDA_HAZARD_USE_UNMAPPED, at);
            has_fault = true;
            if (mapping == NULL)
                break;
            at = mapping->node.key;
            if (at >= end)
                break;
        }
        uint64_t to = berm__min_u64(end, mapping->node.key + mapping->size_bytes);
        if (sim_mapping_allows(mapping, stream->context, issue->is_copy, user.is_write)) {
            mapping_check_stale(mapping, stream, issue, user.is_write);
            ok = sim_mapping_add_work(mapping, stream, issue) && ok;
            user.use.mapping = mapping->id;
            user.addr = at;
            user.start = at - mapping->node.key + mapping->memory_offset;
            user.end = user.start + (to - at);
            ok = memory_use(&user, mapping->memory) && ok;
        } else if (!has_fault) {
            use_fault(stream, issue, access, SIMCUDA_HAZARD_USE_NO_ACCESS, at);
            has_fault = true;
        }
        at = to;
    }
    issue->is_early = issue->is_early || user.is_early;
    return ok;
}
