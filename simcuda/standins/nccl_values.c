// SPDX-License-Identifier: Apache-2.0
// Where the values of device memory come from and go to.
//
// Locks: none; standin_values_set comes before every other use.
#include <string.h>

#include "simcuda/driver/entries.h"
#include "simcuda/include/simcuda.h"
#include "simcuda/standins/nccl.h"

static standin_values_read_fn told_read;
static standin_values_write_fn told_write;

void standin_values_set(standin_values_read_fn read, standin_values_write_fn write) {
    told_read = read;
    told_write = write;
}

bool nccl_is_told_values(void) {
    return told_read != NULL && told_write != NULL;
}

static void nothing(void *arg) {
    (void)arg;
}

// A host function as a kernel is refused where memory has no contents.
static bool is_backed(void) {
    enum {
        NOT_SUPPORTED = 801
    };
    static int known = -1;
    if (known < 0)
        known = simcuda_launch_fn(NULL, 1, NULL, 0, nothing, NULL) != NOT_SUPPORTED;
    return known;
}

bool nccl_moves_values(void) {
    return nccl_is_told_values() || is_backed();
}

bool nccl_values_read(uint64_t addr, void *data, size_t bytes) {
    if (bytes == 0)
        return true;
    if (nccl_is_told_values())
        return told_read(addr, data, bytes) == 1;
    return cuMemcpyDtoH_v2(data, addr, bytes) == BERM_CU_SUCCESS;
}

void nccl_values_write(uint64_t addr, const void *data, size_t bytes) {
    if (nccl_is_told_values())
        told_write(addr, data, bytes);
    else if (data != NULL)
        memcpy((void *)(uintptr_t)addr, data, bytes); // NOLINT(performance-no-int-to-ptr)
}
