// SPDX-License-Identifier: Apache-2.0
// Runs the opcodes of a pickle, protocols 0 to 5, as far as they make plain values (pickle.h).
// Those of numbers and text are in pickle_scalars.c.
//
// Layout: a stack of values, a stack of marks (heights of the value stack), a memo from number to
// value. One row of `opcodes` per opcode known: a name and a function; rows without a function say
// why they are refused.
// Bounds: one step per opcode, no recursion, whatever the nesting. A length is compared with the
// bytes that are left before anything is taken for it; a memo number with the size of the input.
// Locks: none. May fail: on anything that is no plain pickle, at the limit on memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/trace/pickle_machine.h"

enum {
    MEMO_EMPTY = UINT32_MAX,
};
#define MEMORY_FREE_BYTES BERM_MIB(256) // values may always take this much
#define MEMORY_RATIO      16            // and this many bytes per byte of input

typedef struct opcode {
    const char *name;
    int (*run)(pickle_machine_t *machine, uint8_t code);
    const char *refusal;
} opcode_t;

int pickle__fail(pickle_machine_t *machine, const char *what) {
    trace_fail(machine->error, machine->error_capacity, "%s: at byte %zu: %s", machine->input->name,
               machine->at, what);
    return PICKLE_STEP_FAILED;
}

size_t pickle__left(const pickle_machine_t *machine) {
    return machine->input->size - machine->next;
}

// Little-endian argument of an opcode.
int pickle__read_uint(pickle_machine_t *machine, size_t width, uint64_t *value) {
    if (pickle__left(machine) < width) {
        return pickle__fail(machine, "the file ends inside an opcode; it is cut off");
    }
    *value = 0;
    for (size_t i = 0; i < width; i++) {
        *value |= (uint64_t)machine->input->bytes[machine->next + i] << (8 * i);
    }
    machine->next += width;
    return PICKLE_STEP_OK;
}

// The rest of the line, without its end.
int pickle__read_line(pickle_machine_t *machine, const char **text, size_t *length) {
    const uint8_t *begin = machine->input->bytes + machine->next;
    const uint8_t *end = memchr(begin, '\n', pickle__left(machine));
    if (end == NULL) {
        return pickle__fail(machine, "the file ends inside a line; it is cut off");
    }
    *text = (const char *)begin;
    *length = (size_t)(end - begin);
    machine->next += *length + 1;
    return PICKLE_STEP_OK;
}

int pickle__push(pickle_machine_t *machine, pickle_ref_t value) {
    void *stack = machine->stack;
    if (pickle__reserve(machine->pickle, &stack, machine->stack_count, 1, &machine->stack_capacity,
                        sizeof *machine->stack) != 0) {
        return pickle__fail(machine, PICKLE_NO_ROOM);
    }
    machine->stack = stack;
    machine->stack[machine->stack_count++] = value;
    return PICKLE_STEP_OK;
}

int pickle__push_node(pickle_machine_t *machine, const pickle_node_t *node) {
    pickle_ref_t value;
    if (pickle__add(machine->pickle, node, &value) != 0) {
        return pickle__fail(machine, PICKLE_NO_ROOM);
    }
    return pickle__push(machine, value);
}

int pickle__push_int(pickle_machine_t *machine, int64_t integer) {
    pickle_ref_t value;
    if (pickle__add_int(machine->pickle, integer, &value) != 0) {
        return pickle__fail(machine, PICKLE_NO_ROOM);
    }
    return pickle__push(machine, value);
}

// Checks that `count` values lie above the last mark.
static int need(pickle_machine_t *machine, size_t count) {
    size_t floor = machine->mark_count == 0 ? 0 : machine->marks[machine->mark_count - 1];
    if (machine->stack_count - floor < count) {
        return pickle__fail(machine, "the pickle takes a value from an empty stack");
    }
    return PICKLE_STEP_OK;
}

// Takes the last mark away; *base is the height of the stack at it.
static int pop_mark(pickle_machine_t *machine, size_t *base) {
    if (machine->mark_count == 0) {
        return pickle__fail(machine, "the pickle refers to a mark it did not set");
    }
    *base = machine->marks[--machine->mark_count];
    return PICKLE_STEP_OK;
}

static int op_proto(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    uint64_t version;
    if (pickle__read_uint(machine, 1, &version) != 0) {
        return PICKLE_STEP_FAILED;
    }
    return version <= 5 ? PICKLE_STEP_OK : pickle__fail(machine, "a pickle protocol newer than 5");
}

static int op_frame(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    uint64_t length;
    if (pickle__read_uint(machine, 8, &length) != 0) {
        return PICKLE_STEP_FAILED;
    }
    return length <= pickle__left(machine)
               ? PICKLE_STEP_OK
               : pickle__fail(machine, "a frame claims more bytes than are left");
}

static int op_stop(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    if (need(machine, 1) != 0) {
        return PICKLE_STEP_FAILED;
    }
    machine->pickle->root = machine->stack[machine->stack_count - 1];
    return PICKLE_STEP_STOP;
}

static int op_mark(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    void *marks = machine->marks;
    if (pickle__reserve(machine->pickle, &marks, machine->mark_count, 1, &machine->mark_capacity,
                        sizeof *machine->marks) != 0) {
        return pickle__fail(machine, PICKLE_NO_ROOM);
    }
    machine->marks = marks;
    machine->marks[machine->mark_count++] = machine->stack_count;
    return PICKLE_STEP_OK;
}

static int op_pop(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    if (machine->mark_count > 0 &&
        machine->marks[machine->mark_count - 1] == machine->stack_count) {
        machine->mark_count--; // Python pops a mark where one is on top
        return PICKLE_STEP_OK;
    }
    if (need(machine, 1) != 0) {
        return PICKLE_STEP_FAILED;
    }
    machine->stack_count--;
    return PICKLE_STEP_OK;
}

static int op_pop_mark(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    return pop_mark(machine, &machine->stack_count);
}

static int op_dup(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    return need(machine, 1) == 0 ? pickle__push(machine, machine->stack[machine->stack_count - 1])
                                 : PICKLE_STEP_FAILED;
}

static int op_constant(pickle_machine_t *machine, uint8_t code) {
    if (code == 'N') {
        return pickle__push(machine, PICKLE_REF_NONE);
    }
    return pickle__push(machine, code == 0x88 ? PICKLE_REF_TRUE : PICKLE_REF_FALSE);
}

static int op_empty(pickle_machine_t *machine, uint8_t code) {
    pickle_kind_t kind = code == ']' ? PICKLE_LIST : code == '}' ? PICKLE_DICT : PICKLE_TUPLE;
    pickle_node_t node = {.kind = (uint8_t)kind};
    return pickle__push_node(machine, &node);
}

// A new container from the values above `base`, which it replaces.
static int collect(pickle_machine_t *machine, pickle_kind_t kind, size_t base) {
    size_t count = machine->stack_count - base;
    pickle_node_t node = {.kind = (uint8_t)kind};
    pickle_ref_t container;
    if (kind == PICKLE_DICT && count % 2 != 0) {
        return pickle__fail(machine, "a dict has a key without a value");
    }
    if (pickle__add(machine->pickle, &node, &container) != 0 ||
        pickle__append(machine->pickle, container, machine->stack + base, count) != 0) {
        return pickle__fail(machine, PICKLE_NO_ROOM);
    }
    machine->stack_count = base;
    return pickle__push(machine, container);
}

static int op_collect(pickle_machine_t *machine, uint8_t code) {
    size_t base = 0;
    if (pop_mark(machine, &base) != 0) {
        return PICKLE_STEP_FAILED;
    }
    return collect(machine,
                   code == 'l'   ? PICKLE_LIST
                   : code == 'd' ? PICKLE_DICT
                                 : PICKLE_TUPLE,
                   base);
}

// TUPLE1 to TUPLE3.
static int op_tuple(pickle_machine_t *machine, uint8_t code) {
    size_t count = (size_t)code - 0x84;
    return need(machine, count) == 0 ? collect(machine, PICKLE_TUPLE, machine->stack_count - count)
                                     : PICKLE_STEP_FAILED;
}

// Appends the values above `base` to the container right below them.
static int extend(pickle_machine_t *machine, pickle_kind_t kind, size_t base) {
    size_t count = machine->stack_count - base;
    machine->stack_count = base;
    if (need(machine, 1) != 0) {
        return PICKLE_STEP_FAILED;
    }
    pickle_ref_t container = machine->stack[base - 1];
    if (pickle_kind(machine->pickle, container) != kind) {
        return pickle__fail(machine, kind == PICKLE_LIST
                                         ? "appends to something that is no list"
                                         : "sets an item of something that is no dict");
    }
    if (kind == PICKLE_DICT && count % 2 != 0) {
        return pickle__fail(machine, "a dict has a key without a value");
    }
    if (pickle__append(machine->pickle, container, machine->stack + base, count) != 0) {
        return pickle__fail(machine, PICKLE_NO_ROOM);
    }
    return PICKLE_STEP_OK;
}

static int op_extend_one(pickle_machine_t *machine, uint8_t code) {
    size_t count = code == 'a' ? 1 : 2;
    return need(machine, count + 1) == 0 ? extend(machine, code == 'a' ? PICKLE_LIST : PICKLE_DICT,
                                                  machine->stack_count - count)
                                         : PICKLE_STEP_FAILED;
}

static int op_extend(pickle_machine_t *machine, uint8_t code) {
    size_t base = 0;
    return pop_mark(machine, &base) == 0
               ? extend(machine, code == 'e' ? PICKLE_LIST : PICKLE_DICT, base)
               : PICKLE_STEP_FAILED;
}

static int memo_put(pickle_machine_t *machine, uint64_t number) {
    if (need(machine, 1) != 0) {
        return PICKLE_STEP_FAILED;
    }
    if (number >= machine->input->size) {
        return pickle__fail(machine, "a memo number is higher than a file of this size can need");
    }
    if (number >= machine->memo_count) {
        void *memo = machine->memo;
        if (pickle__reserve(machine->pickle, &memo, machine->memo_count,
                            (size_t)number + 1 - machine->memo_count, &machine->memo_capacity,
                            sizeof *machine->memo) != 0) {
            return pickle__fail(machine, PICKLE_NO_ROOM);
        }
        machine->memo = memo;
        for (; machine->memo_count <= number; machine->memo_count++) {
            machine->memo[machine->memo_count] = MEMO_EMPTY;
        }
    }
    machine->memo_puts += machine->memo[number] == MEMO_EMPTY;
    machine->memo[number] = machine->stack[machine->stack_count - 1];
    return PICKLE_STEP_OK;
}

static int memo_get(pickle_machine_t *machine, uint64_t number) {
    if (number >= machine->memo_count || machine->memo[number] == MEMO_EMPTY) {
        return pickle__fail(machine, "the pickle refers to a memo number it did not set");
    }
    return pickle__push(machine, machine->memo[number]);
}

static int op_memo(pickle_machine_t *machine, uint8_t code) {
    uint64_t number;
    if (code == 0x94) { // MEMOIZE
        return memo_put(machine, machine->memo_puts);
    }
    if (pickle__read_uint(machine, code == 'q' || code == 'h' ? 1 : 4, &number) != 0) {
        return PICKLE_STEP_FAILED;
    }
    return code == 'q' || code == 'r' ? memo_put(machine, number) : memo_get(machine, number);
}

static int op_memo_line(pickle_machine_t *machine, uint8_t code) {
    const char *text;
    size_t length;
    if (pickle__read_line(machine, &text, &length) != 0) {
        return PICKLE_STEP_FAILED;
    }
    uint64_t number = 0;
    if (length == 0 || length > 12) {
        return pickle__fail(machine, "a memo number is written badly");
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return pickle__fail(machine, "a memo number is written badly");
        }
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return code == 'p' ? memo_put(machine, number) : memo_get(machine, number);
}

#define RUNS_CODE "would run code; refused"
#define NOT_PLAIN "makes no plain value; refused"

static const opcode_t opcodes[256] = {
    [0x80] = {"PROTO", op_proto, NULL},
    [0x95] = {"FRAME", op_frame, NULL},
    ['.'] = {"STOP", op_stop, NULL},
    ['('] = {"MARK", op_mark, NULL},
    ['0'] = {"POP", op_pop, NULL},
    ['1'] = {"POP_MARK", op_pop_mark, NULL},
    ['2'] = {"DUP", op_dup, NULL},
    ['N'] = {"NONE", op_constant, NULL},
    [0x88] = {"NEWTRUE", op_constant, NULL},
    [0x89] = {"NEWFALSE", op_constant, NULL},
    ['J'] = {"BININT", pickle__op_int, NULL},
    ['K'] = {"BININT1", pickle__op_int, NULL},
    ['M'] = {"BININT2", pickle__op_int, NULL},
    [0x8a] = {"LONG1", pickle__op_long, NULL},
    [0x8b] = {"LONG4", pickle__op_long, NULL},
    ['I'] = {"INT", pickle__op_int_line, NULL},
    ['L'] = {"LONG", pickle__op_int_line, NULL},
    ['G'] = {"BINFLOAT", pickle__op_float, NULL},
    ['F'] = {"FLOAT", pickle__op_float_line, NULL},
    [0x8c] = {"SHORT_BINUNICODE", pickle__op_text, NULL},
    ['X'] = {"BINUNICODE", pickle__op_text, NULL},
    [0x8d] = {"BINUNICODE8", pickle__op_text, NULL},
    ['U'] = {"SHORT_BINSTRING", pickle__op_text, NULL},
    ['T'] = {"BINSTRING", pickle__op_text, NULL},
    ['C'] = {"SHORT_BINBYTES", pickle__op_text, NULL},
    ['B'] = {"BINBYTES", pickle__op_text, NULL},
    [0x8e] = {"BINBYTES8", pickle__op_text, NULL},
    [0x96] = {"BYTEARRAY8", pickle__op_text, NULL},
    ['V'] = {"UNICODE", pickle__op_text_line, NULL},
    ['S'] = {"STRING", pickle__op_text_line, NULL},
    [']'] = {"EMPTY_LIST", op_empty, NULL},
    ['}'] = {"EMPTY_DICT", op_empty, NULL},
    [')'] = {"EMPTY_TUPLE", op_empty, NULL},
    ['l'] = {"LIST", op_collect, NULL},
    ['d'] = {"DICT", op_collect, NULL},
    ['t'] = {"TUPLE", op_collect, NULL},
    [0x85] = {"TUPLE1", op_tuple, NULL},
    [0x86] = {"TUPLE2", op_tuple, NULL},
    [0x87] = {"TUPLE3", op_tuple, NULL},
    ['a'] = {"APPEND", op_extend_one, NULL},
    ['s'] = {"SETITEM", op_extend_one, NULL},
    ['e'] = {"APPENDS", op_extend, NULL},
    ['u'] = {"SETITEMS", op_extend, NULL},
    ['q'] = {"BINPUT", op_memo, NULL},
    ['r'] = {"LONG_BINPUT", op_memo, NULL},
    ['h'] = {"BINGET", op_memo, NULL},
    ['j'] = {"LONG_BINGET", op_memo, NULL},
    [0x94] = {"MEMOIZE", op_memo, NULL},
    ['p'] = {"PUT", op_memo_line, NULL},
    ['g'] = {"GET", op_memo_line, NULL},
    ['c'] = {"GLOBAL", NULL, RUNS_CODE},
    [0x93] = {"STACK_GLOBAL", NULL, RUNS_CODE},
    ['R'] = {"REDUCE", NULL, RUNS_CODE},
    ['b'] = {"BUILD", NULL, RUNS_CODE},
    ['i'] = {"INST", NULL, RUNS_CODE},
    ['o'] = {"OBJ", NULL, RUNS_CODE},
    [0x81] = {"NEWOBJ", NULL, RUNS_CODE},
    [0x92] = {"NEWOBJ_EX", NULL, RUNS_CODE},
    ['P'] = {"PERSID", NULL, RUNS_CODE},
    ['Q'] = {"BINPERSID", NULL, RUNS_CODE},
    [0x82] = {"EXT1", NULL, RUNS_CODE},
    [0x83] = {"EXT2", NULL, RUNS_CODE},
    [0x84] = {"EXT4", NULL, RUNS_CODE},
    [0x8f] = {"EMPTY_SET", NULL, NOT_PLAIN},
    [0x90] = {"ADDITEMS", NULL, NOT_PLAIN},
    [0x91] = {"FROZENSET", NULL, NOT_PLAIN},
    [0x97] = {"NEXT_BUFFER", NULL, NOT_PLAIN},
    [0x98] = {"READONLY_BUFFER", NULL, NOT_PLAIN},
};

static int refuse(pickle_machine_t *machine, uint8_t code) {
    char what[96];
    const opcode_t *opcode = &opcodes[code];
    if (opcode->name == NULL) {
        snprintf(what, sizeof what, "0x%02x is no pickle opcode; the file is damaged", code);
    } else {
        snprintf(what, sizeof what, "opcode 0x%02x (%s) %s", code, opcode->name, opcode->refusal);
    }
    return pickle__fail(machine, what);
}

static int run(pickle_machine_t *machine) {
    for (;;) {
        machine->at = machine->next;
        if (pickle__left(machine) == 0) {
            return pickle__fail(machine, "the file ends before the pickle does; it is cut off");
        }
        uint8_t code = machine->input->bytes[machine->next++];
        int status =
            opcodes[code].run == NULL ? refuse(machine, code) : opcodes[code].run(machine, code);
        if (status != PICKLE_STEP_OK) {
            return status;
        }
    }
}

// The values that need no node each; and a stack that exists even while it is empty.
static int start(pickle_machine_t *machine) {
    pickle_ref_t added;
    void *stack = NULL;
    if (pickle__reserve(machine->pickle, &stack, 0, 1, &machine->stack_capacity,
                        sizeof *machine->stack) != 0) {
        return pickle__fail(machine, "no memory to read it");
    }
    machine->stack = stack;
    int status = pickle__add(machine->pickle, &(pickle_node_t){.kind = PICKLE_NONE}, &added);
    for (int64_t i = 0; i < 2 && status == 0; i++) {
        status = pickle__add(machine->pickle,
                             &(pickle_node_t){.kind = PICKLE_BOOL, .as.integer = i}, &added);
    }
    for (int64_t i = 0; i < 256 && status == 0; i++) {
        status = pickle__add(machine->pickle, &(pickle_node_t){.kind = PICKLE_INT, .as.integer = i},
                             &added);
    }
    return status == 0 ? PICKLE_STEP_OK : pickle__fail(machine, "no memory to read it");
}

pickle_t *pickle_read(const trace_input_t *input, char *error, size_t error_capacity) {
    pickle_t *pickle = calloc(1, sizeof *pickle);
    if (pickle == NULL) {
        trace_fail(error, error_capacity, "%s: no memory to read it", input->name);
        return NULL;
    }
    pickle->bytes = input->bytes;
    pickle->memory_limit_bytes =
        (size_t)berm__max_u64(MEMORY_FREE_BYTES, (uint64_t)input->size * MEMORY_RATIO);
    pickle_machine_t machine = {
        .pickle = pickle, .input = input, .error = error, .error_capacity = error_capacity};
    bool is_read = start(&machine) == PICKLE_STEP_OK && run(&machine) == PICKLE_STEP_STOP;
    free(machine.stack);
    free(machine.marks);
    free(machine.memo);
    if (!is_read) {
        pickle_destroy(pickle);
        return NULL;
    }
    return pickle;
}
