// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface: a descriptor keeps its attributes and gives them back. A question of
// the library's own is answered as if there were one engine that needs no work space: one
// configuration by any heuristic, without knobs or notes. An execution is one piece of work.
//
// Locks: none; a descriptor is one thread's at a time, as the library wants it.
#include <stdlib.h>
#include <string.h>

#include "simcuda/standins/cudnn.h"
#include "simcuda/standins/standin.h"

static const char BACKEND_KIND[] = "cudnn descriptor";

enum {
    ATTR_ENGINEHEUR_RESULTS = 202,
    ATTR_ENGINECFG_ENGINE = 300,
    ATTR_ENGINECFG_WORKSPACE_SIZE = 303,
    ATTR_ENGINECFG_SHARED_MEMORY_USED = 304,
    ATTR_PLAN_ENGINE_CONFIG = 401,
    ATTR_PLAN_WORKSPACE_SIZE = 402,
    ATTR_PLAN_JSON = 405,
    ATTR_GRAPH_ENGINE_COUNT = 802,
    ATTR_ENGINE_GLOBAL_INDEX = 1301
};

enum {
    TYPE_HANDLE = 0,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_DOUBLE = 5,
    TYPE_VOID_PTR = 6,
    TYPE_DESCRIPTOR = 15,
    TYPE_CHAR = 24,
    TYPE_FRACTION = 26
};

enum {
    VALUES_MAX = 1 << 20
}; // of one attribute: more is a mistake

typedef struct attribute {
    struct attribute *next;
    int name, type;
    int64_t count;
    unsigned char values[];
} attribute_t;

typedef struct descriptor {
    attribute_t *attributes;
} descriptor_t;

static size_t type_bytes(int type) {
    switch (type) {
    case TYPE_HANDLE:
    case TYPE_INT64:
    case TYPE_DOUBLE:
    case TYPE_VOID_PTR:
    case TYPE_DESCRIPTOR:
    case TYPE_FRACTION:
        return 8;
    case TYPE_BOOLEAN:
    case TYPE_CHAR:
        return 1;
    default:
        return 4; // an enumeration, a float, an int32
    }
}

static void descriptor_destroy(void *data) {
    descriptor_t *descriptor = data;
    while (descriptor->attributes != NULL) {
        attribute_t *attribute = descriptor->attributes;
        descriptor->attributes = attribute->next;
        free(attribute);
    }
    free(descriptor);
}

static attribute_t **attribute_find(descriptor_t *descriptor, int name) {
    attribute_t **at = &descriptor->attributes;
    while (*at != NULL && (*at)->name != name)
        at = &(*at)->next;
    return at;
}

int cudnnBackendCreateDescriptor(int type, uint64_t *handle) {
    (void)type;
    if (handle == NULL)
        return CUDNN_BAD_PARAM;
    descriptor_t *descriptor = calloc(1, sizeof *descriptor);
    *handle = descriptor == NULL ? 0 : standin_new(BACKEND_KIND, descriptor, descriptor_destroy);
    if (*handle != 0)
        return CUDNN_OK;
    free(descriptor);
    return CUDNN_NO_HOST_MEMORY;
}

int cudnnBackendDestroyDescriptor(uint64_t handle) {
    return standin_delete(handle) || handle == 0 ? CUDNN_OK : CUDNN_BAD_PARAM;
}

int cudnnBackendInitialize(uint64_t handle) {
    return standin_data(handle, BACKEND_KIND) != NULL ? CUDNN_OK : CUDNN_BAD_PARAM;
}

int cudnnBackendFinalize(uint64_t handle) {
    return standin_data(handle, BACKEND_KIND) != NULL ? CUDNN_OK : CUDNN_BAD_PARAM;
}

int cudnnBackendSetAttribute(uint64_t handle, int name, int type, int64_t count,
                             const void *values) {
    descriptor_t *descriptor = standin_data(handle, BACKEND_KIND);
    if (descriptor == NULL || count < 0 || count > VALUES_MAX || (values == NULL && count > 0))
        return CUDNN_BAD_PARAM;
    size_t bytes = (size_t)count * type_bytes(type);
    attribute_t *attribute = malloc(sizeof *attribute + bytes);
    if (attribute == NULL)
        return CUDNN_NO_HOST_MEMORY;
    attribute_t **at = attribute_find(descriptor, name);
    attribute_t *before = *at;
    *attribute = (attribute_t){before != NULL ? before->next : NULL, name, type, count};
    if (bytes > 0)
        memcpy(attribute->values, values, bytes);
    *at = attribute;
    free(before);
    return CUDNN_OK;
}

// What the library itself knows: how many values there are; those that are not 0 are written.
static int64_t own_answer(int name, int64_t wanted, void *values) {
    switch (name) {
    case ATTR_ENGINEHEUR_RESULTS: // the caller's own descriptors are filled in
    case ATTR_ENGINECFG_ENGINE:
    case ATTR_PLAN_ENGINE_CONFIG:
    case ATTR_ENGINECFG_WORKSPACE_SIZE:
    case ATTR_ENGINECFG_SHARED_MEMORY_USED:
    case ATTR_PLAN_WORKSPACE_SIZE:
    case ATTR_ENGINE_GLOBAL_INDEX:
        return 1;
    case ATTR_GRAPH_ENGINE_COUNT:
        if (wanted > 0 && values != NULL)
            *(int64_t *)values = 1;
        return 1;
    case ATTR_PLAN_JSON:
        if (wanted >= 3 && values != NULL)
            memcpy(values, "{}", 3);
        return 3;
    default:
        return 0;
    }
}

int cudnnBackendGetAttribute(uint64_t handle, int name, int type, int64_t wanted, int64_t *count,
                             void *values) {
    descriptor_t *descriptor = standin_data(handle, BACKEND_KIND);
    if (count != NULL)
        *count = 0;
    if (descriptor == NULL || wanted < 0 || wanted > VALUES_MAX)
        return CUDNN_BAD_PARAM;
    const attribute_t *attribute = *attribute_find(descriptor, name);
    int64_t found = 0;
    if (attribute != NULL) {
        found = attribute->count;
        int64_t given = wanted < found ? wanted : found;
        if (values != NULL && given > 0)
            memcpy(values, attribute->values, (size_t)given * type_bytes(attribute->type));
    } else {
        // Descriptors are the caller's: they are not to be cleared.
        if (values != NULL && wanted > 0 && type != TYPE_DESCRIPTOR)
            memset(values, 0, (size_t)wanted * type_bytes(type));
        found = own_answer(name, wanted, values);
    }
    if (count != NULL)
        *count = found;
    return CUDNN_OK;
}

int cudnnBackendExecute(uint64_t library, uint64_t plan, uint64_t pack) {
    standin_hit("cudnn", "cudnnBackendExecute");
    if (!standin_is_live(library) || standin_data(plan, BACKEND_KIND) == NULL ||
        standin_data(pack, BACKEND_KIND) == NULL)
        return CUDNN_BAD_PARAM;
    standin_work_of(library);
    return CUDNN_OK;
}
