// SPDX-License-Identifier: Apache-2.0
// Reading of latency files (latency.c) and device files (gpu.c): lines of key=value.
//
// Bounds: a line is at most 254 characters, a file at most 1,000 lines. No lock. May fail: a file
// that cannot be read or has a line that makes no sense.
#include "keyfile.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"

enum {
    LINE_CAPACITY = 256,
    LINES_MAX = 1000,
};

bool sim_bytes_parse(const char *text, uint64_t *bytes) {
    static const char units[] = "KMGT";
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (!berm__mul_checked(value, 10, &value) ||
            !berm__add_checked(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    if (at == text)
        return false;
    const char *unit = *at != '\0' ? strchr(units, *at) : NULL;
    if (unit != NULL) {
        at++;
        for (const char *step = units; step <= unit; step++) {
            if (!berm__mul_checked(value, 1024, &value))
                return false;
        }
    }
    *bytes = value;
    return *at == '\0';
}

// Drops the comment and the space at both ends.
static char *line_trim(char *line) {
    line[strcspn(line, "#\r\n")] = '\0';
    line += strspn(line, " \t");
    size_t length = strlen(line);
    while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        line[--length] = '\0';
    return line;
}

// NULL, or what is wrong with the line.
static const char *line_read(char *line, sim_keyfile_fn set, void *context) {
    char *text = line_trim(line);
    if (*text == '\0')
        return NULL;
    char *equals = strchr(text, '=');
    if (equals == NULL)
        return "want key=value";
    *equals = '\0';
    return set(context, line_trim(text), line_trim(equals + 1));
}

int sim_keyfile_read(FILE *file, const char *name, sim_keyfile_fn set, void *context, char *error,
                     size_t capacity) {
    char line[LINE_CAPACITY];
    for (int number = 1; fgets(line, sizeof(line), file) != NULL; number++) {
        const char *what = NULL;
        if (number > LINES_MAX)
            what = "more than 1000 lines";
        else if (strchr(line, '\n') == NULL && !feof(file))
            what = "line longer than 254 characters";
        else
            what = line_read(line, set, context);
        if (what != NULL) {
            (void)snprintf(error, capacity, "%s:%d: %s", name, number, what);
            return -1;
        }
    }
    if (ferror(file) == 0)
        return 0;
    (void)snprintf(error, capacity, "%s: %s", name, strerror(errno));
    return -1;
}
