// SPDX-License-Identifier: Apache-2.0
// An intrusive circular doubly linked list. A list head is a node that links to itself when the
// list is empty; a node off every list links to itself too, so removal is idempotent.
#ifndef BERM_BASE_LIST_H
#define BERM_BASE_LIST_H

#include <stdbool.h>

#include "base/defs.h"

typedef struct berm_list {
    struct berm_list *next;
    struct berm_list *prev;
} berm_list_t;

// Walks the items of a list, first to last; the loop must not take `item` off the list.
#define BERM_LIST_EACH(type, item, head, member)                                                   \
    for (type *item = BERM_CONTAINER_OF((uintptr_t)(head)->next, type, member);                    \
         &(item)->member != (head);                                                                \
         (item) = BERM_CONTAINER_OF((uintptr_t)(item)->member.next, type, member))

static inline void berm__list_init(berm_list_t *head) {
    head->next = head;
    head->prev = head;
}

static inline bool berm__list_is_empty(const berm_list_t *head) {
    return head->next == head;
}

static inline void berm__list_insert_after(berm_list_t *position, berm_list_t *node) {
    node->prev = position;
    node->next = position->next;
    position->next->prev = node;
    position->next = node;
}

static inline void berm__list_push_front(berm_list_t *head, berm_list_t *node) {
    berm__list_insert_after(head, node);
}

static inline void berm__list_push_back(berm_list_t *head, berm_list_t *node) {
    berm__list_insert_after(head->prev, node);
}

static inline void berm__list_remove(berm_list_t *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    berm__list_init(node);
}

#endif
