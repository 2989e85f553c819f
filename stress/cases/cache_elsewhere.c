// SPDX-License-Identifier: Apache-2.0
// A graph's pool keeps what its capture needed, long after the graph was used last.
#include "stress/cases/case.h"

int main(void) {
    const berm_pool_id_t graph = {1, 0};
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_PRIVATE};
    berm_addr_t blocks[8];
    if (berm_pool_create(0, graph, &options) != BERM_OK)
        return 3;
    for (int i = 0; i < 8; i++)
        if (berm_alloc_from(graph, 20 * MIB, 1, 0, NULL, &blocks[i]) != BERM_OK)
            return 3;
    for (int i = 0; i < 8; i++)
        case_free(blocks[i]);
    (void)case_alloc(20 * MIB);
    (void)case_alloc(120 * MIB);
    return 0;
}
