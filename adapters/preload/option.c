// SPDX-License-Identifier: Apache-2.0
// The options: see option.h. A text that makes no sense leaves the default and is told.
#include "option.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

static preload_options_t options = {
#define PRELOAD_OPTION(member, key, kind, value, text) .member = (value),
#include "option.def"
#undef PRELOAD_OPTION
};
static char complaint[200]; // "" if there is none

typedef bool (*option_parse_fn)(const char *text, uint64_t *value);

static bool parse_SWITCH(const char *text, uint64_t *value) {
    bool is_on = strcmp(text, "on") == 0;
    *value = is_on;
    return is_on || strcmp(text, "off") == 0;
}

static bool parse_BYTES(const char *text, uint64_t *value) {
    static const char units[] = "KMGT"; // powers of 1,024
    if (strcmp(text, "off") == 0) {
        *value = UINT64_MAX;
        return true;
    }
    char *end = NULL;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || number == 0)
        return false;
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    uint64_t scale = unit != NULL ? UINT64_C(1) << (10 * (unit - units + 1)) : 1;
    return (*end == '\0' || (unit != NULL && end[1] == '\0')) &&
           berm__mul_checked(number, scale, value) && *value <= UINT64_C(1) << 62;
}

static const struct {
    const char *key;
    uint64_t *value;
    option_parse_fn parse;
} rows[] = {
#define PRELOAD_OPTION(member, key, kind, value, text) {key, &options.member, parse_##kind},
#include "option.def"
#undef PRELOAD_OPTION
};

static bool option_set(const char *key, const char *text) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rows); i++) {
        uint64_t value = 0;
        if (strcmp(rows[i].key, key) != 0)
            continue;
        if (!rows[i].parse(text, &value))
            return false;
        *rows[i].value = value;
        return true;
    }
    return false;
}

static void options_read(void) {
    const char *from = secure_getenv("BERM_PRELOAD");
    while (from != NULL && *from != '\0') {
        char pair[64];
        size_t length = strcspn(from, ",");
        (void)snprintf(pair, sizeof pair, "%.*s", (int)length, from);
        char *colon = strchr(pair, ':');
        if (colon != NULL)
            *colon = '\0';
        if (length >= sizeof pair || colon == NULL || !option_set(pair, colon + 1))
            (void)snprintf(complaint, sizeof complaint,
                           "BERM_PRELOAD: '%.*s' is no option or has no such value; it is left out",
                           (int)berm__min_u64(length, sizeof pair), from);
        from += length + (from[length] == ',');
    }
}

const preload_options_t *preload_options(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, options_read);
    return &options;
}

void preload_options_complain(void) {
    if (complaint[0] != '\0')
        PRELOAD_SAY("%s", complaint);
}

void preload_say(atomic_bool *was_said, const char *format, ...) {
    char line[1024] = "berm: ";
    size_t length = strlen(line);
    if (atomic_exchange(was_said, true))
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    length = strlen(line);
    line[length] = '\n';
    if (write(STDERR_FILENO, line, length + 1) < 0)
        return; // nobody can be told
}
