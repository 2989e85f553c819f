// SPDX-License-Identifier: Apache-2.0
// Graphs of the stand-in runtime, and the user objects they keep alive.
//
// A USER OBJECT is counted: its owner's references and those that graphs hold. A graph that is
// destroyed gives back what it holds; what is made of it (an executable graph) holds as much again
// until it is destroyed, as CUDA does. With the last reference the destructor runs.
// Bounds: O(number of retained objects) a destroy. Locks: object_lock; destructors run outside it.
// May fail: as the driver; no host memory, nothing changed then.
#include <pthread.h>
#include <stdlib.h>

#include "simcuda/runtime/runtime.h"

struct cudart_user_object {
    void *data;
    berm_cu_host_fn destroy;
    unsigned references;
};
typedef cudart_user_object_t user_object_t;

// References that a graph, or what was made of it, holds.
typedef struct retained {
    struct retained *next;
    const void *owner;
    user_object_t *object;
    unsigned count;
} retained_t;

static pthread_mutex_t object_lock = PTHREAD_MUTEX_INITIALIZER;
static retained_t *retained;

static void object_drop(user_object_t *object, unsigned count) {
    (void)pthread_mutex_lock(&object_lock);
    object->references -= count;
    bool is_last = object->references == 0;
    (void)pthread_mutex_unlock(&object_lock);
    if (!is_last)
        return;
    object->destroy(object->data);
    free(object);
}

static cudart_error_t owner_retain(const void *owner, user_object_t *object, unsigned count,
                                   bool is_moved) {
    retained_t *one = malloc(sizeof *one);
    if (one == NULL)
        return rt_finish(BERM_CU_OUT_OF_MEMORY);
    (void)pthread_mutex_lock(&object_lock);
    object->references += is_moved ? 0 : count;
    *one = (retained_t){.next = retained, .owner = owner, .object = object, .count = count};
    retained = one;
    (void)pthread_mutex_unlock(&object_lock);
    return BERM_CU_SUCCESS;
}

static void owner_drop(const void *owner) {
    for (;;) {
        (void)pthread_mutex_lock(&object_lock);
        retained_t **at = &retained;
        while (*at != NULL && (*at)->owner != owner)
            at = &(*at)->next;
        retained_t *one = *at;
        if (one != NULL)
            *at = one->next;
        (void)pthread_mutex_unlock(&object_lock);
        if (one == NULL)
            return;
        object_drop(one->object, one->count);
        free(one);
    }
}

// What `from` holds, `to` holds too; false: no host memory, and `to` holds a part.
static bool owner_copy(const void *from, const void *to) {
    bool is_whole = true;
    (void)pthread_mutex_lock(&object_lock);
    for (retained_t *at = retained; at != NULL && is_whole; at = at->next) {
        if (at->owner != from)
            continue;
        retained_t *one = malloc(sizeof *one);
        is_whole = one != NULL;
        if (!is_whole)
            break;
        at->object->references += at->count;
        *one =
            (retained_t){.next = retained, .owner = to, .object = at->object, .count = at->count};
        retained = one; // before `at`: not visited
    }
    (void)pthread_mutex_unlock(&object_lock);
    return is_whole;
}

cudart_error_t cudaUserObjectCreate(user_object_t **object, void *data, berm_cu_host_fn destroy,
                                    unsigned references, unsigned flags) {
    if (object == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *object = NULL;
    if (destroy == NULL || references == 0 || flags != CUDART_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return rt_finish(BERM_CU_INVALID_VALUE);
    user_object_t *made = malloc(sizeof *made);
    if (made == NULL)
        return rt_finish(BERM_CU_OUT_OF_MEMORY);
    *made = (user_object_t){.data = data, .destroy = destroy, .references = references};
    *object = made;
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaUserObjectRetain(user_object_t *object, unsigned count) {
    if (object == NULL || count == 0)
        return rt_finish(BERM_CU_INVALID_VALUE);
    (void)pthread_mutex_lock(&object_lock);
    object->references += count;
    (void)pthread_mutex_unlock(&object_lock);
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaUserObjectRelease(user_object_t *object, unsigned count) {
    if (object == NULL || count == 0 || count > object->references)
        return rt_finish(BERM_CU_INVALID_VALUE);
    object_drop(object, count);
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaGraphRetainUserObject(berm_cu_graph_t graph, user_object_t *object,
                                         unsigned count, unsigned flags) {
    if (graph == NULL || object == NULL || count == 0 || flags > CUDART_GRAPH_USER_OBJECT_MOVE)
        return rt_finish(BERM_CU_INVALID_VALUE);
    return owner_retain(graph, object, count, flags == CUDART_GRAPH_USER_OBJECT_MOVE);
}

// --- graphs --------------------------------------------------------------------------------------

cudart_error_t cudaGraphInstantiateWithFlags(berm_cu_graph_exec_t *exec, berm_cu_graph_t graph,
                                             unsigned long long flags) {
    if (exec != NULL)
        *exec = NULL;
    int result = RT_DRIVER(cuGraphInstantiateWithFlags(exec, graph, flags));
    if (result != BERM_CU_SUCCESS)
        return result;
    if (owner_copy(graph, *exec))
        return result;
    owner_drop(*exec);
    (void)cuGraphExecDestroy(*exec);
    *exec = NULL;
    return rt_finish(BERM_CU_OUT_OF_MEMORY);
}

cudart_error_t cudaGraphInstantiate(berm_cu_graph_exec_t *exec, berm_cu_graph_t graph,
                                    unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

// Nothing is uploaded: a launch finds all that it needs.
cudart_error_t cudaGraphUpload(berm_cu_graph_exec_t exec, berm_cu_stream_t stream) {
    (void)stream;
    return exec == NULL ? rt_finish(BERM_CU_INVALID_VALUE) : BERM_CU_SUCCESS;
}

cudart_error_t cudaGraphLaunch(berm_cu_graph_exec_t exec, berm_cu_stream_t stream) {
    return RT_DRIVER(cuGraphLaunch(exec, stream));
}

cudart_error_t cudaGraphExecDestroy(berm_cu_graph_exec_t exec) {
    int result = RT_DRIVER(cuGraphExecDestroy(exec));
    if (result == BERM_CU_SUCCESS)
        owner_drop(exec);
    return result;
}

cudart_error_t cudaGraphDestroy(berm_cu_graph_t graph) {
    int result = RT_DRIVER(cuGraphDestroy(graph));
    if (result == BERM_CU_SUCCESS)
        owner_drop(graph);
    return result;
}

cudart_error_t cudaGraphGetNodes(berm_cu_graph_t graph, berm_cu_graph_node_t *nodes,
                                 size_t *count) {
    return RT_DRIVER(cuGraphGetNodes(graph, nodes, count));
}

// The simulated driver keeps no edges of a node.
cudart_error_t cudaGraphNodeGetDependencies(berm_cu_graph_node_t node,
                                            berm_cu_graph_node_t *dependencies, void *edges,
                                            size_t *count) {
    (void)node;
    (void)dependencies;
    (void)edges;
    if (count != NULL)
        *count = 0;
    return rt_unsupported(__func__);
}
