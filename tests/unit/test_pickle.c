// SPDX-License-Identifier: Apache-2.0
// Plain pickles of every protocol, and hostile ones.
#include "stress/trace/pickle.h"

#include "tests/unit/trace_helpers.h"

static pickle_t *read_pickle(trace_input_t *input, const void *bytes, size_t size) {
    *input = (trace_input_t){.name = "T", .bytes = bytes, .size = size};
    th_error[0] = '\0';
    pickle_t *pickle = pickle_read(input, th_error, sizeof th_error);
    cr_assert((pickle == NULL) == (th_error[0] != '\0'));
    return pickle;
}

static void refuse(const void *bytes, size_t size, const char *line) {
    trace_input_t input;
    pickle_t *pickle = read_pickle(&input, bytes, size);
    cr_assert(pickle == NULL, "accepted; expected: %s", line);
    cr_assert(strcmp(th_error, line) == 0, "got:      %s\nexpected: %s", th_error, line);
}

// Writes a value on a line, as Python's repr does; depth is bounded by the tests.
static void show(const pickle_t *pickle, pickle_ref_t value, FILE *out, int depth) {
    size_t length;
    pickle_kind_t kind = pickle_kind(pickle, value);
    switch (kind) {
    case PICKLE_NONE:
        fputs("None", out);
        return;
    case PICKLE_BOOL:
        fputs(pickle_int(pickle, value) ? "True" : "False", out);
        return;
    case PICKLE_INT:
        fprintf(out, "%lld", (long long)pickle_int(pickle, value));
        return;
    case PICKLE_FLOAT:
        fprintf(out, "%g", pickle_float(pickle, value));
        return;
    case PICKLE_STR:
    case PICKLE_BYTES: {
        const char *text = pickle_text(pickle, value, &length);
        fprintf(out, "%s'%.*s'", kind == PICKLE_BYTES ? "b" : "", (int)length, text);
        return;
    }
    case PICKLE_LIST:
    case PICKLE_TUPLE:
    case PICKLE_DICT:
        break;
    }
    fputc(kind == PICKLE_LIST ? '[' : kind == PICKLE_DICT ? '{' : '(', out);
    length = pickle_count(pickle, value) * (kind == PICKLE_DICT ? 2 : 1);
    for (size_t i = 0; i < length && depth > 0; i++) {
        fputs(i == 0 ? "" : kind == PICKLE_DICT && i % 2 == 1 ? ": " : ", ", out);
        show(pickle, pickle_item(pickle, value, i), out, depth - 1);
    }
    fputc(kind == PICKLE_LIST ? ']' : kind == PICKLE_DICT ? '}' : ')', out);
}

static void expect(const void *bytes, size_t size, const char *repr) {
    trace_input_t input;
    pickle_t *pickle = read_pickle(&input, bytes, size);
    cr_assert(pickle != NULL, "%s", th_error);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    show(pickle, pickle_root(pickle), out, 8);
    fclose(out);
    cr_assert(strcmp(text, repr) == 0, "got:      %s\nexpected: %s", text, repr);
    free(text);
    pickle_destroy(pickle);
}

#define EXPECT(bytes, repr) expect(bytes, sizeof(bytes) - 1, repr)
#define REFUSE(bytes, line) refuse(bytes, sizeof(bytes) - 1, line)

// {'a': 1, 'b': [1.5, None, True, False, -1, 70000, 2**40], 'c': ('x', ()), 'd': 'x'}
#define VALUE                                                                                      \
    "{'a': 1, 'b': [1.5, None, True, False, -1, 70000, 1099511627776], 'c': ('x', ()), 'd': 'x'}"

Test(pickle, reads_protocol_0) {
    EXPECT(
        "(dp0\nVa\np1\nI1\nsVb\np2\n(lp3\nF1.5\naNaI01\naI00\naI-1\naI70000\naL1099511627776L\nas"
        "Vc\np4\n(Vx\np5\n(ttp6\nsVd\np7\ng5\ns.",
        VALUE);
}

Test(pickle, reads_protocol_2) {
    EXPECT("\x80\x02}q\x00(X\x01\x00\x00\x00"
           "aq\x01K\x01X\x01\x00\x00\x00"
           "bq\x02]q\x03("
           "G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88\x89J\xff\xff\xff\xffJ\x70\x11\x01\x00"
           "\x8a\x06\x00\x00\x00\x00\x00\x01"
           "eX\x01\x00\x00\x00"
           "cq\x04X\x01\x00\x00\x00"
           "xq\x05)"
           "\x86q\x06X\x01\x00\x00\x00"
           "dq\x07h\x05u.",
           VALUE);
}

Test(pickle, reads_protocols_4_and_5) {
    EXPECT("\x80\x05\x95\x42\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
           "a\x94K\x01\x8c\x01"
           "b\x94]\x94("
           "G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88\x89J\xff\xff\xff\xffJ\x70\x11\x01\x00"
           "\x8a\x06\x00\x00\x00\x00\x00\x01"
           "e\x8c\x01"
           "c\x94\x8c\x01x\x94)\x86\x94\x8c\x01"
           "d\x94h\x05u.",
           VALUE);
}

Test(pickle, reads_every_form_of_text_and_bytes) {
    EXPECT("(\x8d\x01\x00\x00\x00\x00\x00\x00\x00"
           "aU\x01"
           "bT\x01\x00\x00\x00"
           "cS'd'\nC\x01"
           "e"
           "B\x01\x00\x00\x00"
           "f\x8e\x01\x00\x00\x00\x00\x00\x00\x00"
           "g"
           "\x96\x01\x00\x00\x00\x00\x00\x00\x00"
           "hl.",
           "['a', 'b', 'c', 'd', b'e', b'f', b'g', b'h']");
}

Test(pickle, reads_ints_to_the_edges_of_64_bits) {
    EXPECT("(\x8a\x00\x8a\x01\x80\x8a\x01\x7f\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
           "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8b\x09\x00\x00\x00\x01\x00\x00\x00\x00\x00"
           "\x00\x00\x00"
           "L9223372036854775807L\nL-9223372036854775808L\nM\xff\xffK\xffl.",
           "[0, -128, 127, 9223372036854775807, -9223372036854775808, 1, 9223372036854775807, "
           "-9223372036854775808, 65535, 255]");
    REFUSE("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.",
           "T: at byte 0: an int does not fit in 64 bits");
    REFUSE("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.",
           "T: at byte 0: an int does not fit in 64 bits");
    REFUSE("L9223372036854775808L\n.", "T: at byte 0: an int does not fit in 64 bits");
    REFUSE("I-9223372036854775809\n.", "T: at byte 0: an int does not fit in 64 bits");
}

Test(pickle, keeps_stack_and_marks_as_python_does) {
    EXPECT("K\x01K\x02"
           "0.",
           "1"); // POP
    EXPECT("K\x01(K\x02K\x03"
           "1.",
           "1");             // POP_MARK
    EXPECT("K\x01(0.", "1"); // POP of a mark
    EXPECT("K\x07"
           "2\x86.",
           "(7, 7)"); // DUP
    EXPECT("]K\x01"
           "aK\x02"
           "a.",
           "[1, 2]"); // APPEND
    EXPECT("K\x01K\x02K\x03\x87.", "(1, 2, 3)");
    EXPECT("K\x01\x85.", "(1)");
    EXPECT("(]q\x05K\x01"
           "ah\x05(K\x02"
           "eh\x05t.",
           "([1, 2], [1, 2], [1, 2])"); // shared, mutable
    EXPECT("(]r\x05\x00\x00\x00j\x05\x00\x00\x00l.", "[[], []]");
    EXPECT(
        "Np1000\n.   many bytes, so that a memo number of 1000 is in reach: "
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................"
        "........................................................................................",
        "None");
}

Test(pickle, empty_containers_need_no_items) {
    EXPECT("(t.", "()");
    EXPECT("(l.", "[]");
    EXPECT("(d.", "{}");
    EXPECT("](e.", "[]");
    EXPECT("}(u.", "{}");
    trace_input_t input;
    pickle_t *pickle = read_pickle(&input, "}.", 2);
    cr_assert(pickle != NULL, "%s", th_error);
    pickle_ref_t found;
    cr_assert(!pickle_find(pickle, pickle_root(pickle), "a", &found));
    pickle_destroy(pickle);
}

Test(pickle, refuses_every_opcode_that_would_run_code) {
    REFUSE("cos\nsystem\n(S'ls'\ntR.",
           "T: at byte 0: opcode 0x63 (GLOBAL) would run code; refused");
    static const struct {
        uint8_t code;
        const char *name;
    } codes[] = {
        {'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},  {'b', "BUILD"},
        {'i', "INST"},   {'o', "OBJ"},           {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"},
        {'P', "PERSID"}, {'Q', "BINPERSID"},     {0x82, "EXT1"},   {0x83, "EXT2"},
        {0x84, "EXT4"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        uint8_t bytes[] = {0x80, 4, ']', codes[i].code, 'a', '\n', 'b', '\n', '.'};
        char line[96];
        snprintf(line, sizeof line, "T: at byte 3: opcode 0x%02x (%s) would run code; refused",
                 codes[i].code, codes[i].name);
        refuse(bytes, sizeof bytes, line);
    }
}

Test(pickle, refuses_what_is_no_plain_value_or_no_pickle) {
    REFUSE("\x8f.", "T: at byte 0: opcode 0x8f (EMPTY_SET) makes no plain value; refused");
    REFUSE("\x97.", "T: at byte 0: opcode 0x97 (NEXT_BUFFER) makes no plain value; refused");
    REFUSE("\xff.", "T: at byte 0: 0xff is no pickle opcode; the file is damaged");
    REFUSE("\x80\x06N.", "T: at byte 0: a pickle protocol newer than 5");
    REFUSE("", "T: at byte 0: the file ends before the pickle does; it is cut off");
}

Test(pickle, refuses_lengths_beyond_the_end_before_taking_memory) {
    REFUSE("\x80\x04\x8d\x00\x00\x00\x00\x00\x01\x00\x00"
           "abc.",
           "T: at byte 2: a string claims more bytes than are left");
    REFUSE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
           "T: at byte 0: a string claims more bytes than are left");
    REFUSE("X\xff\xff\xff\xff.", "T: at byte 0: a string claims more bytes than are left");
    REFUSE("B\xff\xff\xff\xff.", "T: at byte 0: a string claims more bytes than are left");
    REFUSE("\x8b\xff\xff\xff\xff.", "T: at byte 0: an int claims more bytes than are left");
    REFUSE("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.",
           "T: at byte 2: a frame claims more bytes than are left");
    REFUSE("Nr\xff\xff\xff\xff.",
           "T: at byte 1: a memo number is higher than a file of this size can need");
    REFUSE("Np99999999999\n.",
           "T: at byte 1: a memo number is higher than a file of this size can need");
}

Test(pickle, refuses_broken_stacks) {
    REFUSE(".", "T: at byte 0: the pickle takes a value from an empty stack");
    REFUSE("0N.", "T: at byte 0: the pickle takes a value from an empty stack");
    REFUSE("2N.", "T: at byte 0: the pickle takes a value from an empty stack");
    REFUSE("]a.", "T: at byte 1: the pickle takes a value from an empty stack");
    REFUSE("N(\x85.", "T: at byte 2: the pickle takes a value from an empty stack");
    REFUSE("]((e.", "T: at byte 3: the pickle takes a value from an empty stack");
    REFUSE("Nt.", "T: at byte 1: the pickle refers to a mark it did not set");
    REFUSE("N1.", "T: at byte 1: the pickle refers to a mark it did not set");
    REFUSE("(q\x00.", "T: at byte 1: the pickle takes a value from an empty stack");
    REFUSE("h\x00.", "T: at byte 0: the pickle refers to a memo number it did not set");
    REFUSE("Nq\x02h\x01.", "T: at byte 3: the pickle refers to a memo number it did not set");
    REFUSE("NNa.", "T: at byte 2: appends to something that is no list");
    REFUSE("]NNs.", "T: at byte 3: sets an item of something that is no dict");
    REFUSE(")(Ne.", "T: at byte 3: appends to something that is no list");
    REFUSE("(Nd.", "T: at byte 2: a dict has a key without a value");
    REFUSE("}(Nu.", "T: at byte 3: a dict has a key without a value");
}

Test(pickle, refuses_numbers_and_strings_written_badly) {
    REFUSE("I\n.", "T: at byte 0: an int is written badly");
    REFUSE("I-\n.", "T: at byte 0: an int is written badly");
    REFUSE("I1x\n.", "T: at byte 0: an int is written badly");
    REFUSE("LL\n.", "T: at byte 0: an int is written badly");
    REFUSE("F\n.", "T: at byte 0: a float is written badly");
    REFUSE("F1.5x\n.", "T: at byte 0: a float is written badly");
    REFUSE("S'x\n.", "T: at byte 0: a string is not quoted");
    REFUSE("S'\n.", "T: at byte 0: a string is not quoted");
    REFUSE("Ng-1\n.", "T: at byte 1: a memo number is written badly");
    REFUSE("Ng\n.", "T: at byte 1: a memo number is written badly");
    REFUSE("I1", "T: at byte 0: the file ends inside a line; it is cut off");
    REFUSE("NJ\x01", "T: at byte 1: the file ends inside an opcode; it is cut off");
    REFUSE("G\x01", "T: at byte 0: the file ends inside an opcode; it is cut off");
}

Test(pickle, is_cut_off_at_every_byte_with_an_error) {
    static const char whole[] = "\x80\x02}q\x00(X\x01\x00\x00\x00"
                                "aq\x01K\x01X\x01\x00\x00\x00"
                                "bq\x02]q\x03(\x8a\x02\x00\x01I5\n)(teu.";
    for (size_t size = 0; size < sizeof whole - 1; size++) {
        uint8_t *copy = malloc(size + 1);
        cr_assert(copy != NULL);
        memcpy(copy, whole, size);
        trace_input_t input;
        cr_assert(read_pickle(&input, copy, size) == NULL, "accepted with %zu bytes", size);
        free(copy);
    }
}

Test(pickle, a_million_nested_lists_need_no_stack, .timeout = 60) {
    enum {
        DEPTH = 1000000
    };
    th_bytes_t bytes = {0};
    th_put_repeated(&bytes, ']', DEPTH);
    th_put_repeated(&bytes, 'a', DEPTH - 1);
    th_put_text(&bytes, ".");
    trace_input_t input;
    pickle_t *pickle = read_pickle(&input, bytes.bytes, bytes.size);
    cr_assert(pickle != NULL, "%s", th_error);
    pickle_ref_t value = pickle_root(pickle);
    for (size_t depth = 1; depth < DEPTH; depth++) {
        cr_assert(pickle_kind(pickle, value) == PICKLE_LIST && pickle_count(pickle, value) == 1);
        value = pickle_item(pickle, value, 0);
    }
    cr_assert(pickle_count(pickle, value) == 0);
    pickle_destroy(pickle);
    bytes.size = 0;
    th_put_repeated(&bytes, '(', DEPTH);
    th_put_repeated(&bytes, 't', DEPTH);
    th_put_text(&bytes, ".");
    pickle = read_pickle(&input, bytes.bytes, bytes.size);
    cr_assert(pickle != NULL, "%s", th_error);
    pickle_destroy(pickle);
    free(bytes.bytes);
}

Test(pickle, a_value_may_contain_itself) {
    static const char bytes[] = "]q\x00h\x00"
                                "a}q\x01h\x01h\x01s\x86.";
    trace_input_t input;
    pickle_t *pickle = read_pickle(&input, bytes, sizeof bytes - 1);
    cr_assert(pickle != NULL, "%s", th_error);
    pickle_ref_t list = pickle_item(pickle, pickle_root(pickle), 0);
    cr_assert(pickle_item(pickle, list, 0) == list);
    pickle_destroy(pickle);
}

Test(pickle, memory_stays_in_proportion_to_the_file, .timeout = 60) {
    th_bytes_t bytes = {0};
    th_put_repeated(&bytes, ']', 20000000);
    th_put_text(&bytes, ".");
    trace_input_t input;
    cr_assert(read_pickle(&input, bytes.bytes, bytes.size) == NULL);
    cr_assert(strstr(th_error, "its values take too much memory for a file of this size") != NULL,
              "%s", th_error);
    free(bytes.bytes);
}

Test(pickle, finds_keys_and_takes_the_last) {
    static const char bytes[] = "}(K\x01K\x02U\x01"
                                "aK\x03U\x01"
                                "bK\x04U\x01"
                                "aK\x05U\x00K\x06u.";
    trace_input_t input;
    pickle_t *pickle = read_pickle(&input, bytes, sizeof bytes - 1);
    cr_assert(pickle != NULL, "%s", th_error);
    pickle_ref_t found;
    cr_assert(pickle_count(pickle, pickle_root(pickle)) == 5);
    cr_assert(pickle_find(pickle, pickle_root(pickle), "a", &found));
    cr_assert(pickle_int(pickle, found) == 5);
    cr_assert(pickle_find(pickle, pickle_root(pickle), "", &found));
    cr_assert(pickle_int(pickle, found) == 6);
    cr_assert(!pickle_find(pickle, pickle_root(pickle), "c", &found));
    cr_assert(!pickle_find(pickle, pickle_root(pickle), "\x01", &found));
    pickle_destroy(pickle);
}
