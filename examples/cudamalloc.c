// SPDX-License-Identifier: Apache-2.0
// A program that knows nothing of berm: it asks the CUDA runtime for memory of many sizes, frees it
// in another order, and asks again. Then a few large requests, as a model loader makes them.
//
//   ./example_cudamalloc [SECONDS]               the driver's allocator
//   berm run --stats -- ./example_cudamalloc     berm in its place; the program is the same
//
// In the build tree it is linked with the simulated device's runtime, and runs without a GPU.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// What cuda_runtime.h declares.
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
const char *cudaGetErrorString(int error);

enum {
    BLOCKS = 600,
    MIB = 1 << 20
};

static void check(int error, const char *what) {
    if (error == 0)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static size_t size_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t draw = *state >> 33;
    return draw % 4 == 0 ? (draw >> 2) % (12 * MIB) + 1 : (draw >> 2) % 200000 + 1;
}

static void print_free(const char *when) {
    size_t free_bytes = 0, total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    (void)printf("%-22s free %7zu of %7zu MiB\n", when, free_bytes / MIB, total_bytes / MIB);
}

int main(int argc, char **argv) {
    static void *blocks[BLOCKS];
    double end = seconds() + (argc > 1 ? atof(argv[1]) : 0);
    uint64_t state = 1, requests = 0;
    print_free("at the start");
    for (int round = 0; round < 20 || seconds() < end; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            int at = (int)((unsigned)i * 7919 % BLOCKS);
            check(cudaFree(blocks[at]), "cudaFree"); // NULL at first
            check(cudaMalloc(&blocks[at], size_next(&state)), "cudaMalloc");
            requests++;
        }
    }
    print_free("blocks of many sizes");
    for (int i = 0; i < BLOCKS; i += 2) {
        check(cudaFree(blocks[i]), "cudaFree");
        blocks[i] = NULL;
    }
    print_free("every second one freed");
    for (int i = 0; i < 4; i++)
        check(cudaMalloc(&blocks[2 * i], 100 * (size_t)MIB), "cudaMalloc of 100 MiB");
    print_free("four of 100 MiB more");
    for (int i = 0; i < BLOCKS; i++)
        check(cudaFree(blocks[i]), "cudaFree");
    print_free("all freed");
    (void)printf("%llu requests\n", (unsigned long long)requests + 4);
    return 0;
}
