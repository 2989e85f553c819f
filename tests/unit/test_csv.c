// SPDX-License-Identifier: Apache-2.0
// Rows, fields, quotes, line ends and numbers of CSV.
#include "stress/trace/csv.h"

#include "tests/unit/trace_helpers.h"

static const char *const columns[] = {"a", "b"};

static csv_t open_text(const char *text, int expected) {
    static trace_input_t input;
    csv_t csv;
    input = (trace_input_t){.name = "T", .bytes = (const uint8_t *)text, .size = strlen(text)};
    th_error[0] = '\0';
    cr_assert(csv_begin(&csv, &input, columns, 2, th_error, sizeof th_error) == expected);
    return csv;
}

static void expect_field(const csv_t *csv, size_t column, const char *text) {
    csv_field_t field = csv_get(csv, column);
    cr_assert(field.length == strlen(text) && memcmp(field.text, text, field.length) == 0,
              "\"%.*s\" is not \"%s\"", (int)field.length, field.text, text);
}

static void expect_error(const char *text) {
    cr_assert(strcmp(th_error, text) == 0, "got:      %s\nexpected: %s", th_error, text);
}

Test(csv, columns_may_stand_in_any_order_with_others) {
    csv_t csv = open_text("\xef\xbb\xbfx,B , \"A\"\r\n1,2,3\r\n\r\n4,\" 5,5 \",6", 0);
    cr_assert(csv_next(&csv) == 1);
    expect_field(&csv, 0, "3");
    expect_field(&csv, 1, "2");
    cr_assert(csv.line == 2);
    cr_assert(csv_next(&csv) == 1);
    expect_field(&csv, 0, "6");
    expect_field(&csv, 1, " 5,5 ");
    cr_assert(csv.line == 4, "blank lines count");
    cr_assert(csv_next(&csv) == 0);
    cr_assert(csv_next(&csv) == 0, "the end stays the end");
}

Test(csv, a_doubled_quote_does_not_end_a_field) {
    csv_t csv = open_text("a,b\n\"x\"\"y\",2\n", 0);
    cr_assert(csv_next(&csv) == 1);
    expect_field(&csv, 0, "x\"\"y");
    expect_field(&csv, 1, "2");
}

Test(csv, refuses_a_header_without_a_column) {
    open_text("a,c\n", -1);
    expect_error("T:1: the header has no column \"b\"");
    open_text("\n\n", -1);
    expect_error("T:1: no header");
}

Test(csv, refuses_rows_that_do_not_fit) {
    static const struct {
        const char *text;
        const char *line;
    } cases[] = {
        {"a,b\n1\n", "T:2: 1 fields where the header has 2"},
        {"a,b\n1,2,3\n", "T:2: 3 fields where the header has 2"},
        {"a,b\n\"1,2\n", "T:2: a quoted field is not closed on its line"},
        {"a,b\n\"1\"x,2\n", "T:2: text after the closing quote of a field"},
        {"a,b\n,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n", "T:2: more than 32 fields in a row"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        csv_t csv = open_text(cases[i].text, 0);
        cr_assert(csv_next(&csv) == -1);
        expect_error(cases[i].line);
    }
}

Test(csv, refuses_nul_bytes) {
    static const char text[] = "a,b\n1,\0002\n";
    trace_input_t input = {.name = "T", .bytes = (const uint8_t *)text, .size = sizeof text - 1};
    csv_t csv;
    cr_assert(csv_begin(&csv, &input, columns, 2, th_error, sizeof th_error) == 0);
    cr_assert(csv_next(&csv) == -1);
    expect_error("T:2: a NUL byte; this is not a text file");
}

Test(csv, reads_numbers_to_the_last) {
    csv_t csv = open_text("a,b\n18446744073709551615,0xFFffFFffFFffFFff\n007,0x0\n", 0);
    uint64_t value;
    cr_assert(csv_next(&csv) == 1);
    cr_assert(csv_u64(&csv, 0, "a", &value) == 0 && value == UINT64_MAX);
    cr_assert(csv_u64(&csv, 1, "b", &value) == 0 && value == UINT64_MAX);
    cr_assert(csv_next(&csv) == 1);
    cr_assert(csv_u64(&csv, 0, "a", &value) == 0 && value == 7);
    cr_assert(csv_u64(&csv, 1, "b", &value) == 0 && value == 0);
}

Test(csv, refuses_what_is_no_number) {
    static const struct {
        const char *field;
        const char *line;
    } cases[] = {
        {"", "T:2: a: no number"},
        {"-1", "T:2: a: \"-1\" is not a whole number of 0 or more"},
        {"1.5", "T:2: a: \"1.5\" is not a whole number of 0 or more"},
        {"1e3", "T:2: a: \"1e3\" is not a whole number of 0 or more"},
        {"0x", "T:2: a: \"0x\" is not a whole number of 0 or more"},
        {"0xg", "T:2: a: \"0xg\" is not a whole number of 0 or more"},
        {"ff", "T:2: a: \"ff\" is not a whole number of 0 or more"},
        {"18446744073709551616", "T:2: a: \"18446744073709551616\" does not fit in 64 bits"},
        {"0x10000000000000000", "T:2: a: \"0x10000000000000000\" does not fit in 64 bits"},
        {"\x01x", "T:2: a: \"?x\" is not a whole number of 0 or more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        uint64_t value = 42;
        snprintf(text, sizeof text, "a,b\n%s,0\n", cases[i].field);
        csv_t csv = open_text(text, 0);
        cr_assert(csv_next(&csv) == 1);
        cr_assert(csv_u64(&csv, 0, "a", &value) == -1);
        expect_error(cases[i].line);
        cr_assert(value == 42, "written only on success");
    }
}

Test(csv, a_hundred_megabytes_in_one_line_are_an_error_not_a_wait, .timeout = 60) {
    th_bytes_t text = {0};
    th_put_text(&text, "a,b\n");
    uint8_t *line = malloc(100000000);
    cr_assert(line != NULL);
    memset(line, '7', 100000000);
    th_put(&text, line, 100000000);
    free(line);
    trace_input_t input = {.name = "T", .bytes = text.bytes, .size = text.size};
    csv_t csv;
    cr_assert(csv_begin(&csv, &input, columns, 2, th_error, sizeof th_error) == 0);
    cr_assert(csv_next(&csv) == -1);
    expect_error("T:2: 1 fields where the header has 2");
    memcpy(text.bytes + 100, ",", 1);
    cr_assert(csv_begin(&csv, &input, columns, 2, th_error, sizeof th_error) == 0);
    cr_assert(csv_next(&csv) == 1);
    uint64_t value;
    cr_assert(csv_u64(&csv, 1, "b", &value) == -1);
    expect_error("T:2: b: \"7777777777777777777777777777777777777777\" does not fit in 64 bits");
    free(text.bytes);
}
