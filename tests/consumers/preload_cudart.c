// SPDX-License-Identifier: Apache-2.0
// A program linked with a shared libcudart, as nvcc -cudart shared makes it. Run by
// test_preload.sh with and without libberm_preload.so.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload_test.h"
#include "simcuda/runtime/cudart.h"

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
};

static void *take(size_t bytes) {
    void *pointer = NULL;
    GIVES(OK, cudaMalloc(&pointer, bytes));
    CHECK(pointer != NULL, "no address for %zu bytes", bytes);
    const char *options = getenv("BERM_PRELOAD");
    bool is_passed = bytes < 65536 && options != NULL && strstr(options, "least:64K") != NULL;
    CHECK(is_berms(pointer) == (is_preloaded() && !is_passed), "%p of %zu bytes", pointer, bytes);
    return pointer;
}

static void use(berm_cu_stream_t stream, void *pointer, size_t bytes) {
    simcuda_access_t access = {(uintptr_t)pointer, bytes, 1};
    GIVES(OK, simcuda_launch(stream, 1000000, &access, 1));
}

// Blocks of many sizes, used on two streams, freed in another order, and everything given back.
static void case_basic(void) {
    enum {
        COUNT = 400
    };
    static void *blocks[COUNT];
    berm_cu_stream_t streams[2];
    uint64_t seed = 1;
    GIVES(OK, cudaStreamCreate(&streams[0]));
    GIVES(OK, cudaStreamCreate(&streams[1]));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t bytes = ((size_t)(seed >> 40) % (round % 2 == 0 ? 4 * MIB : 100000)) + 1;
            blocks[i] = take(bytes);
            use(streams[i % 2], blocks[i], bytes);
        }
        for (int i = 0; i < COUNT; i++)
            GIVES(OK, cudaFree(blocks[(i * 7) % COUNT]));
    }
    GIVES(OK, cudaStreamDestroy(streams[0]));
    GIVES(OK, cudaStreamDestroy(streams[1]));
    if (is_preloaded())
        CHECK(stats_of(0).blocks.current == 0, "blocks are left");
}

// Work is queued and cannot end: cudaFree may wait or not, but nobody gets the memory before.
static void case_in_flight(void) {
    if (!is_preloaded())
        return; // the driver's cudaFree waits for the gate
    berm_cu_stream_t stream;
    uint64_t gate = 0;
    GIVES(OK, cudaStreamCreate(&stream));
    GIVES(OK, cudaFree(take(64 * MIB))); // so that there is free memory
    void *used = take(16 * MIB);
    simcuda_access_t access = {(uintptr_t)used, 16 * MIB, 1};
    GIVES(OK, simcuda_gate(stream, &access, 1, &gate));
    GIVES(OK, cudaFree(used));
    void *next[8];
    for (int i = 0; i < 8; i++) {
        next[i] = take(8 * MIB);
        CHECK(!overlaps((uintptr_t)next[i], 8 * MIB, (uintptr_t)used, 16 * MIB),
              "memory that is in use was given away");
        use(NULL, next[i], 8 * MIB);
    }
    GIVES(OK, simcuda_gate_open(gate));
    GIVES(OK, cudaDeviceSynchronize());
    for (int i = 0; i < 8; i++)
        GIVES(OK, cudaFree(next[i]));
    CHECK(stats_of(0).blocks.current == 0, "blocks are left");
    GIVES(OK, cudaStreamDestroy(stream));
}

static void case_edges(void) {
    void *pointer = &pointer, *host = NULL;
    GIVES(OK, cudaMalloc(&pointer, 0));
    CHECK(pointer == NULL, "an address for 0 bytes");
    GIVES(INVALID_VALUE, cudaMalloc(NULL, 1));
    GIVES(INVALID_VALUE, cudaGetLastError());
    GIVES(OK, cudaGetLastError());
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62, (size_t)1 << 45};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        GIVES(OUT_OF_MEMORY, cudaMalloc(&pointer, absurd[i]));
        GIVES(OUT_OF_MEMORY, cudaPeekAtLastError());
        GIVES(OUT_OF_MEMORY, cudaGetLastError());
        GIVES(OK, cudaGetLastError());
    }
    GIVES(OK, cudaFree(NULL));
    pointer = take(3 * MIB);
    if (is_preloaded()) // the driver takes an address inside for an unknown one
        GIVES(INVALID_VALUE, cudaFree((char *)pointer + 4096));
    GIVES(OK, cudaFree(pointer));
    if (is_preloaded()) { // in the simulated driver a hazard
        GIVES(INVALID_VALUE, cudaFree(pointer));
        GIVES(INVALID_VALUE, cudaGetLastError());
    }
    GIVES(OK, cudaMallocHost(&host, MIB));
    GIVES(OK, cudaFreeHost(host));
    GIVES(OK, cudaGetLastError());
}

// Memory of the driver's own, with a name that berm does not know, goes back to the driver.
static void case_foreign(void) {
    berm_cu_mem_pool_t pool = NULL;
    berm_cu_mem_pool_props_t props = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                      .location = {BERM_CU_MEM_LOCATION_DEVICE, 0}};
    simcuda_ledger_t ledger;
    void *pointer = NULL;
    GIVES(OK, cudaFree(NULL));
    GIVES(OK, cudaMemPoolCreate(&pool, &props));
    GIVES(OK, cudaMallocFromPoolAsync(&pointer, MIB, pool, NULL));
    CHECK(!is_berms(pointer), "memory of a pool that the program made is the pool's");
    GIVES(OK, cudaFreeAsync(pointer, NULL));
    GIVES(OK, cudaDeviceSynchronize());
    GIVES(OK, cudaMemPoolDestroy(pool));
    simcuda_ledger_read(0, &ledger);
    CHECK(ledger.pool_bytes == 0, "%zu bytes of the pool are left", (size_t)ledger.pool_bytes);
}

// Rows with a pitch are the driver's, and find room that berm keeps idle.
static void case_pitch(void) {
    void *rows = NULL;
    size_t pitch = 0;
    GIVES(OK, cudaFree(take(6144 * MIB))); // of 8 GiB
    GIVES(OK, cudaMallocPitch(&rows, &pitch, MIB, 6144));
    CHECK(!is_berms(rows) && pitch == MIB, "rows of %zu bytes", pitch);
    GIVES(OK, cudaGetLastError());
    GIVES(OK, cudaFree(rows));
    GIVES(OK, cudaFree(take(6144 * MIB)));
}

// Arrays and managed memory are the driver's too; an array finds room that berm keeps idle.
static void case_arrays(void) {
    const cudart_channel_t channel = {.x = 32, .kind = 2};
    void *array = NULL, *levels = NULL, *managed = NULL;
    cudart_pointer_attributes_t attributes;
    GIVES(OK, cudaFree(take(6144 * MIB))); // of 8 GiB
    GIVES(OK, cudaMalloc3DArray(&array, &channel, (cudart_extent_t){1024, 1024, 1536}, 0));
    GIVES(OK, cudaMallocMipmappedArray(&levels, &channel, (cudart_extent_t){1024, 1024, 0}, 4, 0));
    GIVES(OK, cudaFreeMipmappedArray(levels));
    GIVES(OK, cudaFreeArray(array));
    GIVES(OK, cudaMallocArray(&array, &channel, 1024, 1024, 0));
    GIVES(OK, cudaFreeArray(array));
    GIVES(OK, cudaMallocManaged(&managed, 64 * MIB, 1));
    CHECK(!is_berms(managed), "managed memory is berm's");
    memset(managed, 1, 64 * MIB);
    GIVES(OK, cudaPointerGetAttributes(&attributes, managed));
    CHECK(attributes.type == CUDART_MEMORY_MANAGED, "type %d", (int)attributes.type);
    GIVES(OK, cudaFree(managed));
    GIVES(OK, cudaGetLastError());
}

// Sizes that nothing has, and products that no number holds: the answer is an error, and berm goes
// on to serve.
static void case_absurd(void) {
    const cudart_channel_t channel = {.x = 32, .kind = 2};
    void *array = NULL, *pointer = NULL;
    size_t pitch = 0;
    GIVES(OUT_OF_MEMORY, cudaMallocPitch(&pointer, &pitch, SIZE_MAX, 2));
    GIVES(OUT_OF_MEMORY, cudaMallocPitch(&pointer, &pitch, (size_t)1 << 33, (size_t)1 << 33));
    GIVES(OUT_OF_MEMORY, cudaMallocManaged(&pointer, SIZE_MAX, 1));
    GIVES(INVALID_VALUE, cudaMallocManaged(&pointer, MIB, 3));
    GIVES(INVALID_VALUE, cudaMallocManaged(NULL, MIB, 1));
    GIVES(OUT_OF_MEMORY, cudaMallocAsync(&pointer, SIZE_MAX, NULL));
    GIVES(INVALID_VALUE, cudaMallocAsync(NULL, MIB, NULL));
    GIVES(OUT_OF_MEMORY,
          cudaMalloc3DArray(&array, &channel,
                            (cudart_extent_t){(size_t)1 << 40, (size_t)1 << 40, 2}, 0));
    GIVES(INVALID_VALUE, cudaMallocArray(NULL, &channel, 1024, 1024, 0));
    (void)cudaGetLastError();
    CHECK(cudaSetDevice(99) != OK && cudaSetDevice(-1) != OK, "a device that is not there");
    (void)cudaGetLastError();
    GIVES(OK, cudaFree(take(1)));
    GIVES(OK, cudaFree(take(MIB)));
    GIVES(OK, cudaGetLastError());
}

// What the program gets by the C API and by the runtime is one heap, whoever is first.
static void case_one_heap(void) {
    if (!is_preloaded())
        return;
    berm_addr_t own = 0;
    GIVES(OK, cudaFree(NULL));
    GIVES(BERM_OK, BERM_CALL(berm_alloc)(3 * MIB, 0, NULL, &own));
    void *pointer = take(5 * MIB);
    CHECK(stats_of(0).blocks.current == 2 && stats_of(0).requested_bytes.current == 8 * MIB,
          "%d blocks", (int)stats_of(0).blocks.current);
    berm_tag_stats_t tagged = BERM_TAG_STATS_INIT;
    GIVES(BERM_OK, BERM_CALL(berm_tag_stats_read)(0, "preload", &tagged));
    CHECK(tagged.requested_bytes.current == 5 * MIB, "%d bytes have the tag",
          (int)tagged.requested_bytes.current);
    GIVES(BERM_OK, BERM_CALL(berm_free)((uintptr_t)pointer, 0, NULL));
    GIVES(OK, cudaFree((void *)(uintptr_t)own));
    CHECK(stats_of(0).blocks.current == 0, "blocks are left");
}

static void case_info(void) {
    size_t free_before = 0, free_after = 0, free_live = 0, total = 0;
    GIVES(OK, cudaFree(NULL));
    GIVES(OK, cudaMemGetInfo(&free_before, &total));
    void *pointer = take(512 * MIB);
    GIVES(OK, cudaMemGetInfo(&free_live, &total));
    CHECK(free_live <= free_before - 512 * MIB, "%zu bytes free", free_live);
    GIVES(OK, cudaFree(pointer));
    GIVES(OK, cudaDeviceSynchronize());
    GIVES(OK, cudaMemGetInfo(&free_after, &total));
    bool adds = getenv("BERM_PRELOAD") == NULL ||
                strstr(getenv("BERM_PRELOAD"), "cached_is_free:off") == NULL;
    if (adds || !is_preloaded())
        CHECK(free_after == free_before, "%zu bytes free, %zu before", free_after, free_before);
    else
        CHECK(free_after <= free_before - 512 * MIB, "%zu bytes free", free_after);
}

static void case_async(void) {
    berm_cu_stream_t one, two;
    berm_cu_mem_pool_t pool = NULL;
    void *pointer = NULL, *again = NULL;
    GIVES(OK, cudaStreamCreate(&one));
    GIVES(OK, cudaStreamCreate(&two));
    GIVES(OK, cudaMallocAsync(&pointer, 4 * MIB, one));
    CHECK(is_berms(pointer) == is_preloaded(), "%p", pointer);
    use(one, pointer, 4 * MIB);
    GIVES(OK, cudaFreeAsync(pointer, one));
    GIVES(OK, cudaMallocAsync(&again, 4 * MIB, one)); // in the order of the stream: at once
    if (is_preloaded())
        CHECK(again == pointer, "the stream did not get its memory again");
    use(one, again, 4 * MIB);
    GIVES(OK, cudaStreamSynchronize(one));
    use(two, again, 4 * MIB);
    GIVES(OK, cudaFreeAsync(again, two));
    GIVES(OK, cudaMallocAsync(&pointer, 4 * MIB, one)); // another stream's work is not over
    use(one, pointer, 4 * MIB);
    GIVES(OK, cudaFree(pointer)); // by the other call, which is allowed
    GIVES(OK, cudaDeviceGetDefaultMemPool(&pool, 0));
    GIVES(OK, cudaMallocFromPoolAsync(&pointer, MIB, pool, one));
    CHECK(is_berms(pointer) == is_preloaded(), "%p", pointer);
    GIVES(OK, cudaStreamSynchronize(one));
    GIVES(OK, cudaStreamDestroy(one)); // with a live block of its own
    use(two, pointer, MIB);
    GIVES(OK, cudaFreeAsync(pointer, two));
    GIVES(OK, cudaStreamDestroy(two));
    GIVES(OK, cudaDeviceSynchronize());
    if (is_preloaded())
        CHECK(stats_of(0).blocks.current == 0, "blocks are left");
}

// A capture in thread-local mode, while another thread allocates and frees; memory asked for on the
// captured stream is the graph's.
static void *churn(void *stop) {
    int mode = BERM_CU_CAPTURE_THREAD_LOCAL;
    GIVES(OK, cudaThreadExchangeStreamCaptureMode(&mode));
    for (int i = 0; i < 200 || !atomic_load((atomic_bool *)stop); i++) {
        void *pointer = NULL;
        GIVES(OK, cudaMalloc(&pointer, (size_t)(i % 7 + 1) * MIB));
        GIVES(OK, cudaFree(pointer));
    }
    return NULL;
}

static void case_capture(void) {
    if (!is_preloaded())
        return; // the driver refuses cudaMalloc while any stream of the thread's mode is captured
    berm_cu_stream_t stream;
    berm_cu_graph_t graph = NULL;
    pthread_t thread;
    atomic_bool stop = false;
    void *outer = NULL, *own = take(MIB);
    GIVES(OK, cudaStreamCreate(&stream));
    GIVES(OK, cudaMallocAsync(&outer, MIB, stream));
    GIVES(OK, cudaStreamBeginCapture(stream, BERM_CU_CAPTURE_THREAD_LOCAL));
    GIVES(OK, pthread_create(&thread, NULL, churn, &stop));
    for (int i = 0; i < 50; i++)
        use(stream, own, MIB);
    GIVES(INVALID_VALUE, cudaFreeAsync(outer, stream)); // no memory of the graph
    GIVES(INVALID_VALUE, cudaGetLastError());
    atomic_store(&stop, true);
    GIVES(OK, pthread_join(thread, NULL));
    GIVES(OK, cudaStreamEndCapture(stream, &graph));
    GIVES(OK, cudaGraphDestroy(graph));
    GIVES(OK, cudaFreeAsync(outer, stream));
    GIVES(OK, cudaFree(own));
    GIVES(OK, cudaStreamDestroy(stream));
}

// --- the process
// -----------------------------------------------------------------------------------

static void *allocate_forever(void *argument) {
    atomic_bool *is_ready = argument;
    for (unsigned i = 0;; i++) {
        void *pointer = NULL;
        if (cudaMalloc(&pointer, (i % 64 + 1) * 32768) == OK)
            (void)cudaFree(pointer);
        if (i == 1000)
            atomic_store(is_ready, true);
    }
    return NULL;
}

// The process ends while threads allocate.
static void case_exit(void) {
    static atomic_bool is_ready[4];
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        GIVES(OK, pthread_create(&thread, NULL, allocate_forever, &is_ready[i]));
    for (int i = 0; i < 4; i++)
        while (!atomic_load(&is_ready[i]))
            (void)usleep(100);
    exit(0);
}

static void *exchange(void *argument) {
    void *_Atomic *slots = argument;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    for (int i = 0; i < 5000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void *pointer = take((size_t)(seed >> 44) + 1);
        void *other = atomic_exchange(&slots[seed >> 20 & 63], pointer);
        if (other != NULL) // of another thread as a rule
            GIVES(OK, cudaFree(other));
    }
    return NULL;
}

static void case_threads(void) {
    static void *_Atomic slots[64];
    pthread_t threads[8];
    GIVES(OK, cudaFree(NULL));
    for (int i = 0; i < 8; i++)
        GIVES(OK, pthread_create(&threads[i], NULL, exchange, slots));
    for (int i = 0; i < 8; i++)
        GIVES(OK, pthread_join(threads[i], NULL));
    for (int i = 0; i < 64; i++)
        GIVES(OK, cudaFree(slots[i]));
    if (is_preloaded())
        CHECK(stats_of(0).blocks.current == 0, "blocks are left");
}

// Frees at the end of threads, by exit's handlers, and by destructors, which come after them.
static pthread_key_t thread_block;
static void *exit_block, *last_block;

static void free_quietly(void *pointer) {
    int result = cudaFree(pointer);
    if (result != OK && result != BERM_CU_DEINITIALIZED)
        _exit(3);
}

static void free_at_exit(void) {
    free_quietly(exit_block);
}

__attribute__((destructor)) static void free_last(void) {
    if (last_block != NULL)
        free_quietly(last_block);
}

static void *keep_till_end(void *unused) {
    (void)unused;
    GIVES(OK, pthread_setspecific(thread_block, take(MIB)));
    return NULL;
}

static void case_late(void) {
    pthread_t thread;
    GIVES(OK, atexit(free_at_exit)); // before CUDA is used, so that it runs after CUDA's own
    GIVES(OK, pthread_key_create(&thread_block, free_quietly));
    for (int i = 0; i < 200; i++) {
        GIVES(OK, pthread_create(&thread, NULL, keep_till_end, NULL));
        GIVES(OK, pthread_join(thread, NULL));
    }
    if (is_preloaded())
        CHECK(stats_of(0).blocks.current == 0, "blocks of threads that ended are left");
    exit_block = take(MIB);
    last_block = take(3 * MIB);
}

// A forked child gets what the driver says there, and prints nothing.
static void case_fork(void) {
    void *pointer = take(MIB);
    pid_t child = fork();
    if (child == 0) {
        void *own = NULL;
        _exit(cudaMalloc(&own, MIB) == OK || cudaFree(pointer) == OK);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "the child crashed");
    CHECK(WEXITSTATUS(status) == 0, "CUDA works in a forked child");
    GIVES(OK, cudaFree(pointer));
    CHECK(system("true") == 0, "a program that the program starts");
}

// A child that was forked before CUDA was used may use it.
static void case_fork_first(void) {
    pid_t child = fork();
    if (child == 0) {
        void *pointer = take(MIB);
        GIVES(OK, cudaFree(pointer));
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child failed");
    GIVES(OK, cudaFree(take(MIB)));
}

static void case_reset(void) {
    void *kept = take(8 * MIB), *pointer = NULL;
    simcuda_ledger_t ledger;
    GIVES(OK, cudaFree(take(100 * MIB)));
    GIVES(OK, cudaDeviceReset());
    simcuda_ledger_read(0, &ledger);
    CHECK(ledger.used_bytes == 0, "%zu bytes are held after the reset", (size_t)ledger.used_bytes);
    if (is_preloaded()) // in the simulated driver a hazard
        GIVES(INVALID_VALUE, cudaFree(kept));
    GIVES(OK, cudaMalloc(&pointer, MIB)); // by the driver from here on
    GIVES(OK, cudaFree(pointer));
}

// Nor does a reset that comes first keep berm from serving.
static void case_reset_first(void) {
    GIVES(OK, cudaDeviceReset());
    GIVES(OK, cudaFree(take(MIB)));
    GIVES(OK, cudaSetDevice(1));
    GIVES(OK, cudaDeviceReset()); // of the other device
    GIVES(OK, cudaSetDevice(0));
    GIVES(OK, cudaFree(take(MIB)));
}

static void case_devices(void) {
    void *pointers[2];
    for (int device = 0; device < 2; device++) {
        GIVES(OK, cudaSetDevice(device));
        pointers[device] = take(32 * MIB);
        if (is_preloaded())
            CHECK(stats_of(device).blocks.current == 1, "not on device %d", device);
    }
    GIVES(OK, cudaFree(pointers[0])); // while the other device is current
    GIVES(OK, cudaFree(pointers[1]));
}

// A kernel of the second device uses memory of the first: it may, and the memory is not given away
// while it runs.
static void case_peers(void) {
    if (!is_preloaded())
        return; // the stand-in runtime enables nothing for the driver's own memory
    berm_cu_stream_t stream;
    void *before = take(4 * MIB);
    GIVES(OK, cudaSetDevice(1));
    GIVES(OK, cudaDeviceEnablePeerAccess(0, 0));
    GIVES(OK, cudaStreamCreate(&stream));
    use(stream, before, 4 * MIB);
    GIVES(OK, cudaSetDevice(0));
    GIVES(OK, cudaFree(before));
    for (int i = 0; i < 4; i++) {
        void *after = take(4 * MIB);
        use(NULL, after, 4 * MIB);
        GIVES(OK, cudaDeviceSynchronize());
        GIVES(OK, cudaSetDevice(1));
        use(stream, after, 4 * MIB); // memory that came later, too
        GIVES(OK, cudaStreamSynchronize(stream));
        GIVES(OK, cudaSetDevice(0));
        GIVES(OK, cudaFree(after));
    }
    GIVES(OK, cudaSetDevice(1));
    GIVES(OK, cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    static const test_case_t cases[] = {
        {"basic", case_basic},
        {"in_flight", case_in_flight},
        {"edges", case_edges},
        {"foreign", case_foreign},
        {"info", case_info},
        {"async", case_async},
        {"capture", case_capture},
        {"exit", case_exit},
        {"threads", case_threads},
        {"fork", case_fork},
        {"fork_first", case_fork_first},
        {"reset", case_reset},
        {"reset_first", case_reset_first},
        {"pitch", case_pitch},
        {"arrays", case_arrays},
        {"absurd", case_absurd},
        {"late", case_late},
        {"one_heap", case_one_heap},
        {"devices", case_devices},
        {"peers", case_peers},
    };
    return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
