// SPDX-License-Identifier: Apache-2.0
// Prints the three figures of a heap before and after fragmenting it, and after a request that only
// fits because pages move: allocated, reserved, largest free block.
#include <inttypes.h>
#include <stdio.h>

#include "berm_introspect.h"

static void figures_print(const char *when) {
    berm_stats_t stats = BERM_STATS_INIT;
    uint64_t largest = 0;
    if (berm_stats_read(0, &stats) != BERM_OK ||
        berm_largest_free_read(0, NULL, &largest) != BERM_OK)
        return;
    printf("%-34s allocated %4" PRIu64 " MiB   reserved %4" PRIu64 " MiB   largest free %4" PRIu64
           " MiB\n",
           when, stats.allocated_bytes.current >> 20, stats.reserved_bytes.current >> 20,
           largest >> 20);
}

int main(void) {
    enum {
        BLOCKS = 64
    };
    berm_addr_t blocks[BLOCKS], large = 0;
    for (int i = 0; i < BLOCKS; i++)
        if (berm_alloc(16 << 20, 0, NULL, &blocks[i]) != BERM_OK)
            return fprintf(stderr, "%s\n", berm_error_message()), 1;
    figures_print("64 blocks of 16 MiB");
    for (int i = 0; i < BLOCKS; i += 2)
        (void)berm_free(blocks[i], 0, NULL);
    figures_print("every second one freed");
    if (berm_alloc(448 << 20, 0, NULL, &large) != BERM_OK)
        return fprintf(stderr, "%s\n", berm_error_message()), 1;
    figures_print("one block of 448 MiB, pages moved");
    printf("without moving pages it would need about %d MiB reserved\n", BLOCKS * 16 + 448);
    return berm_shutdown(NULL) == BERM_OK ? 0 : 1;
}
