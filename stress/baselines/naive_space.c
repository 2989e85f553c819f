// SPDX-License-Identifier: Apache-2.0
// The address space of the naive allocator; the order in which things are tried is naive.c.
//
// Layout: one reservation, tiled by nodes in address order (prev, next). Borders of UNMAPPED and
// MAPPING nodes are page borders; all others are multiples of 512 bytes.
// Bounds: everything O(log n) in the number of nodes.
// Invariants (naive_space_audit): 1. nodes tile the reservation; 2. neighbours that could be joined
// are; 3. each node is in exactly the sets of its state, under its own key; 4. whole_pages is the
// sum over victims.
// Locks: none; one thread. Driver: create and destroy only.
#include "stress/baselines/naive_space.h"

#include <stdlib.h>

#include "base/bits.h"

static naive_node_t *node_of(ordered_node_t *fit) {
    return fit == NULL ? NULL : BERM_CONTAINER_OF(fit, naive_node_t, fit);
}

uint64_t naive_node_whole_pages(const naive_space_t *space, const naive_node_t *node) {
    uint64_t start = berm__align_up(node->addr, space->page_bytes);
    uint64_t end = berm__align_down(node->addr + node->size_bytes, space->page_bytes);
    return end > start ? (end - start) / space->page_bytes : 0;
}

static ordered_key_t fit_key(const naive_node_t *node) {
    return (ordered_key_t){(uint64_t)(uintptr_t)node->stream, node->size_bytes, node->addr};
}

static void node_enter(naive_space_t *space, naive_node_t *node) {
    if (node->state == NAIVE_UNMAPPED)
        ordered_set_insert(&space->gaps, &node->fit, (ordered_key_t){node->addr, 0, 0});
    if (node->state != NAIVE_FREE)
        return;
    ordered_set_insert(&space->fits, &node->fit, fit_key(node));
    uint64_t pages = naive_node_whole_pages(space, node);
    if (pages > 0)
        ordered_set_insert(&space->victims, &node->whole, (ordered_key_t){pages, node->addr, 0});
    space->whole_pages += pages;
}

static void node_leave(naive_space_t *space, naive_node_t *node) {
    if (node->fit.is_member)
        ordered_set_remove(node->state == NAIVE_UNMAPPED ? &space->gaps : &space->fits, &node->fit);
    if (node->whole.is_member) {
        space->whole_pages -= node->whole.key.first;
        ordered_set_remove(&space->victims, &node->whole);
    }
}

bool naive_space_secure(naive_space_t *space, size_t count) {
    while (space->spare_count < count) {
        naive_node_t *node = calloc(1, sizeof *node);
        if (node == NULL)
            return false;
        node->next = space->spares;
        space->spares = node;
        space->spare_count++;
    }
    return true;
}

static naive_node_t *node_take(naive_space_t *space) {
    naive_node_t *node = space->spares;
    BERM_INSIST(node != NULL, "a node was secured");
    space->spares = node->next;
    space->spare_count--;
    *node = (naive_node_t){0};
    return node;
}

static void node_give_back(naive_space_t *space, naive_node_t *node) {
    node->next = space->spares;
    space->spares = node;
    space->spare_count++;
}

bool naive_space_create(naive_space_t *space, uint64_t page_bytes, uint64_t wanted_bytes) {
    *space = (naive_space_t){.page_bytes = page_bytes};
    ordered_set_init(&space->fits);
    ordered_set_init(&space->gaps);
    ordered_set_init(&space->victims);
    if (!naive_space_secure(space, 1))
        return false;
    berm_cu_deviceptr_t base = 0;
    uint64_t size_bytes = berm__align_up(wanted_bytes, page_bytes);
    while (stress_driver()->address_reserve(&base, size_bytes, 0, 0, 0) != BERM_CU_SUCCESS) {
        size_bytes = berm__align_up(size_bytes / 2, page_bytes);
        if (size_bytes < wanted_bytes / 8) {
            naive_space_destroy(space);
            return false;
        }
    }
    space->base = base;
    space->size_bytes = size_bytes;
    space->handles = calloc(size_bytes / page_bytes, sizeof *space->handles);
    if (space->handles == NULL) {
        naive_space_destroy(space);
        return false;
    }
    space->first = node_take(space);
    space->first->addr = base;
    space->first->size_bytes = size_bytes;
    node_enter(space, space->first);
    return true;
}

// A run of nodes between two gaps goes in one unmap.
static void space_unmap_all(naive_space_t *space) {
    uint64_t start = 0;
    for (const naive_node_t *node = space->first; node != NULL; node = node->next) {
        bool is_mapped = node->state == NAIVE_FREE || node->state == NAIVE_LIVE;
        if (is_mapped && start == 0)
            start = node->addr;
        uint64_t end = is_mapped ? node->addr + node->size_bytes : node->addr;
        bool is_last = !is_mapped || node->next == NULL;
        if (start == 0 || !is_last)
            continue;
        (void)stress_driver()->mem_unmap(start, end - start);
        for (uint64_t addr = start; addr < end; addr += space->page_bytes)
            (void)stress_driver()->mem_release(*naive_space_handle(space, addr));
        start = 0;
    }
}

void naive_space_destroy(naive_space_t *space) {
    space_unmap_all(space);
    for (naive_node_t *list = space->first; list != NULL;) {
        naive_node_t *next = list->next;
        free(list);
        list = next;
    }
    for (naive_node_t *list = space->spares; list != NULL;) {
        naive_node_t *next = list->next;
        free(list);
        list = next;
    }
    if (space->base != 0)
        (void)stress_driver()->address_free(space->base, space->size_bytes);
    free(space->handles);
    *space = (naive_space_t){0};
}

naive_node_t *naive_space_best_fit(const naive_space_t *space, uint64_t size_bytes, void *stream) {
    ordered_key_t key = {(uint64_t)(uintptr_t)stream, size_bytes, 0};
    naive_node_t *node = node_of(ordered_set_at_least(&space->fits, key));
    return node != NULL && node->stream == stream ? node : NULL;
}

naive_node_t *naive_space_largest(const naive_space_t *space, void *stream) {
    ordered_key_t key = {(uint64_t)(uintptr_t)stream, UINT64_MAX, UINT64_MAX};
    naive_node_t *node = node_of(ordered_set_below(&space->fits, key));
    return node != NULL && node->stream == stream ? node : NULL;
}

void naive_node_set_state(naive_space_t *space, naive_node_t *node, naive_state_t state) {
    node_leave(space, node);
    node->state = state;
    node_enter(space, node);
}

naive_node_t *naive_node_split(naive_space_t *space, naive_node_t *node, uint64_t offset_bytes) {
    naive_node_t *high = node_take(space);
    node_leave(space, node);
    high->addr = node->addr + offset_bytes;
    high->size_bytes = node->size_bytes - offset_bytes;
    high->stream = node->stream;
    high->state = node->state;
    high->prev = node;
    high->next = node->next;
    if (high->next != NULL)
        high->next->prev = high;
    node->next = high;
    node->size_bytes = offset_bytes;
    node_enter(space, node);
    node_enter(space, high);
    return high;
}

static bool nodes_join(const naive_node_t *a, const naive_node_t *b) {
    if (a == NULL || b == NULL || a->state != b->state)
        return false;
    return a->state == NAIVE_UNMAPPED || (a->state == NAIVE_FREE && a->stream == b->stream);
}

naive_node_t *naive_node_join(naive_space_t *space, naive_node_t *node) {
    if (nodes_join(node->prev, node))
        node = node->prev;
    while (nodes_join(node, node->next)) {
        naive_node_t *high = node->next;
        node_leave(space, node);
        node_leave(space, high);
        node->size_bytes += high->size_bytes;
        node->next = high->next;
        if (node->next != NULL)
            node->next->prev = node;
        node_give_back(space, high);
        node_enter(space, node);
    }
    return node;
}

berm_cu_mem_handle_t *naive_space_handle(naive_space_t *space, uint64_t addr) {
    return &space->handles[(addr - space->base) / space->page_bytes];
}

static bool node_is_filed(const naive_space_t *space, const naive_node_t *node) {
    bool is_free = node->state == NAIVE_FREE, is_gap = node->state == NAIVE_UNMAPPED;
    if (node->fit.is_member != (is_free || is_gap))
        return false;
    if (is_gap && node->fit.key.first != node->addr)
        return false;
    if (is_free && (node->fit.key.second != node->size_bytes || node->fit.key.third != node->addr))
        return false;
    uint64_t pages = is_free ? naive_node_whole_pages(space, node) : 0;
    return node->whole.is_member == (pages > 0) && (pages == 0 || node->whole.key.first == pages);
}

int naive_space_audit(const naive_space_t *space, stress_figures_t *sums) {
    *sums = (stress_figures_t){0};
    uint64_t at = space->base, pages = 0, mapped_bytes = 0;
    for (const naive_node_t *node = space->first; node != NULL; node = node->next) {
        if (node->addr != at || node->size_bytes == 0 ||
            (node->next != NULL && node->next->prev != node))
            return 1;
        at += node->size_bytes;
        if (nodes_join(node, node->next))
            return 2;
        if (!node_is_filed(space, node))
            return 3;
        pages += node->whole.is_member ? node->whole.key.first : 0;
        if (node->state == NAIVE_FREE || node->state == NAIVE_LIVE)
            mapped_bytes += node->size_bytes;
        if (node->state == NAIVE_LIVE) {
            sums->allocated_bytes += node->size_bytes;
            sums->requested_bytes += node->requested_bytes;
        }
    }
    if (at != space->base + space->size_bytes)
        return 1;
    if (!ordered_set_is_valid(&space->fits) || !ordered_set_is_valid(&space->gaps) ||
        !ordered_set_is_valid(&space->victims))
        return 3;
    sums->active_bytes = sums->allocated_bytes;
    sums->reserved_bytes = mapped_bytes;
    return pages == space->whole_pages ? 0 : 4;
}
