// SPDX-License-Identifier: Apache-2.0
// Internal to pickle_machine.c and pickle_scalars.c: the state of a pickle being run, and what the
// functions of opcodes share. Each returns a PICKLE_STEP_ value; on PICKLE_STEP_FAILED the error
// has been written.
#ifndef STRESS_TRACE_PICKLE_MACHINE_H
#define STRESS_TRACE_PICKLE_MACHINE_H

#include "stress/trace/pickle_tree.h"

#define PICKLE_NO_ROOM "its values take too much memory for a file of this size"

typedef struct pickle_machine {
    pickle_t *pickle;
    const trace_input_t *input;
    size_t at;   // of the current opcode
    size_t next; // byte to be read
    pickle_ref_t *stack;
    size_t stack_count, stack_capacity;
    size_t *marks;
    size_t mark_count, mark_capacity;
    pickle_ref_t *memo;
    size_t memo_count, memo_capacity; // count: the highest number used, plus 1
    size_t memo_puts;                 // what MEMOIZE counts
    char *error;
    size_t error_capacity;
} pickle_machine_t;

enum {
    PICKLE_STEP_FAILED = -1,
    PICKLE_STEP_OK,
    PICKLE_STEP_STOP // the pickle has ended
};

int pickle__fail(pickle_machine_t *machine, const char *what);
size_t pickle__left(const pickle_machine_t *machine); // bytes not read yet

// A little-endian argument of `width` bytes; the rest of the line without its end.
int pickle__read_uint(pickle_machine_t *machine, size_t width, uint64_t *value);
int pickle__read_line(pickle_machine_t *machine, const char **text, size_t *length);

int pickle__push(pickle_machine_t *machine, pickle_ref_t value);
int pickle__push_node(pickle_machine_t *machine, const pickle_node_t *node);
int pickle__push_int(pickle_machine_t *machine, int64_t integer);

// The opcodes of numbers and text.
int pickle__op_int(pickle_machine_t *machine, uint8_t code);
int pickle__op_long(pickle_machine_t *machine, uint8_t code);
int pickle__op_int_line(pickle_machine_t *machine, uint8_t code);
int pickle__op_float(pickle_machine_t *machine, uint8_t code);
int pickle__op_float_line(pickle_machine_t *machine, uint8_t code);
int pickle__op_text(pickle_machine_t *machine, uint8_t code);
int pickle__op_text_line(pickle_machine_t *machine, uint8_t code);

#endif
