// SPDX-License-Identifier: Apache-2.0
// The tag of what libberm_preload.so asks for. The program has the two functions itself and exports
// them, so that the library finds its own first, whether the libberm in the process has tags or
// not.
#include "preload_test.h"
#include "simcuda/runtime/cudart.h"

berm_status_t berm_tag_push(const char *name);
berm_status_t berm_tag_pop(void);

static unsigned pushes, pops, depth;
static bool is_full; // no tag can be pushed

berm_status_t berm_tag_push(const char *name) {
    CHECK(strcmp(name, "preload") == 0, "the tag is '%s'", name);
    pushes++;
    if (is_full)
        return BERM_ERROR_STATE;
    depth++;
    return BERM_OK;
}

berm_status_t berm_tag_pop(void) {
    pops++;
    CHECK(depth-- == 1, "a pop without a push");
    return BERM_OK;
}

static void case_tagged(void) {
    void *pointer = NULL, *other = NULL;
    GIVES(0, cudaMalloc(&pointer, MIB));
    GIVES(0, cudaMallocAsync(&other, MIB, NULL));
    CHECK(pushes == 2 && pops == 2 && depth == 0, "%u pushes, %u pops", pushes, pops);
    GIVES(0, cudaFree(pointer));
    GIVES(0, cudaFree(other));
    is_full = true;
    GIVES(0, cudaMalloc(&pointer, MIB));
    CHECK(is_berms(pointer), "not served without the tag");
    CHECK(pushes == 3 && pops == 2, "%u pushes, %u pops", pushes, pops);
    GIVES(0, cudaFree(pointer));
}

int main(int argc, char **argv) {
    static const test_case_t cases[] = {{"tagged", case_tagged}};
    return run_case(cases, 1, argc, argv);
}
