// SPDX-License-Identifier: Apache-2.0
// base/list.h: order, removal from anywhere, idempotence.
#include <criterion/criterion.h>

#include "base/list.h"

enum {
    ITEM_COUNT = 5
};

typedef struct item {
    int value;
    berm_list_t link;
} item_t;

static void list_expect(const berm_list_t *head, const int *values, int count) {
    const berm_list_t *at = head;
    for (int i = 0; i < count; i++) {
        cr_assert(at->next->prev == at);
        at = at->next;
        const item_t *item = BERM_CONTAINER_OF(at, item_t, link);
        cr_assert(item->value == values[i], "place %d holds %d", i, item->value);
    }
    cr_assert(at->next == head && head->prev == at);
}

Test(list, push_and_insert) {
    berm_list_t head;
    item_t items[ITEM_COUNT];
    for (int i = 0; i < ITEM_COUNT; i++)
        items[i].value = i;
    berm__list_init(&head);
    cr_assert(berm__list_is_empty(&head));
    berm__list_push_back(&head, &items[2].link);
    berm__list_push_back(&head, &items[4].link);
    berm__list_push_front(&head, &items[1].link);
    berm__list_insert_after(&items[2].link, &items[3].link);
    berm__list_push_front(&head, &items[0].link);
    cr_assert(!berm__list_is_empty(&head));
    list_expect(&head, (int[]){0, 1, 2, 3, 4}, 5);
}

Test(list, remove_is_idempotent) {
    berm_list_t head;
    item_t items[ITEM_COUNT];
    berm__list_init(&head);
    for (int i = 0; i < ITEM_COUNT; i++) {
        items[i].value = i;
        berm__list_push_back(&head, &items[i].link);
    }
    berm__list_remove(&items[0].link);
    berm__list_remove(&items[4].link);
    berm__list_remove(&items[2].link);
    berm__list_remove(&items[2].link);
    cr_assert(berm__list_is_empty(&items[2].link));
    list_expect(&head, (int[]){1, 3}, 2);
    berm__list_remove(&items[1].link);
    berm__list_remove(&items[3].link);
    cr_assert(berm__list_is_empty(&head));
}
