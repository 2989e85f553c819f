// SPDX-License-Identifier: Apache-2.0
// Rules about kernels and the page table: what a kernel sees through a second address, and what
// calls that change mappings do while kernels run. remap:alias stands on most of them. Running the
// rules, each in a process of its own, is left to rules.c.
//
// "Running" is a kernel that reads its memory again and again for HOLD_NS; whether it still runs is
// asked of an event behind it. Nothing is allocated on the host but for launches.
#include <string.h>

#include "base/defs.h"
#include "stress/calibrate/rules.h"

enum {
    ALIAS_ROUNDS = 32,
    MANY = 64, // mappings of one handle
    MANY_STEP = 37,
    EDITS_MAX = 100,
    MOVES = 24,
    DEPENDENT_ROUNDS = 8,
    WRITE_NS = 2000000,
    HOLD_NS = 30000000,
};

static void place_wrong(stress_place_t *p, const char *what, uint64_t number) {
    p->is_wrong = true;
    (void)snprintf(p->detail, sizeof p->detail, "%s: %llu", what, (unsigned long long)number);
}

static int kernel(stress_place_t *p, stress_kernel_t kind, unsigned unit, uint32_t value,
                  uint64_t ns) {
    return stress_kernels_launch(&p->kernels, kind, p->stream, stress_place_at(p, unit),
                                 p->unit_bytes, value, ns);
}

// Waits for the stream; wrong words make the rule differ, with `what`.
static int wrong_words(stress_place_t *p, const char *what) {
    uint32_t wrong = 0;
    int result = stress_kernels_wrong(&p->kernels, p->stream, &wrong);
    if (result == BERM_CU_SUCCESS && wrong != 0)
        place_wrong(p, what, wrong);
    return result;
}

static int alias_make(stress_place_t *p, unsigned first, unsigned second) {
    int result = stress_place_map(p, first, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_map(p, second, STRESS_PLACE_A));
    STRESS_THEN(result, stress_place_access(p, first, 1));
    STRESS_THEN(result, stress_place_access(p, second, 1));
    return result;
}

// --- aliases -------------------------------------------------------------------------------------

// The address that is read last has been read before, so that caches hold its old contents.
static int alias_kernels(stress_place_t *p) {
    int result = alias_make(p, 0, 4);
    STRESS_THEN(result, kernel(p, STRESS_KERNEL_FILL, 0, 0, 0));
    for (unsigned i = 0; result == BERM_CU_SUCCESS && i < ALIAS_ROUNDS; i++) {
        unsigned from = i % 2 * 4, to = 4 - from;
        STRESS_THEN(result, kernel(p, STRESS_KERNEL_CHECK, to, 1000 * i, 0));
        STRESS_THEN(result, kernel(p, STRESS_KERNEL_FILL, from, 1000 * (i + 1), 0));
        STRESS_THEN(result, kernel(p, STRESS_KERNEL_CHECK, to, 1000 * (i + 1), 0));
    }
    STRESS_THEN(result, wrong_words(p, "words that a later kernel saw old through an alias"));
    return result;
}

static int many_use(stress_place_t *p, uint64_t addr) {
    int result = p->d->set_access(addr, MANY * p->unit_bytes, &p->c->access, 1);
    for (unsigned i = 0; result == BERM_CU_SUCCESS && i < MANY; i++) {
        unsigned other = (i * MANY_STEP + 1) % MANY;
        STRESS_THEN(result, stress_kernels_launch(&p->kernels, STRESS_KERNEL_FILL, p->stream,
                                                  addr + i * p->unit_bytes, p->unit_bytes, i, 0));
        STRESS_THEN(result,
                    stress_kernels_launch(&p->kernels, STRESS_KERNEL_CHECK, p->stream,
                                          addr + other * p->unit_bytes, p->unit_bytes, i, 0));
    }
    STRESS_THEN(result, wrong_words(p, "words that were wrong through one of many mappings"));
    return result;
}

static int access_many(stress_place_t *p) {
    berm_cu_deviceptr_t addr = 0;
    uint64_t mapped = 0, unit = p->unit_bytes;
    int result = p->d->address_reserve(&addr, MANY * unit, 0, 0, 0);
    if (result != BERM_CU_SUCCESS)
        return result;
    while (result == BERM_CU_SUCCESS && mapped < MANY) {
        result = p->d->mem_map(addr + mapped * unit, unit, 0, p->handles[STRESS_PLACE_A], 0);
        mapped += result == BERM_CU_SUCCESS;
    }
    STRESS_THEN(result, many_use(p, addr));
    (void)p->d->stream_synchronize(p->stream);
    if (mapped > 0) {
        int unmapped = p->d->mem_unmap(addr, mapped * unit);
        STRESS_THEN(result, unmapped);
    }
    (void)p->d->address_free(addr, MANY * unit);
    return result;
}

// What remap:alias does: while a kernel still writes through the page's old address, the page is
// mapped at a new one, used there by the kernels behind it, and its old mapping retired afterwards.
static int move_once(stress_place_t *p, unsigned from, unsigned to, uint32_t value) {
    int result = kernel(p, STRESS_KERNEL_FILL, from, ~value, WRITE_NS);
    STRESS_THEN(result, stress_place_map(p, to, STRESS_PLACE_A));
    STRESS_THEN(result, stress_place_access(p, to, 1));
    STRESS_THEN(result, kernel(p, STRESS_KERNEL_FILL, to, value, 0));
    STRESS_THEN(result, kernel(p, STRESS_KERNEL_CHECK, to, value, 0));
    STRESS_THEN(result, p->d->stream_synchronize(p->stream));
    STRESS_THEN(result, p->d->mem_unmap(stress_place_at(p, from), p->unit_bytes));
    if (result == BERM_CU_SUCCESS) // what is mapped is only the new one
        p->mappings[0] = p->mappings[--p->mapping_count];
    STRESS_THEN(result, kernel(p, STRESS_KERNEL_CHECK, to, value, 0));
    return result;
}

static int alias_moves(stress_place_t *p) {
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_access(p, 0, 1));
    for (unsigned i = 0; result == BERM_CU_SUCCESS && i < MOVES; i++)
        result = move_once(p, i % STRESS_PLACE_UNITS, (i + 1) % STRESS_PLACE_UNITS, 77 * i + 1);
    STRESS_THEN(result, wrong_words(p, "wrong words in moved pages"));
    return result;
}

// --- the page table under running work -----------------------------------------------------------

// A kernel that holds unit 0 for HOLD_NS, and an event behind it.
static int hold_begin(stress_place_t *p, berm_cu_event_t *event) {
    *event = NULL;
    int result = stress_place_map(p, 0, STRESS_PLACE_A);
    STRESS_THEN(result, stress_place_access(p, 0, 1));
    STRESS_THEN(result, kernel(p, STRESS_KERNEL_FILL, 0, 5, 0));
    STRESS_THEN(result, p->d->event_create(event, BERM_CU_EVENT_DISABLE_TIMING));
    STRESS_THEN(result, p->d->stream_synchronize(p->stream));
    STRESS_THEN(result, kernel(p, STRESS_KERNEL_CHECK, 0, 5, HOLD_NS));
    STRESS_THEN(result, p->d->event_record(*event, p->stream));
    return result;
}

static int edit_once(stress_place_t *p, unsigned unit, stress_place_handle_t handle) {
    uint64_t addr = stress_place_at(p, unit);
    int result = p->d->mem_map(addr, p->unit_bytes, 0, p->handles[handle], 0);
    STRESS_THEN(result, stress_place_access(p, unit, 1));
    STRESS_THEN(result, p->d->mem_unmap(addr, p->unit_bytes));
    return result;
}

// Beside what the kernel uses, and a second address of the very page.
static int map_busy(stress_place_t *p) {
    berm_cu_event_t event;
    int result = hold_begin(p, &event);
    unsigned edits = 0;
    while (result == BERM_CU_SUCCESS && edits < EDITS_MAX &&
           p->d->event_query(event) == BERM_CU_NOT_READY) {
        result = edit_once(p, 1, STRESS_PLACE_B);
        STRESS_THEN(result, edit_once(p, 4, STRESS_PLACE_A));
        edits++;
    }
    STRESS_THEN(result, wrong_words(p, "words that changed under a running kernel"));
    if (result == BERM_CU_SUCCESS && edits == 0) {
        p->is_untested = true;
        (void)snprintf(p->detail, sizeof p->detail, "the kernel had ended before the first edit");
    }
    if (event != NULL)
        (void)p->d->event_destroy(event);
    return result;
}

static uint64_t since_us(uint64_t start_ns) {
    return (stress_calibrate_now_ns() - start_ns) / 1000;
}

// Whether they wait for work, which costs remap:alias what it is for.
static int map_waits(stress_place_t *p) {
    berm_cu_event_t event;
    uint64_t addr = stress_place_at(p, 1), took_us[3] = {0};
    int result = hold_begin(p, &event);
    uint64_t start_ns = stress_calibrate_now_ns();
    STRESS_THEN(result, stress_place_map(p, 1, STRESS_PLACE_B));
    took_us[0] = since_us(start_ns);
    start_ns = stress_calibrate_now_ns();
    STRESS_THEN(result, stress_place_access(p, 1, 1));
    took_us[1] = since_us(start_ns);
    start_ns = stress_calibrate_now_ns();
    STRESS_THEN(result, p->d->mem_unmap(addr, p->unit_bytes));
    took_us[2] = since_us(start_ns);
    p->mapping_count -= result == BERM_CU_SUCCESS;
    STRESS_THEN(result, wrong_words(p, "words that changed under a running kernel"));
    if (result == BERM_CU_SUCCESS && !p->is_wrong) {
        for (int i = 0; i < 3; i++)
            p->is_wrong = p->is_wrong || took_us[i] > HOLD_NS / 1000 / 2;
        (void)snprintf(p->detail, sizeof p->detail,
                       "map %llu, access %llu, unmap %llu us under %d ms of work",
                       (unsigned long long)took_us[0], (unsigned long long)took_us[1],
                       (unsigned long long)took_us[2], HOLD_NS / 1000000);
    }
    if (event != NULL)
        (void)p->d->event_destroy(event);
    return result;
}

// berm never does this; a driver that lets it pass in silence would hide the mistake.
static int unmap_busy(stress_place_t *p) {
    berm_cu_event_t event;
    int result = hold_begin(p, &event);
    if (result != BERM_CU_SUCCESS)
        return result;
    uint64_t start_ns = stress_calibrate_now_ns();
    int unmapped = p->d->mem_unmap(stress_place_at(p, 0), p->unit_bytes);
    bool is_early = since_us(start_ns) < HOLD_NS / 1000 / 2;
    p->mapping_count -= unmapped == BERM_CU_SUCCESS;
    int ended = p->d->stream_synchronize(p->stream);
    const char *what = "it waits for the kernel";
    if (unmapped != BERM_CU_SUCCESS)
        what = "it is refused";
    else if (ended != BERM_CU_SUCCESS)
        what = "the kernel faults";
    else if (is_early)
        what = "the kernel goes on, in silence";
    p->is_wrong = unmapped == BERM_CU_SUCCESS && ended == BERM_CU_SUCCESS && is_early;
    (void)snprintf(p->detail, sizeof p->detail, "%s (CUresults %d, %d)", what, unmapped, ended);
    return BERM_CU_SUCCESS;
}

// --- dependent launch ----------------------------------------------------------------------------

static int dependent_round(stress_place_t *p, stress_kernel_t check, uint32_t value,
                           uint32_t *wrong) {
    int result = kernel(p, STRESS_KERNEL_FILL_EARLY, 0, value, WRITE_NS);
    STRESS_THEN(result, kernel(p, check, 4, value, 0));
    STRESS_THEN(result, stress_kernels_wrong(&p->kernels, p->stream, wrong));
    return result;
}

// A kernel that starts early and waits must see all through an alias; what one that does not wait
// sees is why remap:alias and dependent launch do not go together.
static int dependent_launch(stress_place_t *p) {
    uint32_t before = 0, after = 0;
    unsigned early = 0;
    if (!p->kernels.can_depend) {
        p->is_untested = true;
        (void)snprintf(p->detail, sizeof p->detail, "%s",
                       p->c->has_modules ? "the device or the driver has no dependent launch"
                                         : "kernels of the simulated device cannot wait inside");
        return BERM_CU_SUCCESS;
    }
    int result = alias_make(p, 0, 4);
    for (uint32_t i = 1; result == BERM_CU_SUCCESS && i <= DEPENDENT_ROUNDS; i++)
        result = dependent_round(p, STRESS_KERNEL_CHECK_LATE, 100 * i, &after);
    if (result == BERM_CU_SUCCESS && after != 0)
        place_wrong(p, "words that a kernel that had waited saw old", after);
    for (uint32_t i = 1; result == BERM_CU_SUCCESS && i <= DEPENDENT_ROUNDS; i++) {
        before = after;
        result = dependent_round(p, STRESS_KERNEL_CHECK_NOW, 7000 * i, &after);
        early += after != before;
    }
    if (result == BERM_CU_SUCCESS && !p->is_wrong)
        (void)snprintf(p->detail, sizeof p->detail, "without a wait %u of %d kernels saw old words",
                       early, DEPENDENT_ROUNDS);
    return result;
}

const stress_rule_t stress_rules_of_kernels[] = {
    {"access_many",
     "one cuMemSetAccess covers 64 mappings of one handle, which kernels use in turn", false,
     BERM_CU_SUCCESS, access_many},
    {"alias_kernels", "a kernel sees what the one before it wrote through another alias", false,
     BERM_CU_SUCCESS, alias_kernels},
    {"map_busy", "mapping, access and unmapping beside running work do not disturb it", false,
     BERM_CU_SUCCESS, map_busy},
    {"alias_moves", "a page is mapped anew while a kernel still writes by its old address", false,
     BERM_CU_SUCCESS, alias_moves},
    {"map_waits", "cuMemMap, cuMemSetAccess and cuMemUnmap do not wait for running work", false,
     BERM_CU_SUCCESS, map_waits},
    {"dependent_launch", "a kernel that starts early and waits sees all through an alias", false,
     BERM_CU_SUCCESS, dependent_launch},
    {"unmap_busy", "cuMemUnmap under a kernel that uses the memory faults, or waits", false,
     BERM_CU_SUCCESS, unmap_busy},
};
const size_t stress_rules_of_kernels_count = BERM_ARRAY_LENGTH(stress_rules_of_kernels);
