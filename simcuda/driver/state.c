// SPDX-License-Identifier: Apache-2.0
// The one device state of the process: its lock, entering and leaving a driver call, making and
// destroying. What calls do is left to the other files; configuration by environment to config.c.
//
// Locks: one mutex, taken in sim_enter / sim_lock. No host function of the program runs with it.
// Fork: a child of a process that had called cuInit gets NOT_INITIALIZED from every call and never
// touches the state; a child forked before that has a working state of its own.
// May fail: sim_state_make, when host memory runs out; the state is then the empty one.
#include <pthread.h>
#include <stdlib.h>

#include "backing.h"
#include "graph.h"
#include "module.h"
#include "pool.h"
#include "managed.h"

enum {
    EARLY = 1,
    QUERY = 2,
    VMM = 4,
    CTX = 8,
    STICKY = 16,
    UNSAFE = 32,
};

// clang-format off
static const uint8_t fn_rules[SIM_FN_COUNT] = {
#define SIM_FN(symbol, name, version, rules, type)        [SIM_FN_##symbol] = (rules),
#define SIM_FN_STREAM(symbol, name, version, rules, type) [SIM_FN_##symbol] = (rules),
#include "functions.def"
#undef SIM_FN
#undef SIM_FN_STREAM
};
// clang-format on

sim_state_t sim;
_Thread_local sim_thread_t sim_thread;
atomic_bool sim_is_in_kernel;

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t state_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool has_thread_key;
static uint64_t thread_count;
static bool is_orphan; // a forked child of an initialised process

// --- fork and threads ----------------------------------------------------------------------------

static void fork_prepare(void) {
    pthread_mutex_lock(&state_mutex);
}

static void fork_parent(void) {
    pthread_mutex_unlock(&state_mutex);
}

static void fork_child(void) {
    is_orphan = is_orphan || sim.is_init;
    pthread_mutex_unlock(&state_mutex);
}

static void thread_exit(void *number) {
    if (!sim_lock())
        return;
    sim_streams_thread_exit((uint64_t)(uintptr_t)number);
    sim_unlock();
}

static void state_register(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    has_thread_key = pthread_key_create(&thread_key, thread_exit) == 0;
}

bool sim_thread_number(void) {
    if (sim_thread.number != 0)
        return true;
    uint64_t number = thread_count + 1;
    if (!has_thread_key || pthread_setspecific(thread_key, (void *)(uintptr_t)number) != 0)
        return false;
    thread_count = number;
    sim_thread.number = number;
    return true;
}

// --- lock ----------------------------------------------------------------------------------------

// The first use makes the state the environment asks for.
static void state_first_use(void) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    sim.is_env_bad = !sim_config_from_environment(&config);
    if (sim.is_env_bad)
        simcuda_config_default(&config);
    sim.is_ready = sim_state_make(&config);
}

bool sim_lock(void) {
    pthread_once(&state_once, state_register);
    if (is_orphan)
        return false;
    // A kernel's thread has the lock already; sim_thread is not looked at in vain.
    if (atomic_load_explicit(&sim_is_in_kernel, memory_order_relaxed) && sim_thread.is_in_kernel)
        return false;
    pthread_mutex_lock(&state_mutex);
    if (!sim.is_ready)
        state_first_use();
    return true;
}

void sim_unlock(void) {
    pthread_mutex_unlock(&state_mutex);
}

// Whether the call's device is lost: that of the current context, or any where there is none.
static bool state_is_lost(const sim_context_t *context) {
    if (context != NULL)
        return sim.devices[context->device].is_lost;
    for (int i = 0; i < sim.config.devices; i++) {
        if (sim.devices[i].is_lost)
            return true;
    }
    return false;
}

static int enter_check(sim_fn_t fn) {
    unsigned rules = fn_rules[fn];
    if (!sim.is_ready)
        return BERM_CU_OUT_OF_MEMORY;
    if (sim_thread.is_in_callback && (rules & EARLY) == 0)
        return BERM_CU_NOT_PERMITTED;
    if ((rules & EARLY) == 0 && !sim.is_init)
        return BERM_CU_NOT_INITIALIZED;
    sim_context_t *context = sim_context_current();
    if ((rules & (EARLY | QUERY)) == 0 && state_is_lost(context))
        return BERM_CU_DEVICE_UNAVAILABLE;
    int fault = sim_fault_draw(fn);
    if (fault != BERM_CU_SUCCESS)
        return fault;
    if ((rules & VMM) != 0 && !sim.config.has_vmm)
        return BERM_CU_NOT_SUPPORTED;
    if ((rules & CTX) != 0 && context == NULL)
        return BERM_CU_INVALID_CONTEXT;
    if ((rules & STICKY) != 0 && context != NULL && context->sticky != BERM_CU_SUCCESS)
        return context->sticky;
    if ((rules & UNSAFE) != 0 && !((rules & VMM) != 0 && sim.config.has_capture_edits))
        return sim_capture_check_unsafe();
    return BERM_CU_SUCCESS;
}

int sim_enter(sim_fn_t fn) {
    if (!sim_lock())
        return sim_thread.is_in_kernel ? BERM_CU_NOT_PERMITTED : BERM_CU_NOT_INITIALIZED;
    sim.calls[fn]++;
    sim_real_follow();
    return enter_check(fn);
}

// What is due by now is done, and the lock given back. The time to sleep until, or 0.
static uint64_t leave_unlock(const sim_callback_t *callback) {
    if (callback == NULL)
        sim_effects_run();
    uint64_t target_ns = sim_real_target();
    sim_unlock();
    return target_ns;
}

int sim_leave(int result) {
    // Whoever comes here has the lock, or was refused it because its thread runs a kernel.
    if (is_orphan || atomic_load_explicit(&sim_is_in_kernel, memory_order_relaxed))
        return result;
    sim_callback_t *callback = NULL;
    if (!berm__list_is_empty(&sim.callbacks) && !sim_thread.is_in_callback)
        callback = sim_callback_take();
    uint64_t target_ns = leave_unlock(callback);
    while (callback != NULL) {
        sim_thread.is_in_callback = true;
        callback->fn(callback->data);
        sim_thread.is_in_callback = false;
        free(callback);
        if (!sim_lock())
            break;
        callback = sim_callback_take();
        target_ns = leave_unlock(callback);
    }
    if (BERM_UNLIKELY(target_ns != 0))
        sim_real_sleep(target_ns);
    return result;
}

// --- making and destroying -----------------------------------------------------------------------

static void state_empty(void) {
    bool is_init = sim.is_init;
    uint64_t generation = sim.generation;
    bool is_env_bad = sim.is_env_bad;
    sim = (sim_state_t){.is_init = is_init, .generation = generation + 1, .is_env_bad = is_env_bad};
    sim_table_init(&sim.contexts, SIM_KIND_CONTEXT);
    sim_table_init(&sim.streams, SIM_KIND_STREAM);
    sim_table_init(&sim.events, SIM_KIND_EVENT);
    sim_table_init(&sim.graphs, SIM_KIND_GRAPH);
    sim_table_init(&sim.execs, SIM_KIND_EXEC);
    sim_table_init(&sim.pools, SIM_KIND_POOL);
    sim_table_init(&sim.memories, SIM_KIND_MEMORY);
    sim_table_init(&sim.modules, SIM_KIND_MODULE);
    sim_table_init(&sim.functions, SIM_KIND_FUNCTION);
    sim_table_init(&sim.linkers, SIM_KIND_LINKER);
    berm__list_init(&sim.context_list);
    berm__list_init(&sim.captures);
    berm__list_init(&sim.gates);
    berm__list_init(&sim.callbacks);
    berm__list_init(&sim.faults);
    berm__list_init(&sim.opened);
    berm__list_init(&sim.pool_list);
    berm__list_init(&sim.managed);
    sim.process_fd = -1;
    for (int i = 0; i < SIMCUDA_DEVICE_MAX; i++)
        berm__list_init(&sim.devices[i].chunks);
}

bool sim_state_make(const simcuda_config_t *config) {
    simcuda_config_t copy = *config; // it may be the state's own
    state_empty();
    sim.config = copy;
    sim_real_start();
    sim.addresses = (sim_space_t){.base = SIM_ADDRESS_BASE,
                                  .next = SIM_ADDRESS_BASE,
                                  .end = SIM_ADDRESS_BASE + SIM_ADDRESS_BYTES};
    for (int i = 0; i < sim.config.devices; i++)
        sim.devices[i].outside_bytes = sim.config.outside_bytes;
    sim.hazards = calloc(SIM_HAZARDS_KEPT, sizeof(*sim.hazards));
    sim.host_version = 1;
    sim.is_ready = sim.hazards != NULL && sim_backing_start();
    if (!sim.is_ready) {
        free(sim.hazards);
        sim.hazards = NULL;
        sim_backing_stop();
    }
    return sim.is_ready;
}

static void state_free_objects(void) {
    uint32_t index = 0;
    for (sim_event_t *event; (event = sim_table_each(&sim.events, &index)) != NULL;) {
        sim_event_free(event);
    }
    sim_graphs_clear();
    while (!berm__list_is_empty(&sim.gates)) {
        sim_gate_t *gate = BERM_CONTAINER_OF(sim.gates.next, sim_gate_t, node);
        berm__list_remove(&gate->node);
        free(gate);
    }
    while (!berm__list_is_empty(&sim.callbacks)) {
        sim_callback_t *callback = BERM_CONTAINER_OF(sim.callbacks.next, sim_callback_t, node);
        berm__list_remove(&callback->node);
        sim_mark_drop(callback->mark);
        free(callback);
    }
}

static void state_free_memory(void) {
    sim_pools_clear();
    sim_malloc_free_all(NULL);
    sim_managed_free_all(NULL);
    for (sim_node_t *node; (node = sim.mappings.root) != NULL;) {
        sim_tree_remove(&sim.mappings, node);
        sim_mapping_free(BERM_CONTAINER_OF(node, sim_mapping_t, node));
    }
    for (sim_node_t *node; (node = sim.reservations.root) != NULL;) {
        sim_tree_remove(&sim.reservations, node);
        free(BERM_CONTAINER_OF(node, sim_reservation_t, node));
    }
    uint32_t index = 0;
    for (sim_memory_t *memory; (memory = sim_table_each(&sim.memories, &index)) != NULL;)
        sim_memory_clear(memory);
    sim_space_clear(&sim.addresses);
}

void sim_state_destroy(void) {
    if (!sim.is_ready)
        return;
    sim_effects_clear();
    state_free_memory();
    while (!berm__list_is_empty(&sim.captures))
        sim_capture_destroy(BERM_CONTAINER_OF(sim.captures.next, sim_capture_t, node));
    while (!berm__list_is_empty(&sim.context_list)) {
        sim_context_t *context = BERM_CONTAINER_OF(sim.context_list.next, sim_context_t, node);
        while (!berm__list_is_empty(&context->streams)) {
            sim_stream_t *stream = BERM_CONTAINER_OF(context->streams.next, sim_stream_t, node);
            sim_stream_drop_ops(stream);
            sim_deps_free(&stream->capture_deps);
            berm__list_remove(&stream->node);
            free(stream->clock);
            free(stream);
        }
        berm__list_remove(&context->node);
        free(context);
    }
    state_free_objects();
    sim_modules_clear();
    sim_linkers_clear();
    sim_faults_destroy();
    sim_table_clear(&sim.contexts);
    sim_table_clear(&sim.streams);
    sim_table_clear(&sim.events);
    sim_table_clear(&sim.graphs);
    sim_table_clear(&sim.execs);
    sim_table_clear(&sim.pools);
    sim_table_clear(&sim.memories);
    free(sim.slots);
    free(sim.host_clock);
    free(sim.hazards);
    sim_backing_stop();
    sim.is_ready = false;
}
