// SPDX-License-Identifier: Apache-2.0
// The objects of all stand-ins, by handle. A handle is bit 30, 8 bits of generation, 22 bits of
// index.
//
// INVARIANT: an entry on the free list has `kind` NULL; its generation is that of its next object.
// LOCKS: table_lock guards everything here. Nothing is called with it held.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/standins/standin.h"

enum {
    INDEX_BITS = 22,
    HANDLE_MARK = 1 << 30,
    CHUNK = 1024,
    CHUNKS_MAX = (1 << INDEX_BITS) / CHUNK
};

typedef struct object {
    const void *kind;
    void *data;
    void (*destroy)(void *);
    uint64_t slots[STANDIN_SLOT_COUNT];
    uint32_t next_free; // index + 1
    uint8_t generation;
} object_t;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static object_t *chunks[CHUNKS_MAX];
static uint32_t used, first_free;

static object_t *object_at(uint32_t index) {
    return &chunks[index / CHUNK][index % CHUNK];
}

static object_t *object_find(uint64_t handle) {
    uint32_t index = (uint32_t)handle & ((1U << INDEX_BITS) - 1);
    if (handle >> 31 != 0 || !(handle & HANDLE_MARK) || index >= used)
        return NULL;
    object_t *object = object_at(index);
    uint8_t generation = (uint8_t)(handle >> INDEX_BITS);
    return object->kind != NULL && object->generation == generation ? object : NULL;
}

static bool object_take(uint32_t *index) {
    if (first_free != 0) {
        *index = first_free - 1;
        first_free = object_at(*index)->next_free;
        return true;
    }
    if (used == CHUNKS_MAX * CHUNK)
        return false;
    if (chunks[used / CHUNK] == NULL) {
        chunks[used / CHUNK] = calloc(CHUNK, sizeof(object_t));
        if (chunks[used / CHUNK] == NULL)
            return false;
    }
    *index = used++;
    return true;
}

standin_handle_t standin_new(const void *kind, void *data, void (*destroy)(void *)) {
    uint32_t index = 0;
    standin_handle_t handle = 0;
    pthread_mutex_lock(&table_lock);
    if (object_take(&index)) {
        object_t *object = object_at(index);
        memset(object->slots, 0, sizeof object->slots);
        object->kind = kind;
        object->data = data;
        object->destroy = destroy;
        handle = HANDLE_MARK | (uint32_t)object->generation << INDEX_BITS | index;
    }
    pthread_mutex_unlock(&table_lock);
    return handle;
}

bool standin_delete(uint64_t handle) {
    pthread_mutex_lock(&table_lock);
    object_t *object = object_find(handle);
    void *data = NULL;
    void (*destroy)(void *) = NULL;
    if (object != NULL) {
        data = object->data;
        destroy = object->destroy;
        object->kind = NULL;
        object->generation++;
        object->next_free = first_free;
        first_free = ((uint32_t)handle & ((1U << INDEX_BITS) - 1)) + 1;
    }
    pthread_mutex_unlock(&table_lock);
    if (destroy != NULL)
        destroy(data);
    return object != NULL;
}

void *standin_data(uint64_t handle, const void *kind) {
    pthread_mutex_lock(&table_lock);
    object_t *object = object_find(handle);
    void *data = object != NULL && object->kind == kind ? object->data : NULL;
    pthread_mutex_unlock(&table_lock);
    return data;
}

bool standin_is_live(uint64_t handle) {
    pthread_mutex_lock(&table_lock);
    bool is_live = object_find(handle) != NULL;
    pthread_mutex_unlock(&table_lock);
    return is_live;
}

uint64_t standin_get(uint64_t handle, unsigned slot, uint64_t otherwise) {
    pthread_mutex_lock(&table_lock);
    object_t *object = object_find(handle);
    uint64_t value = object != NULL && slot < STANDIN_SLOT_COUNT ? object->slots[slot] : otherwise;
    pthread_mutex_unlock(&table_lock);
    return value;
}

void standin_set(uint64_t handle, unsigned slot, uint64_t value) {
    pthread_mutex_lock(&table_lock);
    object_t *object = object_find(handle);
    if (object != NULL && slot < STANDIN_SLOT_COUNT)
        object->slots[slot] = value;
    pthread_mutex_unlock(&table_lock);
}
