// SPDX-License-Identifier: Apache-2.0
// Loads and launches the kernels of kernels.h; the PTX is in kernels_ptx.c.
//
// Locks: none; one thread. May fail: no such functions in the driver, a compiler in the driver that
// refuses, no memory; `why` says which. On the simulated device at most HOST_KERNELS wait at a
// time; one that never runs, as after a fault, keeps its place.
#include "stress/calibrate/kernels.h"

#include <string.h>

enum {
    BLOCKS = 32, // few enough that a kernel behind finds room, many enough to use several units
    THREADS = 256,
    DEPENDENT_CAPABILITY = 9,
    HOST_KERNELS = 256,
};

static const char *const names[STRESS_KERNEL_COUNT] = {"berm_fill", "berm_check", "berm_fill_early",
                                                       "berm_check_late", "berm_check_now"};

// --- the simulated device ------------------------------------------------------------------------

typedef struct host_kernel {
    bool is_waiting;
    bool is_fill;
    uint32_t *words, *wrong;
    uint64_t count;
    uint32_t value;
} host_kernel_t;

static host_kernel_t host_kernels[HOST_KERNELS];

static host_kernel_t *host_kernel_free(void) {
    for (size_t i = 0; i < HOST_KERNELS; i++)
        if (!host_kernels[i].is_waiting)
            return &host_kernels[i];
    return NULL;
}

static void host_kernel_run(void *argument) {
    host_kernel_t *k = argument;
    for (uint64_t i = 0; i < k->count; i++) {
        uint32_t wanted = k->value + (uint32_t)i;
        if (k->is_fill)
            k->words[i] = wanted;
        else if (k->words[i] != wanted)
            ++*k->wrong;
    }
    k->is_waiting = false;
}

static int host_kernel_launch(stress_kernels_t *k, bool is_fill, berm_cu_stream_t stream,
                              uint64_t addr, uint64_t bytes, uint32_t value, uint64_t ns) {
    host_kernel_t *kernel = host_kernel_free();
    if (kernel == NULL)
        return BERM_CU_OUT_OF_MEMORY; // of places
    *kernel = (host_kernel_t){.is_waiting = true,
                              .is_fill = is_fill,
                              .words = (uint32_t *)(uintptr_t)addr,
                              .wrong = (uint32_t *)(uintptr_t)k->result_addr,
                              .count = bytes / sizeof(uint32_t),
                              .value = value};
    const simcuda_access_t accesses[] = {{addr, bytes, is_fill ? 1 : 0},
                                         {k->result_addr, sizeof(uint32_t), 1}};
    // It may have run by now; and it may be queued even where the call fails.
    return stress_simcuda()->launch_fn(stream, ns, accesses, is_fill ? 1 : 2, host_kernel_run,
                                       kernel);
}

// --- hardware ------------------------------------------------------------------------------------

static int module_load(stress_kernels_t *k, int module, const char *ptx, stress_kernel_t first,
                       stress_kernel_t end) {
    int result = k->c->module.load_data(&k->modules[module], ptx);
    if (result != BERM_CU_SUCCESS)
        k->modules[module] = NULL;
    for (int i = (int)first; result == BERM_CU_SUCCESS && i < (int)end; i++)
        result = k->c->module.get_function(&k->functions[i], k->modules[module], names[i]);
    return result;
}

static int modules_load(stress_kernels_t *k, char *why, size_t why_capacity) {
    const stress_module_calls_t *m = &k->c->module;
    if (m->load_data == NULL || m->get_function == NULL || m->unload == NULL || m->launch == NULL) {
        (void)snprintf(why, why_capacity, "the driver has no functions for kernels");
        return BERM_CU_NOT_FOUND;
    }
    int result =
        module_load(k, 0, stress_kernels_ptx, STRESS_KERNEL_FILL, STRESS_KERNEL_FILL_EARLY);
    if (result != BERM_CU_SUCCESS) {
        (void)snprintf(why, why_capacity, "the driver refused the kernels: CUresult %d", result);
        return result;
    }
    // Where this is refused there is no dependent launch, and only its rule is left out.
    k->can_depend = k->c->capability_major >= DEPENDENT_CAPABILITY && m->launch_ex != NULL &&
                    module_load(k, 1, stress_kernels_dependent_ptx, STRESS_KERNEL_FILL_EARLY,
                                STRESS_KERNEL_COUNT) == BERM_CU_SUCCESS;
    return BERM_CU_SUCCESS;
}

static int module_launch(const stress_kernels_t *k, stress_kernel_t kernel, berm_cu_stream_t stream,
                         void **parameters) {
    if (kernel != STRESS_KERNEL_CHECK_LATE && kernel != STRESS_KERNEL_CHECK_NOW)
        return k->c->module.launch(k->functions[kernel], BLOCKS, 1, 1, THREADS, 1, 1, 0, stream,
                                   parameters, NULL);
    stress_cu_launch_attribute_t attribute = {.id = STRESS_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC,
                                              .value.programmatic_allowed = 1};
    stress_cu_launch_config_t config = {.grid_x = BLOCKS,
                                        .grid_y = 1,
                                        .grid_z = 1,
                                        .block_x = THREADS,
                                        .block_y = 1,
                                        .block_z = 1,
                                        .stream = stream,
                                        .attributes = &attribute,
                                        .attribute_count = 1};
    return k->c->module.launch_ex(&config, k->functions[kernel], parameters, NULL);
}

// --- both ----------------------------------------------------------------------------------------

static bool is_hardware(const stress_kernels_t *k) {
    return k->modules[0] != NULL;
}

int stress_kernels_launch(stress_kernels_t *k, stress_kernel_t kernel, berm_cu_stream_t stream,
                          uint64_t addr, uint64_t bytes, uint32_t value, uint64_t ns) {
    if (!is_hardware(k))
        return host_kernel_launch(k, kernel == STRESS_KERNEL_FILL, stream, addr, bytes, value, ns);
    uint64_t words = bytes / sizeof(uint32_t);
    void *parameters[] = {&addr, &words, &k->result_addr, &ns, &value};
    return module_launch(k, kernel, stream, parameters);
}

int stress_kernels_wrong(stress_kernels_t *k, berm_cu_stream_t stream, uint32_t *wrong) {
    int result = k->c->copy_to_host(wrong, k->result_addr, sizeof *wrong, stream);
    return result != BERM_CU_SUCCESS ? result : k->c->d->stream_synchronize(stream);
}

// The driver may load a kernel when it is first launched, which must not be taken for its time.
static int warm_up(stress_kernels_t *k) {
    int result = k->c->fill(k->result_addr, 0, sizeof(uint32_t), NULL);
    int last = k->can_depend ? STRESS_KERNEL_COUNT : STRESS_KERNEL_FILL_EARLY;
    for (int i = 0; result == BERM_CU_SUCCESS && i < last; i++)
        result = stress_kernels_launch(k, (stress_kernel_t)i, NULL, k->result_addr, 0, 0, 0);
    return result != BERM_CU_SUCCESS ? result : k->c->d->stream_synchronize(NULL);
}

int stress_kernels_open(stress_kernels_t *k, const stress_calibrate_driver_t *c, char *why,
                        size_t why_capacity) {
    *k = (stress_kernels_t){.c = c};
    if (!c->is_backed) {
        (void)snprintf(why, why_capacity, "memory has no contents");
        return BERM_CU_NOT_SUPPORTED;
    }
    int result = BERM_CU_SUCCESS;
    if (c->has_modules && (result = modules_load(k, why, why_capacity)) != BERM_CU_SUCCESS) {
        stress_kernels_close(k);
        return result;
    }
    result = c->d->mem_alloc(&k->result_addr, sizeof(uint32_t));
    if (result != BERM_CU_SUCCESS)
        k->result_addr = 0;
    else
        result = warm_up(k);
    if (result != BERM_CU_SUCCESS) {
        (void)snprintf(why, why_capacity, "kernels do not run: CUresult %d", result);
        stress_kernels_close(k);
    }
    return result;
}

void stress_kernels_close(stress_kernels_t *k) {
    if (k->result_addr != 0)
        (void)k->c->d->mem_free(k->result_addr);
    for (int i = 0; i < 2; i++)
        if (k->modules[i] != NULL)
            (void)k->c->module.unload(k->modules[i]);
    *k = (stress_kernels_t){.c = k->c};
}
