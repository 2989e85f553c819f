// SPDX-License-Identifier: Apache-2.0
// Where the live blocks of a recording were asked for, for `berm report`: sites of the option
// call_sites, most bytes first, with the line of source that addr2line finds where it is installed.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/report.h"

enum {
    SITES_SHOWN = 6
};

// Live bytes and blocks of one site.
typedef struct site {
    uint64_t address, bytes, blocks;
} site_t;

// The request of an address: the last ALLOC of it.
typedef struct request {
    uint64_t addr, site, size_bytes;
} request_t;

static int compare_requests(const void *one, const void *other) {
    const request_t *a = one, *b = other;
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int compare_sites(const void *one, const void *other) {
    const site_t *a = one, *b = other;
    return a->address < b->address ? -1 : a->address > b->address;
}

static int compare_bytes(const void *one, const void *other) {
    const site_t *a = one, *b = other;
    return a->bytes > b->bytes ? -1 : a->bytes < b->bytes;
}

// Live blocks, sorted by address, with the site of the last request of each.
static uint64_t requests_make(const berm_record_device_t *device, request_t *requests) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_LIVE)
            requests[count++] =
                (request_t){device->blocks[i].addr, 0, device->blocks[i].requested_bytes};
    if (count > 0)
        qsort(requests, count, sizeof *requests, compare_requests);
    for (uint64_t i = 0; count > 0 && i < device->event_count; i++) {
        const request_t key = {.addr = device->events[i].addr};
        if (device->events[i].kind != BERM_RECORD_ALLOC)
            continue;
        request_t *request = bsearch(&key, requests, count, sizeof key, compare_requests);
        if (request != NULL)
            request->site = device->events[i].site;
    }
    return count;
}

// The sites, most bytes first; how many. Those of unknown site are left out.
static uint64_t sites_make(const request_t *requests, uint64_t count, site_t *sites) {
    uint64_t site_count = 0, merged = 0;
    for (uint64_t i = 0; i < count; i++)
        if (requests[i].site != 0)
            sites[site_count++] = (site_t){requests[i].site, requests[i].size_bytes, 1};
    if (site_count == 0)
        return 0;
    qsort(sites, site_count, sizeof *sites, compare_sites);
    for (uint64_t i = 1; i < site_count; i++) {
        if (sites[i].address == sites[merged].address) {
            sites[merged].bytes += sites[i].bytes;
            sites[merged].blocks++;
        } else {
            sites[++merged] = sites[i];
        }
    }
    qsort(sites, merged + 1, sizeof *sites, compare_bytes);
    return merged + 1;
}

// Its lines, one for each function that was inlined, as one.
static void text_join(const char *output, char *text, size_t capacity) {
    size_t length = 0;
    for (; output[0] != '\0' && output[1] != '\0' && length + 1 < capacity; output++)
        if (*output != '\n')
            text[length++] = *output;
    text[length] = '\0';
}

void cli_site_text(const berm_record_t *record, uint64_t address, char *text, size_t capacity) {
    char offset[32], output[512] = "";
    (void)snprintf(text, capacity, "0x%" PRIx64, address);
    for (unsigned i = 0; i < record->module_count; i++) {
        const berm_record_module_t *module = &record->modules[i];
        if (address < module->first || address >= module->end)
            continue;
        // The call is before the address that it returns to.
        (void)snprintf(offset, sizeof offset, "0x%" PRIx64, address - 1 - module->base);
        (void)snprintf(text, capacity, "%s+%s", module->path, offset);
        char *const argv[] = {"addr2line", "-fpsie", (char *)module->path, offset, NULL};
        if (access(module->path, R_OK) == 0 &&
            cli_bench_spawn(argv, STDOUT_FILENO, output, sizeof output) == 0 && output[0] != '\0' &&
            output[0] != '?')
            text_join(output, text, capacity);
        return;
    }
}

void cli_report_sites(const berm_record_t *record, const berm_record_device_t *device) {
    request_t *requests = calloc(device->block_count + 1, sizeof *requests);
    site_t *sites = calloc(device->block_count + 1, sizeof *sites);
    uint64_t count = 0;
    if (requests != NULL && sites != NULL)
        count = sites_make(requests, requests_make(device, requests), sites);
    if (count > 0)
        (void)printf("call sites:\n");
    for (uint64_t i = 0; i < count && i < SITES_SHOWN; i++) {
        char text[512];
        cli_site_text(record, sites[i].address, text, sizeof text);
        (void)printf("  %8.1f MiB in %" PRIu64 " block%s: %s\n", cli_mib(sites[i].bytes),
                     sites[i].blocks, BERM_PLURAL(sites[i].blocks), text);
    }
    free(requests);
    free(sites);
}
