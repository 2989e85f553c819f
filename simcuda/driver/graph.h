// SPDX-License-Identifier: Apache-2.0
// Graphs: captured work as steps with dependencies, and what is made of them to be launched.
//
//   graph, exec   objects of the program, named by handles; both hold a plan
//   plan          the steps, in the order of capture; fixed once an exec holds it
//   branch        a chain of steps that run one after the other in one stream
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim.h"

typedef struct sim_step {
    uint64_t context; // handle
    uint64_t duration_ns;
    bool is_kernel, is_copy;
    sim_action_t action;
    uint64_t event; // handle of what a launch records here; 0: none
    uint32_t branch;
    sim_deps_t deps;
    uint32_t access_count;
    simcuda_access_t accesses[];
} sim_step_t;

typedef struct sim_plan {
    uint32_t refs;
    uint32_t count, capacity;
    sim_step_t **steps;
} sim_plan_t;

struct sim_graph {
    uint64_t handle;
    uint32_t number; // in the handles of its nodes
    bool is_capturing;
    sim_plan_t *plan;
};

// A graph with no steps, or NULL: no host memory.
sim_graph_t *sim_graph_create(void);
void sim_graph_destroy(sim_graph_t *graph);
void sim_graphs_clear(void); // at reset: graphs and execs
void sim_plan_drop(sim_plan_t *plan);
// Appends a step that comes after `deps`; false: no host memory.
bool sim_graph_add(sim_graph_t *graph, uint64_t context, const sim_issue_t *issue,
                   const simcuda_access_t *accesses, size_t count, const sim_deps_t *deps);
berm_cu_graph_node_t sim_graph_node(const sim_graph_t *graph, uint32_t step);
// The number of the step a node is in this graph; UINT32_MAX: of none.
uint32_t sim_graph_step(const sim_graph_t *graph, berm_cu_graph_node_t node);

// The event was recorded by the launch of a graph, at `mark`.
void sim_event_mark(uint64_t handle, sim_mark_t *mark);

// A context goes: execs that run in it can be launched no more.
void sim_execs_forget(const sim_context_t *context);
void sim_execs_clear(void);

bool sim_deps_add(sim_deps_t *deps, uint32_t step); // once; false: no host memory
bool sim_deps_add_all(sim_deps_t *deps, const sim_deps_t *more);
bool sim_deps_set(sim_deps_t *deps, const sim_deps_t *from);
void sim_deps_free(sim_deps_t *deps);

#endif
