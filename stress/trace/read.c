// SPDX-License-Identifier: Apache-2.0
// trace_read: gets the bytes (input.c), finds the format by content and hands over to its reader.
// A new format is a row of `formats`.
//
// Locks: none. May fail: on bad input or for want of memory; nothing is kept then.
#include <stdio.h>
#include <string.h>

#include "stress/trace/readers.h"

typedef struct format {
    bool (*matches)(const trace_input_t *input);
    trace_t *(*read)(const trace_input_t *input, const trace_read_options_t *options, char *error,
                     size_t error_capacity);
} format_t;

static const format_t formats[] = {
    {trace_event_csv_matches, trace_event_csv_read},
    {trace_rmm_csv_matches, trace_rmm_csv_read},
    {trace_lifetimes_csv_matches, trace_lifetimes_csv_read},
    {trace_pytorch_matches, trace_pytorch_read},
    {trace_recording_matches, trace_recording_read},
};

static trace_t *read_input(const trace_input_t *input, const trace_read_options_t *options,
                           char *error, size_t error_capacity) {
    static const trace_read_options_t defaults = {.scale = 1, .device = -1};
    if (input->size == 0) {
        trace_fail(error, error_capacity, "%s: is empty", input->name);
        return NULL;
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(formats); i++) {
        if (formats[i].matches(input)) {
            return formats[i].read(input, options == NULL ? &defaults : options, error,
                                   error_capacity);
        }
    }
    trace_fail(error, error_capacity,
               "%s:1: is no trace: neither a PyTorch snapshot pickle nor a recording of berm's nor CSV with a header "
               "(event_index,op,id,size_bytes,stream; Thread,Time,Action,Pointer,Size,Stream; "
               "id,lower,upper,size)",
               input->name);
    return NULL;
}

trace_t *trace_read(const char *path, const trace_read_options_t *options, char *error,
                    size_t error_capacity) {
    trace_input_t input;
    if (trace_input_load(&input, path, NULL, error, error_capacity) != 0) {
        return NULL;
    }
    trace_t *trace = read_input(&input, options, error, error_capacity);
    trace_input_unload(&input);
    return trace;
}

trace_t *trace_read_memory(const char *name, const void *bytes, size_t size,
                           const trace_read_options_t *options, char *error,
                           size_t error_capacity) {
    trace_input_t input;
    if (trace_input_borrow(&input, name, bytes, size, NULL, error, error_capacity) != 0) {
        return NULL;
    }
    trace_t *trace = read_input(&input, options, error, error_capacity);
    trace_input_unload(&input);
    return trace;
}
