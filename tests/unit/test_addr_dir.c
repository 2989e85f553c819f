// SPDX-License-Identifier: Apache-2.0
// core/addr_dir.h: a random model against a plain array, with neighbours that share 4 GiB units,
// refused inserts, the edges of the address space, and finds beside inserts and removes.
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/rng.h"
#include "core/addr_dir.h"
#include "host/mem.h"

#define UNIT ((uint64_t)1 << BERM_ADDR_DIR_UNIT_BITS)
#define END  ((uint64_t)1 << BERM_ADDR_DIR_BITS)

enum {
    ENTRY_COUNT = 24
};

static int owners[ENTRY_COUNT];
static atomic_bool is_over, is_wrong;

typedef struct model {
    berm_addr_dir_t dir;
    berm_addr_entry_t entries[ENTRY_COUNT];
    bool is_in[ENTRY_COUNT];
} model_t;

static bool entry_holds(const berm_addr_entry_t *entry, berm_addr_t addr) {
    return addr >= entry->base && addr < entry->base + entry->size_bytes;
}

static void *model_find(const model_t *model, berm_addr_t addr) {
    for (int i = 0; i < ENTRY_COUNT; i++)
        if (model->is_in[i] && entry_holds(&model->entries[i], addr))
            return model->entries[i].owner;
    return NULL;
}

static bool model_overlaps(const model_t *model, berm_addr_t base, uint64_t size_bytes) {
    for (int i = 0; i < ENTRY_COUNT; i++) {
        const berm_addr_entry_t *entry = &model->entries[i];
        if (model->is_in[i] && base < entry->base + entry->size_bytes &&
            entry->base < base + size_bytes)
            return true;
    }
    return false;
}

static void model_check(const model_t *model, berm_rng_t *rng, berm_addr_t base, uint64_t span) {
    for (int i = 0; i < ENTRY_COUNT; i++) {
        const berm_addr_entry_t *entry = &model->entries[i];
        if (!model->is_in[i])
            continue;
        const berm_addr_t probes[] = {entry->base - 1, entry->base,
                                      entry->base + entry->size_bytes - 1,
                                      entry->base + entry->size_bytes};
        for (int j = 0; j < 4; j++)
            cr_assert(berm__addr_dir_find(&model->dir, probes[j]) == model_find(model, probes[j]));
    }
    for (int i = 0; i < 8; i++) {
        berm_addr_t addr = base + berm__rng_below(rng, span);
        cr_assert(berm__addr_dir_find(&model->dir, addr) == model_find(model, addr));
    }
}

// Sizes up to `most_bytes` in `span` bytes: from many entries per unit to many units per entry.
static void model_run(uint64_t seed, berm_addr_t base, uint64_t span, uint64_t most_bytes) {
    static model_t model;
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    cr_assert(berm__addr_dir_init(&model.dir));
    for (int i = 0; i < ENTRY_COUNT; i++) {
        model.is_in[i] = false;
        model.entries[i].owner = &owners[i];
    }
    for (int step = 0; step < 1500; step++) {
        size_t i = berm__rng_below(&rng, ENTRY_COUNT);
        if (model.is_in[i]) {
            berm__addr_dir_remove(&model.dir, &model.entries[i]);
            model.is_in[i] = false;
        } else {
            uint64_t size = 1 + berm__rng_below(&rng, most_bytes);
            berm_addr_t at = base + berm__rng_below(&rng, span - size);
            if (berm__rng_below(&rng, 2) != 0) { // right behind a neighbour
                const berm_addr_entry_t *other = &model.entries[berm__rng_below(&rng, ENTRY_COUNT)];
                if (model_find(&model, other->base) != NULL)
                    at = other->base + other->size_bytes;
            }
            bool expected = !model_overlaps(&model, at, size);
            cr_assert(berm__addr_dir_insert(&model.dir, at, size, &model.entries[i]) == expected);
            model.is_in[i] = expected;
        }
        model_check(&model, &rng, base, span);
    }
    berm__addr_dir_destroy(&model.dir);
    cr_assert(berm__mem_reserved_bytes() == 0);
}

Test(addr_dir, model_many_entries_in_one_unit) {
    model_run(1, 7 * UNIT, UNIT, UNIT / 16);
}

Test(addr_dir, model_entries_of_some_units_unaligned) {
    model_run(2, UINT64_C(0x7f1234567000), 40 * UNIT, 3 * UNIT);
}

Test(addr_dir, model_entries_of_many_units) {
    model_run(3, 5 * UNIT + 12345, 2000 * UNIT, 200 * UNIT);
}

Test(addr_dir, model_tiny_entries_across_an_edge) {
    model_run(4, 9 * UNIT - 500, 1000, 40);
}

Test(addr_dir, edges_and_refusals) {
    berm_addr_dir_t dir;
    berm_addr_entry_t first = {.owner = &owners[0]}, last = {.owner = &owners[1]},
                      other = {.owner = &owners[2]};
    cr_assert(berm__addr_dir_init(&dir));
    cr_assert(berm__addr_dir_find(&dir, 0) == NULL);
    cr_assert(berm__addr_dir_find(&dir, END - 1) == NULL);
    cr_assert(berm__addr_dir_find(&dir, END) == NULL);
    cr_assert(berm__addr_dir_find(&dir, UINT64_MAX) == NULL);
    cr_assert(!berm__addr_dir_insert(&dir, 4096, 0, &other));
    cr_assert(!berm__addr_dir_insert(&dir, END, 1, &other));
    cr_assert(!berm__addr_dir_insert(&dir, END - 1, 2, &other));
    cr_assert(!berm__addr_dir_insert(&dir, UINT64_MAX, UINT64_MAX, &other));
    cr_assert(!berm__addr_dir_insert(&dir, 4096, UINT64_MAX, &other));
    cr_assert(berm__addr_dir_insert(&dir, 0, 1, &first));
    cr_assert(berm__addr_dir_insert(&dir, END - 4096, 4096, &last));
    cr_assert(!berm__addr_dir_insert(&dir, 0, END, &other));
    cr_assert(!berm__addr_dir_insert(&dir, END - 1, 1, &other));
    cr_assert(berm__addr_dir_find(&dir, 0) == &owners[0]);
    cr_assert(berm__addr_dir_find(&dir, 1) == NULL);
    cr_assert(berm__addr_dir_find(&dir, END - 1) == &owners[1]);
    cr_assert(berm__addr_dir_find(&dir, END - 4097) == NULL);
    berm__addr_dir_remove(&dir, &last);
    berm__addr_dir_remove(&dir, &first);
    cr_assert(berm__addr_dir_find(&dir, 0) == NULL);
    berm__addr_dir_destroy(&dir);
}

Test(addr_dir, init_without_host_memory) {
    berm_addr_dir_t dir;
    berm__mem_fault_nth(1, 0);
    cr_assert(!berm__addr_dir_init(&dir));
    berm__addr_dir_destroy(&dir);
    cr_assert(berm__mem_reserved_bytes() == 0);
}

Test(addr_dir, removing_what_is_not_in_aborts, .signal = SIGABRT) {
    berm_addr_dir_t dir;
    berm_addr_entry_t entry = {.base = 4096, .size_bytes = 4096};
    if (berm__addr_dir_init(&dir))
        berm__addr_dir_remove(&dir, &entry);
}

// --- writers beside each other: devices share the directory
// ---------------------------------------

typedef struct writer {
    berm_addr_dir_t *dir;
    berm_addr_t base;
    int *owner;
    unsigned long wrong;
} writer_t;

static void *writer_run(void *context) {
    writer_t *writer = context;
    static _Thread_local berm_addr_entry_t entries[1000];
    for (int i = 0; i < 1000; i++) {
        entries[i].owner = writer->owner;
        if (!berm__addr_dir_insert(writer->dir, writer->base, 4096, &entries[i]) ||
            berm__addr_dir_find(writer->dir, writer->base + 4095) != writer->owner)
            writer->wrong++;
        berm__addr_dir_remove(writer->dir, &entries[i]);
        if (berm__addr_dir_find(writer->dir, writer->base) != NULL)
            writer->wrong++;
    }
    return NULL;
}

Test(addr_dir, writers_run_beside_each_other) {
    berm_addr_dir_t dir;
    writer_t writers[3];
    pthread_t threads[3];
    cr_assert(berm__addr_dir_init(&dir));
    for (int i = 0; i < 3; i++) {
        writers[i] = (writer_t){&dir, 8 * UNIT + (berm_addr_t)i * 4096, &owners[i], 0};
        cr_assert(pthread_create(&threads[i], NULL, writer_run, &writers[i]) == 0);
    }
    for (int i = 0; i < 3; i++) {
        cr_assert(pthread_join(threads[i], NULL) == 0);
        cr_assert(writers[i].wrong == 0);
    }
    berm__addr_dir_destroy(&dir);
}

// --- finds beside inserts and removes of neighbours in the same unit -----------------------------

typedef struct race {
    berm_addr_dir_t dir;
    atomic_bool is_over;
    atomic_ulong wrong;
} race_t;

static void *race_find(void *context) {
    race_t *race = context;
    while (!atomic_load(&race->is_over)) {
        if (berm__addr_dir_find(&race->dir, 8 * UNIT + 5000) != &owners[0])
            atomic_fetch_add(&race->wrong, 1);
        if (berm__addr_dir_find(&race->dir, 9 * UNIT + 5000) != &owners[0])
            atomic_fetch_add(&race->wrong, 1);
    }
    return NULL;
}

Test(addr_dir, finds_run_beside_writers) {
    static race_t race;
    enum {
        ROUNDS = 4000
    };
    static berm_addr_entry_t entries[ROUNDS][2]; // a removed entry is not used again
    static berm_addr_entry_t fixed = {.owner = &owners[0]};
    cr_assert(berm__addr_dir_init(&race.dir));
    cr_assert(berm__addr_dir_insert(&race.dir, 8 * UNIT + 4096, UNIT + 4096, &fixed));
    pthread_t thread;
    cr_assert(pthread_create(&thread, NULL, race_find, &race) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        entries[i][0].owner = entries[i][1].owner = &owners[1];
        cr_assert(berm__addr_dir_insert(&race.dir, 9 * UNIT + 8192, 4096, &entries[i][0]));
        cr_assert(berm__addr_dir_insert(&race.dir, 8 * UNIT, 4096, &entries[i][1]));
        cr_assert(berm__addr_dir_find(&race.dir, 9 * UNIT + 8192) == &owners[1]);
        berm__addr_dir_remove(&race.dir, &entries[i][0]);
        berm__addr_dir_remove(&race.dir, &entries[i][1]);
    }
    atomic_store(&race.is_over, true);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(atomic_load(&race.wrong) == 0);
    berm__addr_dir_destroy(&race.dir);
}

// --- entries that are used again -----------------------------------------------------------------

static void *finder_fixed(void *argument) {
    const berm_addr_dir_t *dir = argument;
    while (!atomic_load(&is_over))
        if (berm__addr_dir_find(dir, UNIT + 4096) != &owners[0] ||
            berm__addr_dir_find(dir, UNIT) != NULL)
            atomic_store(&is_wrong, true);
    return NULL;
}

// An entry above the one that is looked for goes, and comes back below it, again and again.
Test(addr_dir, an_entry_comes_back_elsewhere, .timeout = 60) {
    static berm_addr_dir_t dir;
    static berm_addr_entry_t fixed, roving;
    cr_assert(berm__addr_dir_init(&dir));
    fixed.owner = &owners[0];
    roving.owner = &owners[1];
    cr_assert(berm__addr_dir_insert(&dir, UNIT + 4096, 4096, &fixed));
    atomic_store(&is_over, false);
    pthread_t thread;
    cr_assert(pthread_create(&thread, NULL, finder_fixed, &dir) == 0);
    for (int i = 0; i < 200000; i++) {
        berm_addr_t base = UNIT + (i % 2 == 0 ? 65536 : 1024);
        cr_assert(berm__addr_dir_insert(&dir, base, 512, &roving));
        cr_assert(berm__addr_dir_find(&dir, base + 511) == &owners[1]);
        berm__addr_dir_remove(&dir, &roving);
        cr_assert(berm__addr_dir_find(&dir, base) == NULL);
    }
    atomic_store(&is_over, true);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(!atomic_load(&is_wrong));
    berm__addr_dir_remove(&dir, &fixed);
    berm__addr_dir_destroy(&dir);
}
