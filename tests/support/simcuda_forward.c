// SPDX-License-Identifier: Apache-2.0
// The functions of simcuda.h under their own names, passed on to the library that BERM_LIBCUDA_SIM
// names: tests are not linked with it, since berm opens it as it would open a real driver.
//
// Locks: none. A library that cannot be opened, or lacks a function, aborts with a line.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda.h"
#include "tests/support/simcuda_forward.h"

void *simcuda_symbol(const char *name) {
    const char *path = getenv("BERM_LIBCUDA_SIM");
    // Opened anew each time: the loader counts, and never unloads it.
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    if (symbol == NULL) {
        (void)fprintf(stderr, "no %s in the library of BERM_LIBCUDA_SIM (%s)\n", name,
                      path != NULL ? path : "not set; run the test with ctest");
        abort();
    }
    return symbol;
}

static void *symbol_once(_Atomic(void *) *found, const char *name) {
    void *symbol = *found;
    if (symbol == NULL)
        *found = symbol = simcuda_symbol(name);
    return symbol;
}

// What is found is kept; atomic, for programs with threads.
#define FORWARD(type, name, parameters, arguments)                                                 \
    type name parameters {                                                                         \
        static _Atomic(void *) found;                                                              \
        type(*function) parameters;                                                                \
        void *symbol = symbol_once(&found, #name);                                                 \
        memcpy(&function, &symbol, sizeof function);                                               \
        return function arguments;                                                                 \
    }

// The same for functions that return nothing, where `return f();` is not C.
#define FORWARD_VOID(name, parameters, arguments)                                                  \
    void name parameters {                                                                         \
        static _Atomic(void *) found;                                                              \
        void(*function) parameters;                                                                \
        void *symbol = symbol_once(&found, #name);                                                 \
        memcpy(&function, &symbol, sizeof function);                                               \
        function arguments;                                                                        \
    }

// clang-format off
FORWARD(int, simcuda_costs_preset, (const char *name, simcuda_costs_t *costs), (name, costs))
FORWARD_VOID(simcuda_config_default, (simcuda_config_t *config), (config))
FORWARD(int, simcuda_reset, (const simcuda_config_t *config), (config))
FORWARD(uint64_t, simcuda_now_ns, (void), ())
FORWARD_VOID(simcuda_advance_ns, (uint64_t ns), (ns))
FORWARD(uint64_t, simcuda_driver_ns, (void), ())
FORWARD(uint64_t, simcuda_wait_ns, (void), ())
FORWARD(int, simcuda_launch, (void *stream, uint64_t ns, const simcuda_access_t *accesses, size_t count), (stream, ns, accesses, count))
FORWARD(int, simcuda_launch_fn, (void *stream, uint64_t ns, const simcuda_access_t *accesses, size_t count, simcuda_kernel_fn fn, void *arg), (stream, ns, accesses, count, fn, arg))
FORWARD(int, simcuda_gate, (void *stream, const simcuda_access_t *accesses, size_t count, uint64_t *gate), (stream, accesses, count, gate))
FORWARD(int, simcuda_gate_open, (uint64_t gate), (gate))
FORWARD(const char *, simcuda_hazard_name, (simcuda_hazard_kind_t kind), (kind))
FORWARD(uint64_t, simcuda_hazard_count, (void), ())
FORWARD(uint64_t, simcuda_hazard_count_of, (simcuda_hazard_kind_t kind), (kind))
FORWARD(int, simcuda_hazard_read, (uint64_t index, simcuda_hazard_t *hazard), (index, hazard))
FORWARD_VOID(simcuda_hazards_clear, (void), ())
FORWARD_VOID(simcuda_ledger_read, (int device, simcuda_ledger_t *ledger), (device, ledger))
FORWARD(int, simcuda_fault_nth, (const char *name, uint64_t nth, uint64_t count, int result), (name, nth, count, result))
FORWARD(int, simcuda_fault_random, (const char *name, uint32_t per_million, uint64_t seed, int result), (name, per_million, seed, result))
FORWARD_VOID(simcuda_faults_clear, (void), ())
FORWARD(uint64_t, simcuda_faults_fired, (void), ())
FORWARD(uint64_t, simcuda_calls, (const char *name), (name))
FORWARD(int, simcuda_outside_set, (int device, uint64_t bytes), (device, bytes))
FORWARD_VOID(simcuda_device_lose, (int device), (device))
// clang-format on
