// SPDX-License-Identifier: Apache-2.0
// Runs the trace readers over the committed corpus and over seeded mutations of it, without a
// fuzzing engine: a crash, a hang or a sanitizer's finding fails. What an engine finds later is
// added to the corpus.
//
// usage: test_trace_regression [MUTATIONS [SEED]]; BERM_SOURCE is the root of the sources.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

// The engine's entry is one function; it is compiled in here.
#include "tests/fuzz/fuzz_trace.c"

enum {
    FILES_MAX = 256,
    FILE_BYTES_MAX = 1 << 16,
    MUTATIONS_DEFAULT = 40000,
    EDITS_MAX = 6,
    ROOM = 4096, // that edits may add
};

typedef struct seed_file {
    uint8_t *bytes;
    size_t size;
} seed_file_t;

static seed_file_t files[FILES_MAX];
static size_t file_count;

static void add_file(const char *folder, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    BERM_INSIST(file != NULL && file_count < FILES_MAX, "a corpus file can be read");
    seed_file_t *seed = &files[file_count++];
    seed->bytes = malloc(FILE_BYTES_MAX);
    BERM_INSIST(seed->bytes != NULL, "memory");
    seed->size = fread(seed->bytes, 1, FILE_BYTES_MAX, file);
    fclose(file);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

static void load_corpus(const char *folder) {
    static char names[FILES_MAX][256];
    size_t count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        fprintf(stderr, "%s: no corpus; set BERM_SOURCE to the root of the sources\n", folder);
        exit(2);
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] != '.' && count < FILES_MAX) {
            snprintf(names[count++], sizeof names[0], "%s", entry->d_name);
        }
    }
    closedir(dir);
    qsort(names, count, sizeof names[0], compare_names); // readdir's order is the file system's
    for (size_t i = 0; i < count; i++) {
        add_file(folder, names[i]);
    }
}

// One edit in place: a bit, a byte, a run removed, doubled, taken from another file, or numbers
// that are edges. Returns the new size.
static size_t edit(uint8_t *bytes, size_t size, size_t capacity, berm_rng_t *rng) {
    static const char *const edges[] = {"0",    "-1",       "18446744073709551615",
                                        "\xff", "\0\0\0\0", "4611686018427387905"};
    size_t at = (size_t)berm__rng_below(rng, size + 1);
    size_t run = 1 + (size_t)berm__rng_below(rng, 40);
    run = run > size - at ? size - at : run;
    const uint8_t *source = bytes + at;
    switch (berm__rng_below(rng, 6)) {
    case 0:
        bytes[at < size ? at : 0] ^= (uint8_t)(1u << berm__rng_below(rng, 8));
        return size;
    case 1:
        bytes[at < size ? at : 0] = (uint8_t)berm__rng_next(rng);
        return size;
    case 2:
        memmove(bytes + at, bytes + at + run, size - at - run);
        return size - run;
    case 3: {
        const seed_file_t *other = &files[berm__rng_below(rng, file_count)];
        size_t from = (size_t)berm__rng_below(rng, other->size + 1);
        run = run > other->size - from ? other->size - from : run;
        source = other->bytes + from;
        break;
    }
    case 4: {
        const char *edge = edges[berm__rng_below(rng, BERM_ARRAY_LENGTH(edges))];
        source = (const uint8_t *)edge;
        run = edge[0] == '\0' ? 4 : strlen(edge);
        break;
    }
    default:
        break;
    }
    if (run > capacity - size) {
        return size;
    }
    uint8_t copy[64];
    memcpy(copy, source, run);
    memmove(bytes + at + run, bytes + at, size - at);
    memcpy(bytes + at, copy, run);
    return size + run;
}

// A heap copy of the exact size, so that a sanitizer sees every byte read beyond the end.
static void run_exact(const uint8_t *bytes, size_t size) {
    uint8_t *exact = malloc(size + (size == 0));
    BERM_INSIST(exact != NULL, "memory");
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv) {
    const char *root = getenv("BERM_SOURCE");
    char folder[512];
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/trace", root == NULL ? "." : root);
    load_corpus(folder);
    BERM_INSIST(file_count > 0, "the corpus holds files");
    for (size_t i = 0; i < file_count; i++) {
        run_exact(files[i].bytes, files[i].size);
    }
    static uint8_t work[FILE_BYTES_MAX + ROOM];
    unsigned long mutations = argc > 1 ? strtoul(argv[1], NULL, 10) : MUTATIONS_DEFAULT;
    berm_rng_t rng;
    berm__rng_seed(&rng, argc > 2 ? strtoul(argv[2], NULL, 10) : 1);
    for (unsigned long i = 0; i < mutations; i++) {
        const seed_file_t *seed = &files[berm__rng_below(&rng, file_count)];
        size_t size = seed->size;
        memcpy(work, seed->bytes, size);
        for (uint64_t edits = 1 + berm__rng_below(&rng, EDITS_MAX); edits > 0; edits--) {
            size = edit(work, size, sizeof work, &rng);
        }
        run_exact(work, size);
    }
    printf("%zu files and %lu mutations of them read\n", file_count, mutations);
    for (size_t i = 0; i < file_count; i++) {
        free(files[i].bytes);
    }
    return 0;
}
