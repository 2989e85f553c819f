// SPDX-License-Identifier: Apache-2.0
// Deferred frees of the PyTorch model: one event on each recorded stream at the free, polled at the
// next allocation. The block is reusable when all of its events have completed.
//
// Layout: a queue for each stream that was ever recorded, oldest event first; polling stops at the
// first event of a queue that has not completed.
// Bounds: a poll costs one query a stream with events, and one an event that has completed.
// May fail: no memory or no event; the stream is then waited for instead. Locks: none.
#include "stress/baselines/pytorch_blocks.h"

#include <stdlib.h>

static pytorch_queue_t *events_queue(stress_allocator_t *a, void *stream) {
    pytorch_queue_t **link = &a->queues;
    for (; *link != NULL; link = &(*link)->next)
        if ((*link)->stream == stream)
            return *link;
    pytorch_queue_t *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return NULL;
    queue->stream = stream;
    queue->last = &queue->first;
    *link = queue;
    return queue;
}

static pytorch_event_t *events_take(stress_allocator_t *a) {
    pytorch_event_t *event = a->events_idle;
    if (event != NULL) {
        a->events_idle = event->next;
        event->next = NULL;
        return event;
    }
    event = calloc(1, sizeof *event);
    if (event != NULL && stress_driver()->event_create(
                             &event->event, BERM_CU_EVENT_DISABLE_TIMING) != BERM_CU_SUCCESS) {
        free(event);
        return NULL;
    }
    return event;
}

static void events_give_back(stress_allocator_t *a, pytorch_event_t *event) {
    event->next = a->events_idle;
    a->events_idle = event;
}

static stress_result_t events_add(stress_allocator_t *a, pytorch_block_t *block, void *stream) {
    pytorch_queue_t *queue = events_queue(a, stream);
    pytorch_event_t *event = queue == NULL ? NULL : events_take(a);
    if (event == NULL) {
        a->figures.host_waits++;
        return stress_driver()->stream_synchronize(stream) == BERM_CU_SUCCESS ? STRESS_OK
                                                                              : STRESS_ERROR;
    }
    if (stress_driver()->event_record(event->event, stream) != BERM_CU_SUCCESS) {
        events_give_back(a, event);
        return STRESS_ERROR;
    }
    event->block = block;
    *queue->last = event;
    queue->last = &event->next;
    block->event_count++;
    return STRESS_OK;
}

stress_result_t pytorch_events_insert(stress_allocator_t *a, pytorch_block_t *block) {
    stress_result_t result = STRESS_OK;
    for (size_t i = 0; i < block->use_count; i++) {
        stress_result_t one = events_add(a, block, block->uses[i]);
        if (one != STRESS_OK)
            result = one;
    }
    block->use_count = 0;
    return result;
}

// The first event of the queue is done with.
static void events_pop(stress_allocator_t *a, pytorch_queue_t *queue) {
    pytorch_event_t *event = queue->first;
    queue->first = event->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    pytorch_block_t *block = event->block;
    events_give_back(a, event);
    if (--block->event_count == 0)
        pytorch_block_release(a, block);
}

void pytorch_events_process(stress_allocator_t *a) {
    for (pytorch_queue_t *queue = a->queues; queue != NULL; queue = queue->next)
        while (queue->first != NULL &&
               stress_driver()->event_query(queue->first->event) == BERM_CU_SUCCESS)
            events_pop(a, queue);
}

void pytorch_events_synchronize(stress_allocator_t *a) {
    for (pytorch_queue_t *queue = a->queues; queue != NULL; queue = queue->next) {
        while (queue->first != NULL) {
            a->figures.host_waits++;
            (void)stress_driver()->event_synchronize(queue->first->event);
            events_pop(a, queue);
        }
    }
}

void pytorch_events_destroy(stress_allocator_t *a) {
    while (a->queues != NULL) {
        pytorch_queue_t *queue = a->queues;
        a->queues = queue->next;
        free(queue);
    }
    while (a->events_idle != NULL) {
        pytorch_event_t *event = a->events_idle;
        a->events_idle = event->next;
        (void)stress_driver()->event_destroy(event->event);
        free(event);
    }
}
