// SPDX-License-Identifier: Apache-2.0
// base/emit.h: exact JSON and table text, a small JSON checker over random documents, strings that
// are not valid UTF-8, and the contracts that abort.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/emit.h"
#include "base/rng.h"

enum {
    TEXT_BYTES = 1 << 16
};

typedef struct sink {
    char text[TEXT_BYTES];
    size_t length;
} sink_t;

static sink_t sink;

static void sink_write(void *context, const char *text, size_t length) {
    sink_t *to = context;
    cr_assert(to->length + length < TEXT_BYTES);
    memcpy(to->text + to->length, text, length);
    to->length += length;
    to->text[to->length] = '\0';
}

static berm_emit_t emit_begin(berm_emit_format_t format) {
    berm_emit_t emit;
    sink.length = 0;
    sink.text[0] = '\0';
    berm__emit_init(&emit, format, sink_write, &sink);
    return emit;
}

// --- a strict JSON checker: returns the end of the value at `at`, or NULL ------------------------

static const char *json_value(const char *at, int depth);

static const char *json_string(const char *at) {
    if (*at++ != '"')
        return NULL;
    while (*at != '"') {
        if ((unsigned char)*at < 0x20)
            return NULL; // also the end of the text
        if (*at == '\\') {
            at++;
            if (*at == 'u') {
                if (strspn(at + 1, "0123456789abcdefABCDEF") < 4)
                    return NULL;
                at += 4;
            } else if (strchr("\"\\/bfnrt", *at) == NULL || *at == '\0')
                return NULL;
        }
        at++;
    }
    return at + 1;
}

static const char *json_number(const char *at) {
    at += *at == '-';
    size_t digits = strspn(at, "0123456789");
    if (digits == 0 || (digits > 1 && *at == '0'))
        return NULL;
    at += digits;
    if (*at == '.') {
        digits = strspn(at + 1, "0123456789");
        at = digits > 0 ? at + 1 + digits : NULL;
    }
    return at;
}

static const char *json_members(const char *at, int depth, bool is_array) {
    char end = is_array ? ']' : '}';
    if (*at == end)
        return at + 1;
    for (;; at++) {
        if (!is_array) {
            at = json_string(at);
            if (at == NULL || *at++ != ':')
                return NULL;
        }
        at = json_value(at, depth + 1);
        if (at == NULL || (*at != ',' && *at != end))
            return NULL;
        if (*at == end)
            return at + 1;
    }
}

static const char *json_value(const char *at, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    if (depth > 64)
        return NULL;
    if (*at == '{' || *at == '[')
        return json_members(at + 1, depth, *at == '[');
    if (*at == '"')
        return json_string(at);
    for (int i = 0; i < 3; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    return json_number(at);
}

static bool json_is_valid(const char *text) {
    const char *end = json_value(text, 0);
    return end != NULL && strcmp(end, "\n") == 0;
}

Test(emit, the_checker_refuses_bad_json) {
    cr_assert(json_is_valid("{\"a\":[1,-2.5,true,null,\"x\\u0001\"],\"b\":{}}\n"));
    static const char bad[][24] = {"{\"a\":1,}\n", "{a:1}\n",   "[1 2]\n", "[01]\n",   "\"\\x\"\n",
                                   "[1]]\n",       "{\"a\"}\n", "[1.]\n",  "\"open\n", "[nan]\n"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++)
        cr_assert(!json_is_valid(bad[i]), "%s", bad[i]);
}

// --- the emitter ---------------------------------------------------------------------------------

static void document_write(berm_emit_t *emit) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_u64(emit, "most", UINT64_MAX);
    berm__emit_i64(emit, "least", INT64_MIN);
    berm__emit_bool(emit, "yes", true);
    berm__emit_null(emit, "none");
    berm__emit_array_begin(emit, "list");
    berm__emit_u64(emit, NULL, 1);
    berm__emit_object_begin(emit, NULL);
    berm__emit_object_end(emit);
    berm__emit_string(emit, NULL, "a\"b\\c\n");
    berm__emit_array_end(emit);
    berm__emit_double(emit, "half", 0.5, 3);
    berm__emit_addr(emit, "addr", UINT64_C(0x7f0000000200));
    berm__emit_object_end(emit);
    berm__emit_finish(emit);
}

Test(emit, json_text) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    document_write(&emit);
    cr_assert_str_eq(sink.text,
                     "{\"most\":18446744073709551615,\"least\":-9223372036854775808,\"yes\":true,"
                     "\"none\":null,\"list\":[1,{},\"a\\\"b\\\\c\\u000a\"],\"half\":0.500,"
                     "\"addr\":\"0x7f0000000200\"}\n");
    cr_assert(json_is_valid(sink.text));
}

Test(emit, table_text) {
    berm_emit_t emit = emit_begin(BERM_EMIT_TABLE);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_u64(&emit, "a", 1);
    berm__emit_object_begin(&emit, "b");
    berm__emit_string(&emit, "c", "text \"as it is\"");
    berm__emit_array_begin(&emit, "d");
    berm__emit_bool(&emit, NULL, false);
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_double(&emit, "e", 1.25, 1);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
    cr_assert_str_eq(sink.text, "a: 1\nb: \n  c: text \"as it is\"\n  d: \n    - false\ne: 1.2\n");
}

Test(emit, scalars_at_the_root) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    berm__emit_u64(&emit, NULL, 3);
    berm__emit_finish(&emit);
    cr_assert_str_eq(sink.text, "3\n");
}

Test(emit, doubles) {
    static const struct {
        double value;
        int decimals;
        char text[16];
    } cases[] = {{0, 0, "0\n"},           {-1.5, 2, "-1.50\n"},     {1e-9, 9, "0.000000001\n"},
                 {INFINITY, 3, "null\n"}, {-INFINITY, 3, "null\n"}, {NAN, 3, "null\n"}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(cases); i++) {
        berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
        berm__emit_double(&emit, NULL, cases[i].value, cases[i].decimals);
        berm__emit_finish(&emit);
        cr_assert_str_eq(sink.text, cases[i].text);
    }
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    berm__emit_double(&emit, NULL, -1.7976931348623157e308, 9);
    berm__emit_finish(&emit);
    cr_assert(json_is_valid(sink.text) && sink.length == 1 + 309 + 1 + 9 + 1);
}

static void string_expect(const char *value, size_t length, const char *json) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    berm__emit_string_n(&emit, NULL, value, length);
    cr_assert_str_eq(sink.text, json);
    berm__emit_finish(&emit);
    cr_assert(json_is_valid(sink.text));
}

Test(emit, strings_valid_utf8_is_kept) {
    string_expect("", 0, "\"\"");
    string_expect("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9,
                  "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    string_expect("\xf4\x8f\xbf\xbf", 4, "\"\xf4\x8f\xbf\xbf\"");
}

Test(emit, strings_invalid_bytes_are_escaped) {
    string_expect("a\0b", 3, "\"a\\u0000b\"");
    string_expect("\x7f\x1f", 2, "\"\\u007f\\u001f\"");
    string_expect("\xff\x80", 2, "\"\\u00ff\\u0080\"");
    string_expect("\xc3", 1, "\"\\u00c3\"");                                  // cut off
    string_expect("\xe2\x82", 2, "\"\\u00e2\\u0082\"");                       // cut off
    string_expect("\xc3(", 2, "\"\\u00c3(\"");                                // no continuation
    string_expect("\xc0\xaf", 2, "\"\\u00c0\\u00af\"");                       // overlong
    string_expect("\xed\xa0\x80", 3, "\"\\u00ed\\u00a0\\u0080\"");            // surrogate
    string_expect("\xf4\x90\x80\x80", 4, "\"\\u00f4\\u0090\\u0080\\u0080\""); // above 10ffff
    string_expect("\xf8\x88\x80\x80\x80", 5, "\"\\u00f8\\u0088\\u0080\\u0080\\u0080\"");
}

static void random_item(berm_emit_t *emit, berm_rng_t *rng, const char *key, unsigned depth) {
    char bytes[12];
    switch (berm__rng_below(rng, depth < 12 ? 8 : 5)) {
    case 0:
        berm__emit_u64(emit, key, berm__rng_next(rng));
        break;
    case 1:
        berm__emit_i64(emit, key, (int64_t)berm__rng_next(rng));
        break;
    case 2:
        berm__emit_double(emit, key, berm__rng_unit(rng) * 1e6 - 5e5,
                          (int)berm__rng_below(rng, 10));
        break;
    case 3:
        berm__emit_bool(emit, key, berm__rng_below(rng, 2) != 0);
        break;
    case 4:
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)berm__rng_next(rng);
        berm__emit_string_n(emit, key, bytes, berm__rng_below(rng, sizeof bytes + 1));
        break;
    default: {
        bool is_array = berm__rng_below(rng, 2) != 0;
        if (is_array)
            berm__emit_array_begin(emit, key);
        else
            berm__emit_object_begin(emit, key);
        for (uint64_t n = berm__rng_below(rng, 4); n > 0; n--)
            random_item(emit, rng, is_array ? NULL : "key \xfe", depth + 1);
        if (is_array)
            berm__emit_array_end(emit);
        else
            berm__emit_object_end(emit);
    }
    }
}

Test(emit, random_documents_are_valid) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        berm_rng_t rng;
        berm__rng_seed(&rng, seed);
        berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
        berm__emit_array_begin(&emit, NULL);
        for (int i = 0; i < 4; i++)
            random_item(&emit, &rng, NULL, 1);
        berm__emit_array_end(&emit);
        berm__emit_finish(&emit);
        cr_assert(json_is_valid(sink.text), "seed %d: %s", (int)seed, sink.text);
    }
}

Test(emit, deepest_nesting_is_allowed) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    for (int i = 0; i < BERM_EMIT_DEPTH_MAX; i++)
        berm__emit_array_begin(&emit, NULL);
    for (int i = 0; i < BERM_EMIT_DEPTH_MAX; i++)
        berm__emit_array_end(&emit);
    berm__emit_finish(&emit);
    cr_assert(json_is_valid(sink.text));
}

Test(emit, deeper_nesting_aborts, .signal = SIGABRT) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    for (int i = 0; i <= BERM_EMIT_DEPTH_MAX; i++)
        berm__emit_array_begin(&emit, NULL);
}

Test(emit, crossed_ends_abort, .signal = SIGABRT) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    berm__emit_array_begin(&emit, NULL);
    berm__emit_object_end(&emit);
}

Test(emit, finish_with_an_open_object_aborts, .signal = SIGABRT) {
    berm_emit_t emit = emit_begin(BERM_EMIT_JSON);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_finish(&emit);
}

Test(emit, writes_to_a_file, .init = cr_redirect_stdout) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_string(&emit, NULL, "x");
    berm__emit_finish(&emit);
    (void)fflush(stdout);
    cr_assert_stdout_eq_str("\"x\"\n");
}
