// SPDX-License-Identifier: Apache-2.0
// The shared memory of one communicator: a head, a channel of each rank to all, and a channel of
// each rank to each other one. The file is sparse: a channel costs memory once it is used.
//
// A channel holds contributions of one sender. `published` and what its readers consumed count from
// 0; slot n modulo the slots holds contribution n from when published > n until it is overwritten,
// which waits for all readers to have consumed it.
//
// INVARIANT: only its sender writes a channel's slots and `published`; only its reader writes how
// much of it is consumed.
// Locks: none; what is shared is atomic. A wait polls, and ends when a rank's process is gone.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "simcuda/standins/nccl.h"

typedef struct slot {
    uint32_t bytes, is_known;
    unsigned char data[NCCL_VALUES_MAX];
} slot_t;

typedef struct channel {
    atomic_uint_fast64_t published;
    slot_t slots[];
} channel_t;

typedef struct head {
    atomic_int joined, is_aborted;
    struct {
        atomic_int process;
        atomic_int moves;
        atomic_uint_fast64_t consumed; // of what all publish to all: the number of whole rounds
    } ranks[NCCL_RANKS_MAX];
} head_t;

struct nccl_segment {
    atomic_int users;
    int ranks, rank;
    char name[48];
    size_t bytes;
    head_t *head;
    char *to_all; // channel_t [ranks], of NCCL_SLOTS
    char *direct; // channel_t [from * ranks + to], of NCCL_DIRECT_SLOTS
    uint64_t next;
    uint64_t *next_to, *next_from; // [ranks]
    atomic_uint_fast64_t *taken;   // [from * ranks + to], in shared memory
};

#define NAME_PREFIX "/simcuda-nccl-"

enum {
    WAIT_MS_MAX = 600 * 1000 // for a rank that does not come
};

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

enum {
    CHANNEL_BYTES = sizeof(channel_t) + NCCL_SLOTS * sizeof(slot_t),
    DIRECT_BYTES = sizeof(channel_t) + NCCL_DIRECT_SLOTS * sizeof(slot_t)
};

static size_t page_up(size_t bytes) {
    return (bytes + 4095) & ~(size_t)4095;
}

static bool segment_map(nccl_segment_t *segment) {
    size_t ranks = (size_t)segment->ranks;
    size_t all = page_up(sizeof(head_t));
    size_t direct = all + page_up(ranks * CHANNEL_BYTES);
    size_t taken = direct + page_up(ranks * ranks * DIRECT_BYTES);
    segment->bytes = taken + page_up(ranks * ranks * sizeof(uint64_t));
    int file = shm_open(segment->name, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        return false;
    char *base = MAP_FAILED;
    if (ftruncate(file, (off_t)segment->bytes) == 0)
        base =
            mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (base == MAP_FAILED)
        return false;
    segment->head = (head_t *)(void *)base;
    segment->to_all = base + all;
    segment->direct = base + direct;
    segment->taken = (atomic_uint_fast64_t *)(void *)(base + taken);
    return true;
}

// Unlinks what ranks left that were killed before all had joined: what is older than any waits.
static void segments_sweep(void) {
    static atomic_int is_swept;
    DIR *entries = atomic_exchange(&is_swept, 1) == 0 ? opendir("/dev/shm") : NULL;
    if (entries == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        struct stat status;
        if (strncmp(entry->d_name, &NAME_PREFIX[1], sizeof NAME_PREFIX - 2) == 0 &&
            fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - status.st_mtime > WAIT_MS_MAX / 1000)
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    (void)closedir(entries);
}

nccl_segment_t *nccl_segment_join(uint64_t key, int ranks, int rank, bool moves) {
    nccl_segment_t *segment = calloc(1, sizeof *segment);
    if (segment == NULL)
        return NULL;
    *segment = (nccl_segment_t){.users = 1, .ranks = ranks, .rank = rank};
    snprintf(segment->name, sizeof segment->name, NAME_PREFIX "%016llx", (unsigned long long)key);
    segments_sweep();
    segment->next_to = calloc((size_t)ranks, sizeof(uint64_t));
    segment->next_from = calloc((size_t)ranks, sizeof(uint64_t));
    if (segment->next_to == NULL || segment->next_from == NULL || !segment_map(segment)) {
        free(segment->next_to);
        free(segment->next_from);
        free(segment);
        return NULL;
    }
    head_t *head = segment->head;
    atomic_store(&head->ranks[rank].moves, moves);
    atomic_store(&head->ranks[rank].process, getpid());
    if (atomic_fetch_add(&head->joined, 1) + 1 == ranks)
        shm_unlink(segment->name);
    return segment;
}

// Whether to go on waiting: NCCL_OK, or why not.
static int wait_step(nccl_segment_t *segment, unsigned turn, uint64_t deadline_ms) {
    if (atomic_load(&segment->head->is_aborted))
        return NCCL_REMOTE_ERROR;
    if (turn < 200) {
        sched_yield();
        return NCCL_OK;
    }
    nanosleep(&(struct timespec){.tv_nsec = turn < 2000 ? 50000 : 1000000}, NULL);
    if (turn % 256 != 0)
        return NCCL_OK;
    for (int rank = 0; rank < segment->ranks; rank++) {
        int process = atomic_load(&segment->head->ranks[rank].process);
        if (process != 0 && kill(process, 0) != 0 && errno == ESRCH)
            return NCCL_REMOTE_ERROR;
    }
    return now_ms() < deadline_ms ? NCCL_OK : NCCL_REMOTE_ERROR;
}

int nccl_segment_wait(nccl_segment_t *segment) {
    uint64_t deadline_ms = now_ms() + WAIT_MS_MAX;
    int result = NCCL_OK;
    for (unsigned turn = 0;
         result == NCCL_OK && atomic_load(&segment->head->joined) < segment->ranks; turn++)
        result = wait_step(segment, turn, deadline_ms);
    return result;
}

bool nccl_segment_moves(const nccl_segment_t *segment) {
    for (int rank = 0; rank < segment->ranks; rank++)
        if (!atomic_load(&segment->head->ranks[rank].moves))
            return false;
    return true;
}

void nccl_segment_keep(nccl_segment_t *segment) {
    atomic_fetch_add(&segment->users, 1);
}

void nccl_segment_drop(nccl_segment_t *segment) {
    if (segment == NULL || atomic_fetch_sub(&segment->users, 1) != 1)
        return;
    if (atomic_load(&segment->head->joined) < segment->ranks)
        shm_unlink(segment->name);
    munmap(segment->head, segment->bytes);
    free(segment->next_to);
    free(segment->next_from);
    free(segment);
}

void nccl_segment_abort(nccl_segment_t *segment) {
    atomic_store(&segment->head->is_aborted, 1);
}

uint64_t nccl_segment_next(nccl_segment_t *segment) {
    return segment->next++;
}

uint64_t nccl_segment_next_to(nccl_segment_t *segment, int peer) {
    return segment->next_to[peer]++;
}

uint64_t nccl_segment_next_from(nccl_segment_t *segment, int peer) {
    return segment->next_from[peer]++;
}

static channel_t *channel_of(nccl_segment_t *segment, int from, int to) {
    char *at = to < 0 ? segment->to_all + (size_t)from * CHANNEL_BYTES
                      : segment->direct + (size_t)(from * segment->ranks + to) * DIRECT_BYTES;
    return (channel_t *)(void *)at;
}

static unsigned slots_of(int to) {
    return to < 0 ? NCCL_SLOTS : NCCL_DIRECT_SLOTS;
}

// Whether every reader of the channel is done with contribution `number`.
static bool is_consumed(nccl_segment_t *segment, int peer, uint64_t number) {
    if (peer >= 0)
        return atomic_load(&segment->taken[segment->rank * segment->ranks + peer]) > number;
    for (int rank = 0; rank < segment->ranks; rank++)
        if (atomic_load(&segment->head->ranks[rank].consumed) <= number)
            return false;
    return true;
}

int nccl_segment_publish(nccl_segment_t *segment, int peer, uint64_t number, const void *data,
                         size_t bytes, bool is_known) {
    channel_t *channel = channel_of(segment, segment->rank, peer);
    uint64_t deadline_ms = now_ms() + WAIT_MS_MAX;
    int result = NCCL_OK;
    for (unsigned turn = 0; result == NCCL_OK && number >= slots_of(peer) &&
                            !is_consumed(segment, peer, number - slots_of(peer));
         turn++)
        result = wait_step(segment, turn, deadline_ms);
    if (result != NCCL_OK)
        return result;
    slot_t *slot = &channel->slots[number % slots_of(peer)];
    slot->bytes = (uint32_t)bytes;
    slot->is_known = is_known;
    if (is_known && bytes > 0)
        memcpy(slot->data, data, bytes);
    atomic_store(&channel->published, number + 1);
    return NCCL_OK;
}

int nccl_segment_read(nccl_segment_t *segment, int from, bool is_direct, uint64_t number,
                      void *data, size_t bytes, bool *is_known) {
    int to = is_direct ? segment->rank : -1;
    channel_t *channel = channel_of(segment, from, to);
    uint64_t deadline_ms = now_ms() + WAIT_MS_MAX;
    int result = NCCL_OK;
    for (unsigned turn = 0; result == NCCL_OK && atomic_load(&channel->published) <= number; turn++)
        result = wait_step(segment, turn, deadline_ms);
    if (result != NCCL_OK) {
        *is_known = false;
        return result;
    }
    const slot_t *slot = &channel->slots[number % slots_of(to)];
    if (!slot->is_known)
        *is_known = false;
    else if (bytes > 0)
        memcpy(data, slot->data, bytes < slot->bytes ? bytes : slot->bytes);
    return NCCL_OK;
}

void nccl_segment_consume(nccl_segment_t *segment, int peer, uint64_t number) {
    if (peer >= 0)
        atomic_store(&segment->taken[peer * segment->ranks + segment->rank], number + 1);
    else
        atomic_store(&segment->head->ranks[segment->rank].consumed, number + 1);
}
