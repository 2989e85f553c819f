// SPDX-License-Identifier: Apache-2.0
// RNNs: where each matrix and bias lies in the weights, and how much space a pass takes.
//
// The layout is the one that the library's documentation lets a caller find out, not its own: all
// matrices first, layer by layer, then all biases. Sizes of the work and reserve spaces are
// estimates: work, the gates of one layer at every step; reserve (training only), gates and cell
// of every layer at every step.
//
// Locks: none; a descriptor is one thread's at a time, as the library wants it.
#include <stdlib.h>

#include "simcuda/standins/cudnn.h"
#include "simcuda/standins/standin.h"

static const char RNN_KIND[] = "cudnn rnn";
static const char DATA_KIND[] = "cudnn rnn data";

enum {
    TRAINING = 1
};

typedef struct rnn {
    int cell, has_bias, directions, input, hidden, projection, layers, data_type;
} rnn_t;

typedef struct rnn_data {
    int steps, batch;
} rnn_data_t;

typedef struct part {
    size_t offset; // in elements
    int rows, columns;
} part_t;

static size_t element_bytes(int data_type) {
    return data_type == CUDNN_DOUBLE ? 8 : data_type == CUDNN_FLOAT ? 4 : 2;
}

static int gates_of(const rnn_t *rnn) {
    return rnn->cell == CUDNN_RNN_LSTM ? 4 : rnn->cell == CUDNN_RNN_GRU ? 3 : 1;
}

static int has_projection(const rnn_t *rnn) {
    return rnn->projection != 0 && rnn->projection != rnn->hidden;
}

// Matrices of one pseudo-layer: the gates of the input, those of the recurrence, the projection.
static int matrices_of(const rnn_t *rnn) {
    return 2 * gates_of(rnn) + has_projection(rnn);
}

static void matrix_shape(const rnn_t *rnn, int layer, int which, int *rows, int *columns) {
    int gates = gates_of(rnn);
    int out = has_projection(rnn) ? rnn->projection : rnn->hidden;
    *rows = rnn->hidden;
    *columns = out;
    if (which < gates)
        *columns = layer < rnn->directions ? rnn->input : out * rnn->directions;
    else if (which == 2 * gates) {
        *rows = rnn->projection;
        *columns = rnn->hidden;
    }
}

// Finds a matrix (or bias) of a pseudo-layer; with layer -1, `part->offset` is the size of all.
static void part_find(const rnn_t *rnn, int layer, int which, int is_bias, part_t *part) {
    int rows = 0;
    int columns = 0;
    *part = (part_t){0};
    for (int at = 0; at < rnn->layers * rnn->directions; at++)
        for (int matrix = 0; matrix < matrices_of(rnn); matrix++) {
            matrix_shape(rnn, at, matrix, &rows, &columns);
            if (!is_bias && at == layer && matrix == which) {
                part->rows = rows;
                part->columns = columns;
                return;
            }
            part->offset += (size_t)rows * (size_t)columns;
        }
    for (int at = 0; rnn->has_bias && at < rnn->layers * rnn->directions; at++)
        for (int gate = 0; gate < 2 * gates_of(rnn); gate++) {
            if (is_bias && at == layer && gate == which) {
                part->rows = rnn->hidden;
                part->columns = 1;
                return;
            }
            part->offset += (size_t)rnn->hidden;
        }
}

static int object_create(uint64_t *handle, const char *kind, size_t bytes) {
    if (handle == NULL)
        return CUDNN_BAD_PARAM;
    void *data = calloc(1, bytes);
    *handle = data == NULL ? 0 : standin_new(kind, data, free);
    if (*handle != 0)
        return CUDNN_OK;
    free(data);
    return CUDNN_NO_HOST_MEMORY;
}

static int object_destroy(uint64_t handle) {
    return standin_delete(handle) || handle == 0 ? CUDNN_OK : CUDNN_BAD_PARAM;
}

int cudnnCreateRNNDescriptor(uint64_t *handle) {
    return object_create(handle, RNN_KIND, sizeof(rnn_t));
}

int cudnnDestroyRNNDescriptor(uint64_t handle) {
    return object_destroy(handle);
}

int cudnnCreateRNNDataDescriptor(uint64_t *handle) {
    return object_create(handle, DATA_KIND, sizeof(rnn_data_t));
}

int cudnnDestroyRNNDataDescriptor(uint64_t handle) {
    return object_destroy(handle);
}

int cudnnSetRNNDescriptor_v8(uint64_t handle, int algorithm, int cell, int bias, int direction,
                             int input_mode, int data_type, int math_precision, int math_type,
                             int input, int hidden, int projection, int layers, uint64_t dropout,
                             unsigned flags) {
    (void)algorithm;
    (void)input_mode;
    (void)math_precision;
    (void)math_type;
    (void)dropout;
    (void)flags;
    rnn_t *rnn = standin_data(handle, RNN_KIND);
    if (rnn == NULL || input < 1 || hidden < 1 || projection < 0 || layers < 1)
        return CUDNN_BAD_PARAM;
    *rnn = (rnn_t){.cell = cell,
                   .has_bias = bias != 0,
                   .directions = direction == CUDNN_RNN_BIDIRECTIONAL ? 2 : 1,
                   .input = input,
                   .hidden = hidden,
                   .projection = projection,
                   .layers = layers,
                   .data_type = data_type};
    return CUDNN_OK;
}

int cudnnSetRNNDataDescriptor(uint64_t handle, int data_type, int layout, int steps, int batch,
                              int width, const int *lengths, void *padding) {
    (void)data_type;
    (void)layout;
    (void)width;
    (void)lengths;
    (void)padding;
    rnn_data_t *data = standin_data(handle, DATA_KIND);
    if (data == NULL || steps < 1 || batch < 1)
        return CUDNN_BAD_PARAM;
    *data = (rnn_data_t){.steps = steps, .batch = batch};
    return CUDNN_OK;
}

int cudnnGetRNNWeightSpaceSize(uint64_t library, uint64_t handle, size_t *bytes) {
    const rnn_t *rnn = standin_data(handle, RNN_KIND);
    part_t all = {0};
    if (rnn != NULL)
        part_find(rnn, -1, 0, 0, &all);
    if (bytes != NULL)
        *bytes = rnn != NULL ? all.offset * element_bytes(rnn->data_type) : 0;
    return rnn != NULL && standin_is_live(library) ? CUDNN_OK : CUDNN_BAD_PARAM;
}

int cudnnGetRNNTempSpaceSizes(uint64_t library, uint64_t handle, int mode, uint64_t data_handle,
                              size_t *work_bytes, size_t *reserve_bytes) {
    const rnn_t *rnn = standin_data(handle, RNN_KIND);
    const rnn_data_t *data = standin_data(data_handle, DATA_KIND);
    size_t step = 0; // of one layer, all directions: gates
    size_t cell = 0;
    if (rnn != NULL && data != NULL) {
        cell = (size_t)data->steps * (size_t)data->batch * (size_t)rnn->hidden *
               (size_t)rnn->directions * element_bytes(rnn->data_type);
        step = cell * (size_t)gates_of(rnn);
    }
    if (work_bytes != NULL)
        *work_bytes = step;
    if (reserve_bytes != NULL)
        *reserve_bytes = rnn != NULL && mode == TRAINING ? (step + cell) * (size_t)rnn->layers : 0;
    return rnn != NULL && data != NULL && standin_is_live(library) ? CUDNN_OK : CUDNN_BAD_PARAM;
}

// Where a part lies in `space`, and its shape into a descriptor; no part where there is none.
static void part_tell(const rnn_t *rnn, const part_t *part, const void *space, uint64_t shape,
                      void **addr) {
    if (addr != NULL)
        *addr = part->rows == 0 ? NULL
                                : (char *)(uintptr_t)space + // NOLINT(performance-no-int-to-ptr)
                                      part->offset * element_bytes(rnn->data_type);
    if (part->rows == 0)
        return;
    int dims[3] = {1, part->rows, part->columns};
    int strides[3] = {part->rows * part->columns, part->columns, 1};
    cudnn_shape_set(shape, rnn->data_type, 3, dims, strides);
}

int cudnnGetRNNWeightParams(uint64_t library, uint64_t handle, int layer, size_t space_bytes,
                            const void *space, int which, uint64_t matrix, void **matrix_addr,
                            uint64_t bias, void **bias_addr) {
    (void)space_bytes;
    const rnn_t *rnn = standin_data(handle, RNN_KIND);
    if (matrix_addr != NULL)
        *matrix_addr = NULL;
    if (bias_addr != NULL)
        *bias_addr = NULL;
    if (rnn == NULL || !standin_is_live(library) || layer < 0 ||
        layer >= rnn->layers * rnn->directions || which < 0)
        return CUDNN_BAD_PARAM;
    part_t part;
    part_find(rnn, layer, which, 0, &part);
    part_tell(rnn, &part, space, matrix, matrix_addr);
    part_find(rnn, layer, which, 1, &part);
    part_tell(rnn, &part, space, bias, bias_addr);
    return CUDNN_OK;
}
