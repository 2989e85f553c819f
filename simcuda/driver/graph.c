// SPDX-License-Identifier: Apache-2.0
// Graphs and their steps. They come from captures only (capture.c); launching is exec.c's.
//
// Bound: a step is added in time proportional to its dependencies and ranges. Locks: the state's.
// Invariant: a step depends on steps of lower numbers only, so the order of numbers is an order of
// execution. May fail: adding, with nothing changed.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#define GRAPH_NUMBER_MASK UINT32_C(0x0fffffff)

// --- sets of steps -------------------------------------------------------------------------------

bool sim_deps_add(sim_deps_t *deps, uint32_t step) {
    for (uint32_t i = 0; i < deps->count; i++) {
        if (deps->items[i] == step)
            return true;
    }
    if (deps->count == deps->capacity) {
        uint32_t capacity = deps->capacity == 0 ? 4 : deps->capacity * 2;
        uint32_t *items = realloc(deps->items, capacity * sizeof(*items));
        if (items == NULL)
            return false;
        deps->items = items;
        deps->capacity = capacity;
    }
    deps->items[deps->count++] = step;
    return true;
}

bool sim_deps_add_all(sim_deps_t *deps, const sim_deps_t *more) {
    for (uint32_t i = 0; i < more->count; i++) {
        if (!sim_deps_add(deps, more->items[i]))
            return false;
    }
    return true;
}

bool sim_deps_set(sim_deps_t *deps, const sim_deps_t *from) {
    sim_deps_t made = {0};
    if (!sim_deps_add_all(&made, from)) {
        free(made.items);
        return false;
    }
    free(deps->items);
    *deps = made;
    return true;
}

void sim_deps_free(sim_deps_t *deps) {
    free(deps->items);
    *deps = (sim_deps_t){0};
}

// --- plans ---------------------------------------------------------------------------------------

static void step_free(sim_step_t *step) {
    sim_deps_free(&step->deps);
    free(step);
}

void sim_plan_drop(sim_plan_t *plan) {
    if (plan == NULL || --plan->refs > 0)
        return;
    for (uint32_t i = 0; i < plan->count; i++)
        step_free(plan->steps[i]);
    free(plan->steps);
    free(plan);
}

static bool plan_make_room(sim_plan_t *plan) {
    if (plan->count < plan->capacity)
        return true;
    uint32_t capacity = plan->capacity == 0 ? 16 : plan->capacity * 2;
    sim_step_t **steps = realloc(plan->steps, capacity * sizeof(sim_step_t *));
    if (steps == NULL)
        return false;
    plan->steps = steps;
    plan->capacity = capacity;
    return true;
}

// --- graphs --------------------------------------------------------------------------------------

sim_graph_t *sim_graph_create(void) {
    sim_graph_t *graph = calloc(1, sizeof(*graph));
    if (graph == NULL)
        return NULL;
    graph->plan = calloc(1, sizeof(*graph->plan));
    if (graph->plan != NULL && (graph->handle = sim_table_add(&sim.graphs, graph)) != 0) {
        graph->plan->refs = 1;
        graph->number = (uint32_t)sim_id_next() & GRAPH_NUMBER_MASK;
        return graph;
    }
    free(graph->plan);
    free(graph);
    return NULL;
}

void sim_graph_destroy(sim_graph_t *graph) {
    sim_table_remove(&sim.graphs, graph->handle);
    sim_plan_drop(graph->plan);
    free(graph);
}

void sim_graphs_clear(void) {
    uint32_t index = 0;
    sim_execs_clear();
    for (sim_graph_t *graph; (graph = sim_table_each(&sim.graphs, &index)) != NULL;)
        sim_graph_destroy(graph);
}

bool sim_graph_add(sim_graph_t *graph, uint64_t context, const sim_issue_t *issue,
                   const simcuda_access_t *accesses, size_t count, const sim_deps_t *deps) {
    sim_step_t *step = calloc(1, sizeof(*step) + count * sizeof(step->accesses[0]));
    if (step == NULL)
        return false;
    if (!plan_make_room(graph->plan) || !sim_deps_set(&step->deps, deps)) {
        free(step);
        return false;
    }
    step->context = context;
    step->duration_ns = issue->duration_ns;
    step->is_kernel = issue->is_kernel;
    step->is_copy = issue->is_copy;
    if (issue->action != NULL)
        step->action = *issue->action;
    step->access_count = (uint32_t)count;
    if (count > 0)
        memcpy(step->accesses, accesses, count * sizeof(*accesses));
    graph->plan->steps[graph->plan->count++] = step;
    return true;
}

berm_cu_graph_node_t sim_graph_node(const sim_graph_t *graph, uint32_t step) {
    uint64_t handle =
        (uint64_t)SIM_KIND_STEP << SIM_KIND_SHIFT | (uint64_t)graph->number << 32 | (step + 1);
    return (berm_cu_graph_node_t)(uintptr_t)handle;
}

uint32_t sim_graph_step(const sim_graph_t *graph, berm_cu_graph_node_t node) {
    uint32_t step = (uint32_t)(uintptr_t)node - 1;
    return step < graph->plan->count && sim_graph_node(graph, step) == node ? step : UINT32_MAX;
}

// --- calls ---------------------------------------------------------------------------------------

static sim_graph_t *graph_get(berm_cu_graph_t handle) {
    return sim_table_get(&sim.graphs, (uint64_t)(uintptr_t)handle);
}

// The graph of a capture in progress is the capture's.
berm_cu_result_t cuGraphDestroy(berm_cu_graph_t handle) {
    int result = sim_enter(SIM_FN_cuGraphDestroy);
    if (result == BERM_CU_SUCCESS) {
        sim_graph_t *graph = graph_get(handle);
        if (graph == NULL || graph->is_capturing)
            result = BERM_CU_INVALID_VALUE;
        else
            sim_graph_destroy(graph);
    }
    return sim_leave(result);
}

// Without room for the nodes, their number; else up to *count of them.
berm_cu_result_t cuGraphGetNodes(berm_cu_graph_t handle, berm_cu_graph_node_t *nodes,
                                 size_t *count) {
    int result = sim_enter(SIM_FN_cuGraphGetNodes);
    if (result == BERM_CU_SUCCESS) {
        const sim_graph_t *graph = graph_get(handle);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (graph == NULL || count == NULL) {
            result = BERM_CU_INVALID_VALUE;
        } else if (nodes == NULL) {
            *count = graph->plan->count;
        } else {
            for (size_t i = 0; i < *count; i++)
                nodes[i] = i < graph->plan->count ? sim_graph_node(graph, (uint32_t)i) : NULL;
            *count = berm__min_u64(*count, graph->plan->count);
        }
    }
    return sim_leave(result);
}
