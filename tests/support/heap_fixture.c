// SPDX-License-Identifier: Apache-2.0
// See heap_fixture.h. One fixture a process at a time; one thread begins and ends it.
#include "tests/support/heap_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "berm_introspect.h"
#include "tests/support/simcuda_forward.h"

enum {
    STREAMS_MAX = 64,
    STREAM_NON_BLOCKING = 1,
};

// What a program calls itself; filled on first use.
static struct {
    berm_cu_init_fn init;
    berm_cu_primary_ctx_retain_fn retain;
    berm_cu_primary_ctx_release_fn release;
    berm_cu_ctx_set_current_fn set_current;
    berm_cu_ctx_synchronize_fn ctx_synchronize;
    berm_cu_stream_create_fn stream_create;
    berm_cu_stream_destroy_fn stream_destroy;
    berm_cu_stream_synchronize_fn stream_synchronize;
    berm_cu_stream_wait_event_fn stream_wait;
    berm_cu_event_create_fn event_create;
    berm_cu_event_record_fn event_record;
    berm_cu_event_destroy_fn event_destroy;
    berm_cu_mem_alloc_fn mem_alloc;
    berm_cu_mem_free_fn mem_free;
} cu;

static struct {
    int devices;
    void *streams[STREAMS_MAX];
    unsigned stream_count;
    int has_caches;
    berm_addr_t plain_addr; // the test's own
    uint64_t plain_bytes;
    char conf[1024];
} fixture;

void heap_fixture_fail(const char *file, int line, const char *what) {
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

// A test's own driver calls may be hit by a fault that is meant for berm's: the second try counts.
#define TWICE(call) ((call) == BERM_CU_SUCCESS || (call) == BERM_CU_SUCCESS)

#define CU_LOAD(field, symbol)                                                                     \
    do {                                                                                           \
        void *function_ = simcuda_symbol(symbol);                                                  \
        memcpy(&cu.field, &function_, sizeof cu.field);                                            \
    } while (0)

static void driver_load(void) {
    if (cu.init != NULL)
        return;
    CU_LOAD(init, "cuInit");
    CU_LOAD(retain, "cuDevicePrimaryCtxRetain");
    CU_LOAD(release, "cuDevicePrimaryCtxRelease_v2");
    CU_LOAD(set_current, "cuCtxSetCurrent");
    CU_LOAD(ctx_synchronize, "cuCtxSynchronize");
    CU_LOAD(stream_create, "cuStreamCreate");
    CU_LOAD(stream_destroy, "cuStreamDestroy_v2");
    CU_LOAD(stream_synchronize, "cuStreamSynchronize");
    CU_LOAD(stream_wait, "cuStreamWaitEvent");
    CU_LOAD(event_create, "cuEventCreate");
    CU_LOAD(event_record, "cuEventRecord");
    CU_LOAD(event_destroy, "cuEventDestroy_v2");
    CU_LOAD(mem_alloc, "cuMemAlloc_v2");
    CU_LOAD(mem_free, "cuMemFree_v2");
}

static void device_make(const heap_fixture_options_t *options) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = options->devices != 0 ? options->devices : 1;
    config.memory_bytes = options->memory_bytes != 0 ? options->memory_bytes : (uint64_t)256 << 20;
    if (options->granule_bytes != 0)
        config.granule_bytes = options->granule_bytes;
    if (options->address_bytes != 0)
        config.address_bytes = options->address_bytes;
    config.mappings_max = options->mappings_max;
    config.handles_max = options->handles_max;
    config.is_strict = !options->is_lenient;
    config.has_ctx_event = !options->lacks_ctx_event;
    config.is_backed = options->is_backed;
    config.lacks_peers = options->lacks_peers;
    config.has_vmm = !options->lacks_vmm;
    HEAP_INSIST(simcuda_reset(&config) == 0);
    fixture.devices = config.devices;
}

const char *heap_fixture_conf(const char *more) {
    const char *path = getenv("BERM_LIBCUDA_SIM");
    int length = snprintf(fixture.conf, sizeof fixture.conf, "driver:%s,thread_cache:%s%s%s",
                          path != NULL ? path : "", fixture.has_caches ? "on" : "off",
                          more != NULL ? "," : "", more != NULL ? more : "");
    HEAP_INSIST(length > 0 && (size_t)length < sizeof fixture.conf);
    return fixture.conf;
}

void heap_fixture_begin(const heap_fixture_options_t *options) {
    static const heap_fixture_options_t defaults;
    if (options == NULL)
        options = &defaults;
    driver_load();
    device_make(options);
    fixture.has_caches = options->has_caches != 0;
    berm_cu_context_t context = NULL;
    HEAP_INSIST(cu.init(0) == BERM_CU_SUCCESS);
    HEAP_INSIST(cu.retain(&context, 0) == BERM_CU_SUCCESS);
    HEAP_INSIST(cu.set_current(context) == BERM_CU_SUCCESS);
    fixture.stream_count = 0;
    if (options->stays_stopped)
        return;
    berm_status_t status = berm_init(heap_fixture_conf(options->berm));
    if (status != BERM_OK) {
        (void)fprintf(stderr, "berm_init: %s: %s\n", berm_status_name(status),
                      berm_error_message());
        abort();
    }
}

static void figure_compare(const char *file, int line, const char *what, uint64_t ours,
                           uint64_t ledger) {
    if (ours == ledger)
        return;
    (void)fprintf(stderr, "%s:%d: %s: berm says %" PRIu64 ", the device's ledger %" PRIu64 "\n",
                  file, line, what, ours, ledger);
    abort();
}

void heap_fixture_check(const char *file, int line) {
    int invariant = 0;
    berm_status_t status = berm_audit(&invariant);
    if (status == BERM_ERROR_SHUTDOWN)
        return;
    if (status != BERM_OK) {
        (void)fprintf(stderr, "%s:%d: the audit says %s: %s\n", file, line,
                      berm_status_name(status), berm_error_message());
        abort();
    }
    for (int device = 0; device < fixture.devices; device++) {
        berm_stats_t stats = {.size = sizeof stats};
        simcuda_ledger_t ledger;
        HEAP_INSIST(berm_stats_read(device, &stats) == BERM_OK);
        simcuda_ledger_read(device, &ledger);
        figure_compare(file, line, "reserved bytes", stats.reserved_bytes.current,
                       ledger.handle_bytes + ledger.allocation_bytes - ledger.import_bytes -
                           fixture.plain_bytes);
        figure_compare(file, line, "mappings", stats.mappings + stats.imported_mappings,
                       ledger.mappings);
        figure_compare(file, line, "address bytes", stats.address_bytes + stats.imported_bytes,
                       ledger.reserved_address_bytes);
    }
}

static void ledger_check_empty(const char *file, int line) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(-1, &ledger);
    figure_compare(file, line, "handles left", 0, ledger.handles);
    figure_compare(file, line, "mappings left", 0, ledger.mappings);
    figure_compare(file, line, "reservations left", 0, ledger.reservations);
    figure_compare(file, line, "allocations left", 0, ledger.allocations);
    figure_compare(file, line, "events left", 0, ledger.events);
    figure_compare(file, line, "streams left", 0, ledger.streams);
    figure_compare(file, line, "contexts left", 0, ledger.contexts_retained);
    figure_compare(file, line, "hazards", 0, simcuda_hazard_count());
}

void heap_fixture_end(const char *file, int line) {
    heap_fixture_check(file, line);
    berm_status_t status = berm_shutdown(NULL);
    if (status != BERM_OK && status != BERM_ERROR_SHUTDOWN) {
        (void)fprintf(stderr, "%s:%d: berm_shutdown: %s\n", file, line, berm_status_name(status));
        abort();
    }
    while (fixture.stream_count > 0)
        heap_stream_destroy(fixture.streams[0]);
    HEAP_INSIST(TWICE(cu.set_current(NULL)));
    HEAP_INSIST(TWICE(cu.release(0)));
    ledger_check_empty(file, line);
}

void *heap_stream_create(void) {
    berm_cu_stream_t stream = NULL;
    HEAP_INSIST(fixture.stream_count < STREAMS_MAX);
    HEAP_INSIST(cu.stream_create(&stream, STREAM_NON_BLOCKING) == BERM_CU_SUCCESS);
    fixture.streams[fixture.stream_count++] = stream;
    return stream;
}

void heap_stream_destroy(void *stream) {
    unsigned index = 0;
    while (index < fixture.stream_count && fixture.streams[index] != stream)
        index++;
    HEAP_INSIST(index < fixture.stream_count);
    fixture.streams[index] = fixture.streams[--fixture.stream_count];
    HEAP_INSIST(TWICE(cu.stream_destroy(stream)));
}

void heap_stream_follow(void *stream, void *other) {
    berm_cu_event_t event = NULL;
    HEAP_INSIST(TWICE(cu.event_create(&event, BERM_CU_EVENT_DISABLE_TIMING)));
    HEAP_INSIST(TWICE(cu.event_record(event, other)));
    HEAP_INSIST(TWICE(cu.stream_wait(stream, event, 0)));
    HEAP_INSIST(TWICE(cu.event_destroy(event)));
}

void heap_stream_synchronize(void *stream) {
    HEAP_INSIST(TWICE(cu.stream_synchronize(stream)));
}

void heap_context_synchronize(void) {
    HEAP_INSIST(TWICE(cu.ctx_synchronize()));
}

void heap_use(void *stream, berm_addr_t addr, uint64_t size_bytes, uint64_t duration_ns) {
    simcuda_access_t access = {.addr = addr, .size_bytes = size_bytes, .is_write = 1};
    HEAP_INSIST(simcuda_launch(stream, duration_ns, &access, 1) == BERM_CU_SUCCESS);
}

void heap_plain_alloc(uint64_t size_bytes) {
    HEAP_INSIST(fixture.plain_addr == 0);
    HEAP_INSIST(TWICE(cu.mem_alloc(&fixture.plain_addr, size_bytes)));
    fixture.plain_bytes = size_bytes;
}

void heap_plain_free(void) {
    HEAP_INSIST(TWICE(cu.mem_free(fixture.plain_addr)));
    fixture.plain_addr = fixture.plain_bytes = 0;
}

berm_addr_t heap_driver_alloc(uint64_t size_bytes) {
    berm_addr_t addr = 0;
    return cu.mem_alloc(&addr, size_bytes) == BERM_CU_SUCCESS ? addr : 0;
}

void heap_driver_free(berm_addr_t addr) {
    HEAP_INSIST(TWICE(cu.mem_free(addr)));
}

berm_addr_t heap_alloc(uint64_t size_bytes, void *stream) {
    berm_addr_t addr = 0;
    berm_status_t status = berm_alloc(size_bytes, 0, stream, &addr);
    if (status == BERM_OK)
        return addr;
    (void)fprintf(stderr, "berm_alloc of %" PRIu64 " bytes: %s: %s\n", size_bytes,
                  berm_status_name(status), berm_error_message());
    abort();
}

void heap_free(berm_addr_t addr, void *stream) {
    berm_status_t status = berm_free(addr, BERM_DEVICE_ANY, stream);
    if (status == BERM_OK)
        return;
    (void)fprintf(stderr, "berm_free of 0x%" PRIx64 ": %s: %s\n", addr, berm_status_name(status),
                  berm_error_message());
    abort();
}
