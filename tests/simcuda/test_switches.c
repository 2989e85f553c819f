// SPDX-License-Identifier: Apache-2.0
// The switches: dependent launch, latency files; drains, Volta and gfx12 with contents.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_test.h"

static simcuda_config_t config;

static void start_pdl(uint64_t overlap_ns, int is_backed) {
    simcuda_config_default(&config);
    config.pdl_overlap_ns = overlap_ns;
    config.is_backed = is_backed;
    start_with(&config);
}

static uint64_t event_ns(berm_cu_event_t start, berm_cu_event_t end) {
    float ms = -1;
    OK(cuEventElapsedTime(&ms, start, end));
    return (uint64_t)((double)ms * 1e6 + 0.5);
}

// The time from the start to the end of two kernels of the given lengths in one stream.
static uint64_t two_kernels(uint64_t first_ns, uint64_t second_ns) {
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_event_t start_event = event_new(), end_event = event_new();
    OK(cuEventRecord(start_event, stream));
    OK(launch(stream, 1000000, 0, 0, 0)); // covers the host's own time
    OK(cuEventRecord(start_event, stream));
    OK(launch(stream, first_ns, 0, 0, 0));
    OK(launch(stream, second_ns, 0, 0, 0));
    OK(cuEventRecord(end_event, stream));
    OK(cuStreamSynchronize(stream));
    return event_ns(start_event, end_event);
}

Test(pdl, a_kernel_overlaps_the_one_before) {
    start_pdl(3000, 0);
    cr_assert(two_kernels(10000, 10000) == 17000);
    cr_assert(two_kernels(10000, 1000) == 10000, "it does not end before the one before");
    cr_assert(two_kernels(2000, 10000) == 10000, "it does not start before it was possible");
    start_pdl(0, 0);
    cr_assert(two_kernels(10000, 10000) == 20000);
}

Test(pdl, copies_and_events_do_not_overlap) {
    start_pdl(3000, 0);
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    berm_cu_event_t a = event_new(), b = event_new();
    (void)map_at(addr, MIB(2));
    OK(launch(stream, 1000000, 0, 0, 0));
    OK(cuEventRecord(a, stream));
    OK(launch(stream, 10000, 0, 0, 0));
    OK(cuMemsetD8Async(addr, 0, 1, stream)); // 2 us
    OK(launch(stream, 10000, 0, 0, 0));
    OK(cuEventRecord(b, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert(event_ns(a, b) == 22000);
}

typedef struct place {
    berm_cu_deviceptr_t addr;
    int value;
} place_t;

static void run_write(void *argument) {
    const place_t *place = argument;
    *(volatile unsigned char *)(uintptr_t)place->addr = (unsigned char)place->value;
}

static int launch_write(berm_cu_stream_t stream, uint64_t ns, place_t *place) {
    simcuda_access_t access = {place->addr, 1, 1};
    return simcuda_launch_fn(stream, ns, &access, 1, run_write, place);
}

// Two writes by two kernels in one stream, the second through `second`; what is there at the end.
static int last_value(berm_cu_deviceptr_t first, berm_cu_deviceptr_t second, int has_event) {
    berm_cu_stream_t stream = stream_new(1);
    place_t places[2] = {{first, 1}, {second, 2}};
    OK(launch(stream, 10000000, 0, 0, 0));
    OK(cuEventRecord(event_new(), stream));
    OK(launch_write(stream, 10000, &places[0]));
    if (has_event)
        OK(cuEventRecord(event_new(), stream));
    OK(launch_write(stream, 10000, &places[1]));
    OK(cuStreamSynchronize(stream));
    return *(volatile unsigned char *)(uintptr_t)first;
}

Test(pdl, an_alias_is_caught_and_its_bytes_are_wrong) {
    for (int is_pdl = 0; is_pdl < 2; is_pdl++) {
        start_pdl(is_pdl ? 3000 : 0, 1);
        berm_cu_deviceptr_t addr = reserve(MIB(4));
        berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
        OK(cuMemMap(addr + MIB(2), MIB(2), 0, handle, 0));
        OK(cuMemSetAccess(addr + MIB(2), MIB(2), &read_write, 1));
        cr_assert(last_value(addr, addr, 0) == 2, "one address is in order");
        cr_assert(last_value(addr, addr + MIB(2), 1) == 2, "an event ends the overlap");
        HAZARDS(0);
        cr_assert(last_value(addr, addr + MIB(2), 0) == (is_pdl ? 1 : 2));
        HAZARDS((uint64_t)is_pdl);
        if (is_pdl)
            cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_ALIAS);
    }
}

Test(pdl, reads_through_an_alias_do_not_matter) {
    start_pdl(3000, 0);
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    OK(cuMemMap(addr + MIB(2), MIB(2), 0, handle, 0));
    OK(cuMemSetAccess(addr + MIB(2), MIB(2), &read_write, 1));
    OK(launch(stream, 1000000, addr, 8, 0));
    OK(launch(stream, 1000000, addr + MIB(2), 8, 0));
    HAZARDS(0);
    OK(launch(stream, 1000000, addr, 8, 1)); // written while the one before still reads
    HAZARDS(1);
}

Test(pdl, the_environment_sets_it) {
    setenv("SIMCUDA_PDL_OVERLAP_NS", "3000", 1);
    start();
    cr_assert(two_kernels(10000, 10000) == 17000);
}

// --- drains and Volta with contents
// ---------------------------------------------------------------

Test(drain, work_is_done_before_the_page_goes) {
    simcuda_config_default(&config);
    config.is_backed = config.drains_map = config.faults_page_edits = 1;
    start_with(&config);
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    place_t place = {addr, 5};
    OK(launch_write(stream, 1000000, &place));
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemMap(addr + MIB(2), MIB(2), 0, handle, 0));
    OK(cuMemSetAccess(addr + MIB(2), MIB(2), &read_write, 1));
    cr_assert(*(volatile unsigned char *)(uintptr_t)(addr + MIB(2)) == 5);
    OK(cuStreamSynchronize(stream));
    HAZARDS(0);
}

Test(volta, an_edit_under_work_ends_it) {
    simcuda_config_default(&config);
    config.is_backed = config.faults_page_edits = 1;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    (void)map_at(addr, MIB(2));
    place_t place = {addr, 5};
    OK(launch_write(NULL, 1000000, &place));
    OK(cuMemMap(addr + MIB(2), MIB(2), 0, create(MIB(2)), 0)); // an unrelated page
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_EDIT_UNDER_WORK);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    cr_assert(*(volatile unsigned char *)(uintptr_t)addr == 0);
}

// --- latency files -------------------------------------------------------------------------------

static char path[64];

static const char *file_with(const char *text) {
    (void)snprintf(path, sizeof(path), "/tmp/simcuda-latency-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
    return path;
}

Test(latency, a_file_overrides_a_preset) {
    simcuda_costs_t slow, costs;
    char error[256] = "";
    OK(simcuda_costs_preset("slow", &slow));
    OK(simcuda_costs_read(file_with("# measured\npreset=slow\n create.base_ns = 123 # one\n"
                                    "malloc.ns_per_mib=7\n\nunmap.per_mapping_ns=9\n"),
                          &costs, error, sizeof(error)));
    (void)unlink(path);
    cr_assert(costs.create.base_ns == 123 && costs.malloc_.ns_per_mib == 7);
    cr_assert(costs.unmap.per_mapping_ns == 9 && costs.unmap.base_ns == slow.unmap.base_ns);
    OK(simcuda_costs_read("fast", &costs, error, sizeof(error)));
    cr_assert(costs.reserve.base_ns == 2000);
}

Test(latency, bad_files_are_refused_with_their_line) {
    static const char *const bad[] = {"create.base_ns\n",
                                      "preset=quick\n",
                                      "creat.base_ns=1\n",
                                      "create.base=1\n",
                                      "create=1\n",
                                      "create.base_ns=-1\n",
                                      "create.base_ns=1000000000001\n"};
    simcuda_costs_t costs;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        char text[128], error[256] = "";
        (void)snprintf(text, sizeof(text), "preset=fast\n%s", bad[i]);
        FAILS(simcuda_costs_read(file_with(text), &costs, error, sizeof(error)), -1);
        (void)unlink(path);
        cr_assert(strstr(error, ":2: ") != NULL, "%s", error);
    }
    char error[256] = "";
    FAILS(simcuda_costs_read("/no/such/file", &costs, error, sizeof(error)), -1);
    cr_assert(strstr(error, "/no/such/file") != NULL);
    FAILS(simcuda_costs_read(NULL, &costs, error, sizeof(error)), -1);
}

Test(latency, the_environment_names_a_file) {
    setenv("SIMCUDA_LATENCY", file_with("reserve.base_ns=77\n"), 1);
    start();
    (void)unlink(path);
    uint64_t before = simcuda_now_ns();
    (void)reserve(MIB(2));
    cr_assert(simcuda_now_ns() - before == 77);
}
