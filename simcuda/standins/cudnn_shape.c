// SPDX-License-Identifier: Apache-2.0
// Descriptors of tensors and filters, which are read back.
//
// Locks: none; a descriptor is one thread's at a time, as the library wants it.
#include <stdlib.h>
#include <string.h>

#include "simcuda/standins/cudnn.h"
#include "simcuda/standins/standin.h"

static const char SHAPE_KIND[] = "cudnn shape";

static int shape_create(uint64_t *handle) {
    if (handle == NULL)
        return CUDNN_BAD_PARAM;
    cudnn_shape_t *shape = calloc(1, sizeof *shape);
    *handle = shape == NULL ? 0 : standin_new(SHAPE_KIND, shape, free);
    if (*handle != 0)
        return CUDNN_OK;
    free(shape);
    return CUDNN_NO_HOST_MEMORY;
}

static int shape_destroy(uint64_t handle) {
    return standin_delete(handle) || handle == 0 ? CUDNN_OK : CUDNN_BAD_PARAM;
}

static int shape_write(uint64_t handle, int data_type, int format, int count, const int *dims,
                       const int *strides) {
    cudnn_shape_t *shape = standin_data(handle, SHAPE_KIND);
    if (shape == NULL || count < 0 || count > CUDNN_DIMS_MAX || dims == NULL)
        return CUDNN_BAD_PARAM;
    *shape = (cudnn_shape_t){.data_type = data_type, .format = format, .count = count};
    memcpy(shape->dims, dims, sizeof(int) * (size_t)count);
    if (strides != NULL)
        memcpy(shape->strides, strides, sizeof(int) * (size_t)count);
    return CUDNN_OK;
}

// Writes what there is of `wanted` numbers, and zeros for the rest.
static void numbers_write(int *to, const int *from, int wanted, int count) {
    for (int i = 0; to != NULL && i < wanted && i < CUDNN_DIMS_MAX; i++)
        to[i] = i < count ? from[i] : 0;
}

static int shape_read(uint64_t handle, int wanted, int *data_type, int *format, int *count,
                      int *dims, int *strides) {
    static const cudnn_shape_t none;
    const cudnn_shape_t *found = standin_data(handle, SHAPE_KIND);
    const cudnn_shape_t *shape = found != NULL ? found : &none;
    if (data_type != NULL)
        *data_type = shape->data_type;
    if (format != NULL)
        *format = shape->format;
    if (count != NULL)
        *count = shape->count;
    numbers_write(dims, shape->dims, wanted, shape->count);
    numbers_write(strides, shape->strides, wanted, shape->count);
    return found != NULL ? CUDNN_OK : CUDNN_BAD_PARAM;
}

void cudnn_shape_set(uint64_t handle, int data_type, int count, const int *dims,
                     const int *strides) {
    (void)shape_write(handle, data_type, 0, count, dims, strides);
}

int cudnnCreateTensorDescriptor(uint64_t *handle) {
    return shape_create(handle);
}

int cudnnDestroyTensorDescriptor(uint64_t handle) {
    return shape_destroy(handle);
}

int cudnnSetTensorNdDescriptor(uint64_t handle, int data_type, int count, const int *dims,
                               const int *strides) {
    return shape_write(handle, data_type, 0, count, dims, strides);
}

int cudnnGetTensorNdDescriptor(uint64_t handle, int wanted, int *data_type, int *count, int *dims,
                               int *strides) {
    return shape_read(handle, wanted, data_type, NULL, count, dims, strides);
}

int cudnnCreateFilterDescriptor(uint64_t *handle) {
    return shape_create(handle);
}

int cudnnDestroyFilterDescriptor(uint64_t handle) {
    return shape_destroy(handle);
}

int cudnnSetFilterNdDescriptor(uint64_t handle, int data_type, int format, int count,
                               const int *dims) {
    return shape_write(handle, data_type, format, count, dims, NULL);
}

int cudnnGetFilterNdDescriptor(uint64_t handle, int wanted, int *data_type, int *format, int *count,
                               int *dims) {
    return shape_read(handle, wanted, data_type, format, count, dims, NULL);
}
