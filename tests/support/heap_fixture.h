// SPDX-License-Identifier: Apache-2.0
// A heap on the simulated device, for any test: public functions only, no Criterion, so that unit,
// api, model, fault, fuzz and race programs can all use it. A failed check prints one line and
// aborts, which Criterion reports as a crash of that test.
//
//   heap_fixture_begin(NULL);                 a strict device of 256 MiB, berm started on it
//   void *stream = heap_stream_create();
//   ...berm_alloc, heap_use, berm_free...
//   BERM_TEST_END();                          audit, both ledgers, shutdown, nothing left
//
// The driver is the library that the variable BERM_LIBCUDA_SIM names. The functions of simcuda.h
// may be called by their own names: simcuda_forward.c passes them on to that library.
// The calling thread has the context of device 0 current.
#ifndef BERM_TESTS_HEAP_FIXTURE_H
#define BERM_TESTS_HEAP_FIXTURE_H

#include <stdint.h>

#include "berm.h"
#include "simcuda.h"

typedef struct heap_fixture_options {
    uint64_t memory_bytes;              // of each device; 0: 256 MiB
    uint64_t granule_bytes;             // 0: 2 MiB
    int devices;                        // 0: 1
    uint64_t address_bytes;             // that can be reserved; 0: simcuda's default
    uint64_t mappings_max, handles_max; // ceilings of the driver; 0: none
    int is_lenient;                     // 1: hazards are counted, and do not abort
    int lacks_ctx_event;                // 1: a driver without cuCtxRecordEvent
    int is_backed;                      // 1: memory has contents
    int lacks_peers;                    // 1: no device has access to another's memory
    int lacks_vmm;                      // 1: a device without virtual memory management
    int stays_stopped;                  // 1: berm_init is left to the test
    int has_caches;   // 1: threads cache what they free; off, so that a free shows at once
    const char *berm; // more options for berm_init, "key:value,..."; NULL: none
} heap_fixture_options_t;

// NULL is all defaults. May be called again after heap_fixture_end.
void heap_fixture_begin(const heap_fixture_options_t *options);

// What berm_init is to be given, for tests that call it themselves: "driver:PATH" and `more`.
const char *heap_fixture_conf(const char *more);

// The audit passes, and berm's figures are those of simcuda's ledger. Does nothing when berm does
// not run.
void heap_fixture_check(const char *file, int line);

// heap_fixture_check, then berm_shutdown, after which the ledger is empty and no hazard is counted.
// Streams that heap_stream_create made are destroyed. Blocks may still be live.
void heap_fixture_end(const char *file, int line);

#define BERM_TEST_CHECK() heap_fixture_check(__FILE__, __LINE__)
#define BERM_TEST_END()   heap_fixture_end(__FILE__, __LINE__)

// A line that says what does not hold, and abort.
#define HEAP_INSIST(x) ((x) ? (void)0 : heap_fixture_fail(__FILE__, __LINE__, #x))
void heap_fixture_fail(const char *file, int line, const char *what) __attribute__((noreturn));

// --- the driver, as a program uses it ----------------------------------------------------------

void *heap_stream_create(void); // one that does not wait for the legacy stream
void heap_stream_destroy(void *stream);
// What is queued on `stream` from now on comes after all that is queued on `other` by now.
void heap_stream_follow(void *stream, void *other);
void heap_stream_synchronize(void *stream);
void heap_context_synchronize(void);

// Queues a kernel of `duration_ns` that writes the block. A hazard aborts in a strict device.
void heap_use(void *stream, berm_addr_t addr, uint64_t size_bytes, uint64_t duration_ns);

// One cuMemAlloc of the program's own at a time, which the figures are compared without.
void heap_plain_alloc(uint64_t size_bytes);
void heap_plain_free(void);

// The driver's cuMemAlloc and cuMemFree, for allocators that berm gets memory from; 0: it has none.
berm_addr_t heap_driver_alloc(uint64_t size_bytes);
void heap_driver_free(berm_addr_t addr);

// berm_alloc that must succeed, and berm_free that must.
berm_addr_t heap_alloc(uint64_t size_bytes, void *stream);
void heap_free(berm_addr_t addr, void *stream);

#endif
