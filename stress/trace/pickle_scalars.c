// SPDX-License-Identifier: Apache-2.0
// The opcodes of a pickle that make a number or a text, each from the bytes that follow it.
//
// Bounds: a length is compared with the bytes that are left before it is used; a number written as
// text has at most 64 digits. Text is not copied.
// Locks: none. May fail: on a number or text that is none, or does not fit (ints: 64 bits).
#include <stdlib.h>
#include <string.h>

#include "stress/trace/pickle_machine.h"

enum {
    NUMBER_LINE_MAX = 64 // digits of a number written as text
};

// BININT (signed), BININT1, BININT2.
int pickle__op_int(pickle_machine_t *machine, uint8_t code) {
    uint64_t value;
    if (pickle__read_uint(machine, code == 'J' ? 4 : code == 'M' ? 2 : 1, &value) != 0) {
        return PICKLE_STEP_FAILED;
    }
    return pickle__push_int(machine,
                            code == 'J' ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
}

// LONG1 and LONG4: two's complement of any length; what does not fit in 64 bits is refused.
int pickle__op_long(pickle_machine_t *machine, uint8_t code) {
    uint64_t length;
    if (pickle__read_uint(machine, code == 0x8a ? 1 : 4, &length) != 0) {
        return PICKLE_STEP_FAILED;
    }
    if (length > pickle__left(machine)) {
        return pickle__fail(machine, "an int claims more bytes than are left");
    }
    const uint8_t *bytes = machine->input->bytes + machine->next;
    bool is_negative = length > 0 && (bytes[length - 1] & 0x80) != 0;
    uint64_t value = is_negative ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < length; i++) {
        if (i < 8) {
            value &= ~(UINT64_C(0xff) << (8 * i));
            value |= (uint64_t)bytes[i] << (8 * i);
        } else if (bytes[i] != (is_negative ? 0xff : 0)) {
            return pickle__fail(machine, "an int does not fit in 64 bits");
        }
    }
    if (((int64_t)value < 0) != is_negative) {
        return pickle__fail(machine, "an int does not fit in 64 bits");
    }
    machine->next += length;
    return pickle__push_int(machine, (int64_t)value);
}

// INT and LONG: decimal on a line; LONG ends in L. "00" and "01" of INT are False and True.
int pickle__op_int_line(pickle_machine_t *machine, uint8_t code) {
    const char *text;
    size_t length;
    if (pickle__read_line(machine, &text, &length) != 0) {
        return PICKLE_STEP_FAILED;
    }
    if (code == 'I' && length == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1')) {
        return pickle__push(machine, text[1] == '1' ? PICKLE_REF_TRUE : PICKLE_REF_FALSE);
    }
    length -= length > 0 && text[length - 1] == 'L';
    bool is_negative = length > 0 && text[0] == '-';
    size_t i = is_negative;
    int64_t value = 0;
    if (i == length || length > NUMBER_LINE_MAX) {
        return pickle__fail(machine, "an int is written badly");
    }
    for (; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return pickle__fail(machine, "an int is written badly");
        }
        int64_t digit = is_negative ? '0' - text[i] : text[i] - '0';
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return pickle__fail(machine, "an int does not fit in 64 bits");
        }
    }
    return pickle__push_int(machine, value);
}

int pickle__op_float(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    if (pickle__left(machine) < 8) {
        return pickle__fail(machine, "the file ends inside an opcode; it is cut off");
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++) {
        bits = bits << 8 | machine->input->bytes[machine->next + i];
    }
    machine->next += 8;
    pickle_node_t node = {.kind = PICKLE_FLOAT};
    memcpy(&node.as.real, &bits, sizeof bits);
    return pickle__push_node(machine, &node);
}

int pickle__op_float_line(pickle_machine_t *machine, uint8_t code) {
    (void)code;
    const char *text;
    size_t length;
    char copy[NUMBER_LINE_MAX + 1];
    if (pickle__read_line(machine, &text, &length) != 0) {
        return PICKLE_STEP_FAILED;
    }
    if (length == 0 || length > NUMBER_LINE_MAX) {
        return pickle__fail(machine, "a float is written badly");
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *end;
    pickle_node_t node = {.kind = PICKLE_FLOAT, .as.real = strtod(copy, &end)};
    return end == copy + length ? pickle__push_node(machine, &node)
                                : pickle__fail(machine, "a float is written badly");
}

static int push_text(pickle_machine_t *machine, pickle_kind_t kind, uint64_t length) {
    if (length > pickle__left(machine)) {
        return pickle__fail(machine, "a string claims more bytes than are left");
    }
    if (length > UINT32_MAX) {
        return pickle__fail(machine, "a string is longer than 4 GiB");
    }
    pickle_node_t node = {
        .kind = (uint8_t)kind, .count = (uint32_t)length, .as.offset = machine->next};
    machine->next += length;
    return pickle__push_node(machine, &node);
}

// The binary forms of str and bytes, which differ in the width of their length.
int pickle__op_text(pickle_machine_t *machine, uint8_t code) {
    size_t width = 4;
    pickle_kind_t kind = PICKLE_STR;
    switch (code) {
    case 0x8c: // SHORT_BINUNICODE
    case 'U':
        width = 1;
        break;
    case 0x8d: // BINUNICODE8
        width = 8;
        break;
    case 'C':
        width = 1;
        kind = PICKLE_BYTES;
        break;
    case 'B':
        kind = PICKLE_BYTES;
        break;
    case 0x8e: // BINBYTES8
    case 0x96: // BYTEARRAY8
        width = 8;
        kind = PICKLE_BYTES;
        break;
    default: // BINUNICODE, BINSTRING
        break;
    }
    uint64_t length;
    return pickle__read_uint(machine, width, &length) == 0 ? push_text(machine, kind, length)
                                                           : PICKLE_STEP_FAILED;
}

// UNICODE and STRING: text on a line, the latter in quotes. Escapes stay as they are.
int pickle__op_text_line(pickle_machine_t *machine, uint8_t code) {
    const char *text;
    size_t length;
    if (pickle__read_line(machine, &text, &length) != 0) {
        return PICKLE_STEP_FAILED;
    }
    if (code == 'S') {
        if (length < 2 || (text[0] != '\'' && text[0] != '"') || text[length - 1] != text[0]) {
            return pickle__fail(machine, "a string is not quoted");
        }
        text++;
        length -= 2;
    }
    if (length > UINT32_MAX) {
        return pickle__fail(machine, "a string is longer than 4 GiB");
    }
    pickle_node_t node = {.kind = PICKLE_STR,
                          .count = (uint32_t)length,
                          .as.offset = (uint64_t)((const uint8_t *)text - machine->input->bytes)};
    return pickle__push_node(machine, &node);
}
