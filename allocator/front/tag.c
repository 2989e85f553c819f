// SPDX-License-Identifier: Apache-2.0
// The table of names and each thread's stack: see tag.h. A thread's counts on each device have its
// innermost tag too, so that a hit has it at hand; push and pop put it there.
#include "front/tag.h"

#include <string.h>

#include "berm_diagnose.h"
#include "front/heap.h"
#include "front/thread.h"

static struct {
    berm_mutex_t lock;
    atomic_uint count;
    char at[BERM_TAG_COUNT_MAX + 1][BERM_TAG_BYTES]; // constant below `count`; [0] is ""
} names = {.lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_CALLBACK, "tags")};

static _Thread_local struct {
    uint8_t depth;
    uint8_t tags[BERM_TAG_DEPTH_MAX];
} stack;

unsigned berm__tag_count(void) {
    return atomic_load_explicit(&names.count, memory_order_acquire);
}

const char *berm__tag_name(uint8_t tag) {
    return tag <= berm__tag_count() ? names.at[tag] : "";
}

uint8_t berm__tag_of(const char *name) {
    return *name == '\0' ? 0 : (uint8_t)((size_t)(name - names.at[0]) / sizeof names.at[0]);
}

uint8_t berm__tag_top(void) {
    return stack.depth > 0 ? stack.tags[stack.depth - 1] : 0;
}

static bool name_is_good(const char *name) {
    size_t length = name != NULL ? strnlen(name, BERM_TAG_BYTES) : 0;
    if (length == 0 || length == BERM_TAG_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == '\x7f')
            return false;
    return true;
}

static unsigned name_find(const char *name, unsigned count) {
    for (unsigned tag = 1; tag <= count; tag++)
        if (strcmp(names.at[tag], name) == 0)
            return tag;
    return 0;
}

uint8_t berm__tag_find(const char *name) {
    return (uint8_t)name_find(name, berm__tag_count());
}

// The number of a name, which is added if it is new; 0: there is no room.
static uint8_t name_intern(const char *name) {
    unsigned tag = name_find(name, berm__tag_count());
    if (BERM_LIKELY(tag != 0))
        return (uint8_t)tag;
    berm__mutex_lock(&names.lock);
    unsigned count = berm__tag_count();
    tag = name_find(name, count);
    if (tag == 0 && count < BERM_TAG_COUNT_MAX) {
        tag = count + 1;
        memcpy(names.at[tag], name, strlen(name) + 1);
        atomic_store_explicit(&names.count, tag, memory_order_release);
    }
    berm__mutex_unlock(&names.lock);
    return (uint8_t)tag;
}

// A thread's records may be of an earlier heap: then nothing in them is looked at.
static void top_publish(void) {
    berm_thread_t *thread = berm__thread;
    if (thread == NULL || thread->epoch != atomic_load(&berm__heap.epoch))
        return;
    for (uint32_t i = 0; i < thread->count; i++)
        thread->caches[i]->counts->tag = berm__tag_top();
    thread->ring.tag = berm__tag_top();
    berm__ring_part(&thread->ring);
}

berm_status_t berm_tag_push(const char *name) {
    if (!name_is_good(name))
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_tag_push: a name has 1 to %d bytes, none of them a control "
                               "character",
                               BERM_TAG_BYTES - 1);
    if (stack.depth == BERM_TAG_DEPTH_MAX)
        return berm__error_set(BERM_ERROR_STATE,
                               "berm_tag_push: %d tags are pushed: is a berm_tag_pop missing?",
                               BERM_TAG_DEPTH_MAX);
    uint8_t tag = name_intern(name);
    if (tag == 0)
        return berm__error_set(BERM_ERROR_TAGS, "berm_tag_push: no room for the name '%s'", name);
    stack.tags[stack.depth++] = tag;
    top_publish();
    return BERM_OK;
}

berm_status_t berm_tag_pop(void) {
    if (stack.depth == 0)
        return berm__error_set(BERM_ERROR_STATE, "berm_tag_pop: no tag is pushed");
    stack.depth--;
    top_publish();
    return BERM_OK;
}
