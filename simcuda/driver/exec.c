// SPDX-License-Identifier: Apache-2.0
// Graphs made ready to be launched.
//
// Steps are put on branches: a step follows the last step of a branch it depends on, or opens one.
// The first branch of the stream's own context runs in the stream of the launch, each other one in
// a stream of the exec's; dependencies between branches are waits, as a program would write them.
// So times, order and hazards are those of the same work without a graph, judged anew at each
// launch with the mappings of that moment. Launches of one exec run one after the other.
//
// Bound: a launch takes time proportional to steps and dependencies. Locks: the state's.
// May fail: no host memory; a launch that fails so has queued a part of the graph.
#include <stdlib.h>

#include "graph.h"

typedef struct sim_exec {
    uint64_t handle;
    sim_plan_t *plan;
    uint32_t branch_count;
    sim_stream_t **streams; // of branches; NULL: not made yet
    uint32_t *branch_last;  // the last step of each
    sim_mark_t *done;       // of the last launch; NULL: none yet
    bool is_dead;           // a context of its is gone
} sim_exec_t;

static sim_exec_t *exec_get(berm_cu_graph_exec_t handle) {
    return sim_table_get(&sim.execs, (uint64_t)(uintptr_t)handle);
}

static void exec_destroy(sim_exec_t *exec) {
    for (uint32_t i = 0; i < exec->branch_count; i++) {
        if (exec->streams != NULL && exec->streams[i] != NULL)
            sim_stream_destroy(exec->streams[i]);
    }
    if (exec->handle != 0)
        sim_table_remove(&sim.execs, exec->handle);
    if (exec->done != NULL)
        sim_mark_drop(exec->done);
    sim_plan_drop(exec->plan);
    free(exec->streams);
    free(exec->branch_last);
    free(exec);
}

void sim_execs_clear(void) {
    uint32_t index = 0;
    for (sim_exec_t *exec; (exec = sim_table_each(&sim.execs, &index)) != NULL;) {
        exec->branch_count = 0; // the streams are gone already
        exec_destroy(exec);
    }
}

void sim_execs_forget(const sim_context_t *context) {
    uint32_t index = 0;
    for (sim_exec_t *exec; (exec = sim_table_each(&sim.execs, &index)) != NULL;) {
        for (uint32_t i = 0; i < exec->plan->count; i++)
            exec->is_dead = exec->is_dead || exec->plan->steps[i]->context == context->handle;
        for (uint32_t i = 0; i < exec->branch_count; i++) {
            if (exec->streams[i] != NULL && exec->streams[i]->context == context)
                exec->streams[i] = NULL;
        }
    }
}

// --- instantiate ---------------------------------------------------------------------------------

// The branch whose last step is one that `step` follows, in the same context; else a new one.
static uint32_t branch_of(const sim_exec_t *exec, const sim_step_t *step) {
    for (uint32_t i = 0; i < step->deps.count; i++) {
        uint32_t dep = step->deps.items[i];
        const sim_step_t *before = exec->plan->steps[dep];
        if (exec->branch_last[before->branch] == dep && before->context == step->context)
            return before->branch;
    }
    return exec->branch_count;
}

static sim_exec_t *exec_create(sim_plan_t *plan) {
    sim_exec_t *exec = calloc(1, sizeof(*exec));
    if (exec == NULL)
        return NULL;
    exec->plan = plan;
    plan->refs++;
    exec->branch_last = calloc(plan->count + 1, sizeof(*exec->branch_last));
    if (exec->branch_last != NULL) {
        for (uint32_t i = 0; i < plan->count; i++) {
            uint32_t branch = branch_of(exec, plan->steps[i]);
            plan->steps[i]->branch = branch; // the same for every exec of the plan
            exec->branch_last[branch] = i;
            exec->branch_count += branch == exec->branch_count;
        }
        exec->streams = calloc(exec->branch_count + 1, sizeof(sim_stream_t *));
    }
    if (exec->streams != NULL)
        exec->handle = sim_table_add(&sim.execs, exec);
    if (exec->handle != 0)
        return exec;
    exec_destroy(exec);
    return NULL;
}

berm_cu_result_t cuGraphInstantiateWithFlags(berm_cu_graph_exec_t *out, berm_cu_graph_t handle,
                                             unsigned long long flags) {
    enum {
        AUTO_FREE_ON_LAUNCH = 1,
        UPLOAD = 2,
        DEVICE_LAUNCH = 4,
        USE_NODE_PRIORITY = 8
    };
    int result = sim_enter(SIM_FN_cuGraphInstantiateWithFlags);
    if (result == BERM_CU_SUCCESS) {
        const sim_graph_t *graph = sim_table_get(&sim.graphs, (uint64_t)(uintptr_t)handle);
        sim_exec_t *exec = NULL;
        sim_charge(&sim.config.costs.other, 0, 0);
        if (out == NULL || graph == NULL || graph->is_capturing ||
            (flags & ~(unsigned long long)(AUTO_FREE_ON_LAUNCH | UPLOAD | USE_NODE_PRIORITY)) != 0)
            result = BERM_CU_INVALID_VALUE;
        else if ((exec = exec_create(graph->plan)) == NULL)
            result = BERM_CU_OUT_OF_MEMORY;
        else
            *out = (berm_cu_graph_exec_t)(uintptr_t)exec->handle;
    }
    return sim_leave(result);
}

berm_cu_result_t cuGraphExecDestroy(berm_cu_graph_exec_t handle) {
    int result = sim_enter(SIM_FN_cuGraphExecDestroy);
    if (result == BERM_CU_SUCCESS) {
        sim_exec_t *exec = exec_get(handle);
        if (exec == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            exec_destroy(exec);
    }
    return sim_leave(result);
}

// --- launch --------------------------------------------------------------------------------------

typedef struct run {
    sim_exec_t *exec;
    sim_stream_t *stream; // of the launch
    uint32_t own_branch;  // the one that runs in it; UINT32_MAX: none
    sim_mark_t **marks;   // of the ends of steps
} run_t;

static int stream_wait(sim_stream_t *stream, sim_mark_t *mark) {
    sim_issue_t issue = {.wait = mark};
    return sim_queue_issue(stream, &issue);
}

static sim_mark_t *stream_mark(sim_stream_t *stream, int *result) {
    sim_mark_t *mark = sim_mark_create();
    sim_issue_t issue = {.mark = mark};
    *result = mark == NULL ? BERM_CU_OUT_OF_MEMORY : sim_queue_issue(stream, &issue);
    if (*result == BERM_CU_SUCCESS)
        return mark;
    if (mark != NULL)
        sim_mark_drop(mark);
    return NULL;
}

static sim_stream_t *run_stream(const run_t *run, uint32_t branch) {
    return branch == run->own_branch ? run->stream : run->exec->streams[branch];
}

// Makes the streams of branches that have none; before any mark, for marks have all slots then.
static int run_make_streams(run_t *run) {
    sim_exec_t *exec = run->exec;
    run->own_branch = UINT32_MAX;
    for (uint32_t i = 0; i < exec->branch_count; i++) {
        const sim_step_t *step = exec->plan->steps[exec->branch_last[i]];
        sim_context_t *context = sim_table_get(&sim.contexts, step->context);
        if (context == NULL)
            return BERM_CU_CONTEXT_IS_DESTROYED;
        if (run->own_branch == UINT32_MAX && context == run->stream->context) {
            run->own_branch = i;
            continue;
        }
        if (exec->streams[i] != NULL)
            continue;
        exec->streams[i] = sim_stream_create(context, BERM_CU_STREAM_NON_BLOCKING, 0);
        if (exec->streams[i] == NULL)
            return BERM_CU_OUT_OF_MEMORY;
        sim_table_remove(&sim.streams, exec->streams[i]->handle);
        exec->streams[i]->handle = 0;
    }
    return BERM_CU_SUCCESS;
}

static int run_step(const run_t *run, uint32_t number) {
    const sim_step_t *step = run->exec->plan->steps[number];
    sim_stream_t *stream = run_stream(run, step->branch);
    int result = BERM_CU_SUCCESS;
    for (uint32_t i = 0; result == BERM_CU_SUCCESS && i < step->deps.count; i++) {
        uint32_t dep = step->deps.items[i];
        if (run->exec->plan->steps[dep]->branch != step->branch)
            result = stream_wait(stream, run->marks[dep]);
    }
    if (result != BERM_CU_SUCCESS)
        return result;
    bool is_others = sim.config.acts_at_launch &&
                     (step->action.kind == SIM_ACTION_COPY || step->action.kind == SIM_ACTION_FILL);
    bool has_action = step->action.kind != SIM_ACTION_NONE && !is_others;
    sim_mark_t *mark = sim_mark_create();
    if (mark == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    sim_issue_t issue = {.duration_ns = step->duration_ns,
                         .is_kernel = step->is_kernel,
                         .is_copy = step->is_copy,
                         .action = has_action ? &step->action : NULL,
                         .mark = mark};
    run->marks[number] = mark;
    if (step->event != 0)
        sim_event_mark(step->event, mark);
    if (step->action.kind != SIM_ACTION_HOST)
        return sim_work_issue(stream, &issue, step->accesses, step->access_count);
    mark->refs++; // one for the callback
    return sim_host_function_issue(stream, &issue);
}

static int run_steps(const run_t *run) {
    const sim_exec_t *exec = run->exec;
    int result = BERM_CU_SUCCESS;
    if (exec->done != NULL)
        result = stream_wait(run->stream, exec->done);
    sim_mark_t *start = result == BERM_CU_SUCCESS ? stream_mark(run->stream, &result) : NULL;
    for (uint32_t i = 0; result == BERM_CU_SUCCESS && i < exec->branch_count; i++) {
        if (i != run->own_branch)
            result = stream_wait(exec->streams[i], start);
    }
    if (start != NULL)
        sim_mark_drop(start);
    for (uint32_t i = 0; result == BERM_CU_SUCCESS && i < exec->plan->count; i++)
        result = run_step(run, i);
    for (uint32_t i = 0; result == BERM_CU_SUCCESS && i < exec->branch_count; i++) {
        if (i != run->own_branch)
            result = stream_wait(run->stream, run->marks[exec->branch_last[i]]);
    }
    return result;
}

static int exec_launch(sim_exec_t *exec, sim_stream_t *stream) {
    run_t run = {.exec = exec, .stream = stream};
    int result = run_make_streams(&run);
    if (result != BERM_CU_SUCCESS)
        return result;
    run.marks = calloc(exec->plan->count + 1, sizeof(sim_mark_t *));
    if (run.marks == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    result = run_steps(&run);
    for (uint32_t i = 0; i < exec->plan->count; i++) {
        if (run.marks[i] != NULL)
            sim_mark_drop(run.marks[i]);
    }
    free(run.marks);
    sim_mark_t *done = result == BERM_CU_SUCCESS ? stream_mark(stream, &result) : NULL;
    if (done != NULL) {
        if (exec->done != NULL)
            sim_mark_drop(exec->done);
        exec->done = done;
    }
    return result;
}

static int graph_launch(berm_cu_graph_exec_t handle, berm_cu_stream_t stream_handle) {
    int result;
    sim_exec_t *exec = exec_get(handle);
    sim_charge(&sim.config.costs.other, 0, 0);
    if (exec == NULL)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(stream_handle, &result);
    if (stream == NULL)
        return result;
    if (exec->is_dead)
        return BERM_CU_CONTEXT_IS_DESTROYED;
    if (stream->capture != NULL) // graphs within graphs are not modelled
        return sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    result = sim_capture_check_legacy(stream);
    return result != BERM_CU_SUCCESS ? result : exec_launch(exec, stream);
}

berm_cu_result_t cuGraphLaunch(berm_cu_graph_exec_t exec, berm_cu_stream_t stream) {
    int result = sim_enter(SIM_FN_cuGraphLaunch);
    if (result == BERM_CU_SUCCESS)
        result = graph_launch(exec, stream);
    return sim_leave(result);
}
