// SPDX-License-Identifier: Apache-2.0
// The options: the table, the sources and the text around values (option_value.c has the values).
//
//   text   item , item \n # comment \n item        item   key : value
//
// O1  row i is the i-th line of options.def; each row's default is a value that it takes
// O2  a text that fails changes nothing
//
// Cost: one pass over each text, at most WARNINGS_MAX messages for each; a file is read once into
// 16 KiB of stack. Locks: the owner's of the berm_options_t. Never allocates, never calls the
// driver. May fail: bad text, a file that cannot be read.
#include "front/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/insist.h"
#include "berm_introspect.h"
#include "front/option_value.h"

enum {
    WARNINGS_MAX = 8
};

static const char kind_names[BERM_OPTION_KIND_COUNT][10] = {
    [BERM_OPTION_BYTES] = "bytes",
    [BERM_OPTION_POW2] = "bytes",
    [BERM_OPTION_LIMIT] = "bytes",
    [BERM_OPTION_PERCENT] = "percent",
    [BERM_OPTION_FRACTION] = "fraction",
    [BERM_OPTION_BOOL] = "bool",
    [BERM_OPTION_CHOICE] = "choice",
    [BERM_OPTION_TEXT] = "text",
    [BERM_OPTION_MS] = "ms",
};

#define BERM_OPTION(member, name, kind, default_, range, least, most, is_runtime, text)            \
    {{name, kind_names[BERM_OPTION_##kind], default_, range, text, is_runtime},                    \
     BERM_OPTION_##kind,                                                                           \
     offsetof(berm_options_t, member),                                                             \
     least,                                                                                        \
     most},

static const berm_option_row_t option_rows[] = {
#include "front/options.def"
};

#undef BERM_OPTION

// Where a text comes from, and what follows from that.
typedef struct option_source {
    const char *name;
    bool is_strict;     // an unknown key is an error
    bool may_name_file; // conf_file is allowed
    bool has_lines;     // a file: its items are named FILE:LINE
} option_source_t;

enum {
    PLACE_CAPACITY = BERM_OPTION_TEXT_BYTES + 16
};

// Where the one line about a failure goes.
typedef struct option_error {
    char *text;
    size_t capacity;
} option_error_t;

typedef struct option_item {
    berm_text_t key;
    berm_text_t value;
    bool has_value; // there was a colon
} option_item_t;

const berm_option_info_t *berm_option_info(size_t index) {
    return index < BERM_ARRAY_LENGTH(option_rows) ? &option_rows[index].info : NULL;
}

static const berm_option_row_t *row_find(berm_text_t name) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(option_rows); i++)
        if (berm__text_equals(name, option_rows[i].info.name))
            return &option_rows[i];
    return NULL;
}

static berm_text_t text_of(const char *string) {
    return (berm_text_t){string, strlen(string)};
}

// At most this much of a user's text is quoted in a message.
static int quoted_length(berm_text_t text) {
    return text.length < 48 ? (int)text.length : 48;
}

void berm__options_default(berm_options_t *options) {
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(option_rows); i++) {
        const berm_option_row_t *row = &option_rows[i];
        bool is_taken = berm__option_value_set(row, options, text_of(row->info.default_value));
        BERM_INSIST(is_taken, "a default in options.def is in range");
    }
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static berm_text_t text_trim(const char *begin, const char *end) {
    while (begin < end && is_blank(*begin))
        begin++;
    while (end > begin && is_blank(end[-1]))
        end--;
    return (berm_text_t){begin, (size_t)(end - begin)};
}

// The next item at *at, which moves past it; false at the end of the text.
static bool item_next(const char **at, option_item_t *item) {
    const char *begin = *at;
    for (;;) {
        while (*begin == ',' || *begin == '\n' || is_blank(*begin))
            begin++;
        if (*begin != '#')
            break;
        begin += strcspn(begin, "\n");
    }
    if (*begin == '\0')
        return false;
    const char *end = begin + strcspn(begin, ",\n");
    const char *colon = memchr(begin, ':', (size_t)(end - begin));
    item->has_value = colon != NULL;
    item->key = text_trim(begin, colon != NULL ? colon : end);
    item->value = colon != NULL ? text_trim(colon + 1, end) : (berm_text_t){end, 0};
    *at = end;
    return true;
}

// Reads one option out of a text beforehand; a value it does not take is left to the parse.
static void option_preview(berm_options_t *options, const char *text, const char *name) {
    option_item_t item;
    while (text != NULL && item_next(&text, &item)) {
        if (!item.has_value || !berm__text_equals(item.key, name))
            continue;
        bool is_taken = berm__option_value_set(row_find(item.key), options, item.value);
        (void)is_taken;
    }
}

static berm_status_t value_refuse(const berm_option_row_t *row, berm_text_t value,
                                  const char *source_name, option_error_t error) {
    const berm_option_info_t *info = &row->info;
    (void)snprintf(error.text, error.capacity, "%s: %s: '%.*s' is %s (%s)", source_name, info->name,
                   quoted_length(value), value.at, berm__option_value_wrong(row, value),
                   info->range);
    return BERM_ERROR_OPTION_VALUE;
}

static berm_status_t value_set(berm_options_t *options, const berm_option_row_t *row,
                               berm_text_t value, const option_source_t *source,
                               option_error_t error) {
    if (row->offset == offsetof(berm_options_t, conf_file) && !source->may_name_file) {
        (void)snprintf(error.text, error.capacity,
                       "%s: conf_file is taken from BERM_CONF only; name the file there",
                       source->name);
        return BERM_ERROR_OPTION_VALUE;
    }
    if (!berm__option_value_set(row, options, value))
        return value_refuse(row, value, source->name, error);
    return BERM_OK;
}

static berm_status_t key_refuse(berm_text_t key, const option_source_t *source, unsigned *warnings,
                                option_error_t error) {
    if (source->is_strict) {
        (void)snprintf(error.text, error.capacity,
                       "%s: unknown option '%.*s'; `berm conf` lists all", source->name,
                       quoted_length(key), key.at);
        return BERM_ERROR_OPTION_UNKNOWN;
    }
    if (++*warnings <= WARNINGS_MAX)
        berm__log(BERM_LOG_WARN, "%s: unknown option '%.*s' ignored; `berm conf` lists all",
                  source->name, quoted_length(key), key.at);
    return BERM_OK;
}

// The source under the name of the item's line; *line is that of *counted, and moves on with it.
static option_source_t source_at_line(const option_source_t *source, const char *at, unsigned *line,
                                      const char **counted, char place[PLACE_CAPACITY]) {
    option_source_t here = *source;
    for (; source->has_lines && *counted < at; ++*counted)
        *line += **counted == '\n';
    if (source->has_lines) {
        (void)snprintf(place, PLACE_CAPACITY, "%.255s:%u", source->name, *line);
        here.name = place;
    }
    return here;
}

static berm_status_t text_parse(berm_options_t *options, const char *text,
                                const option_source_t *whole, option_error_t error) {
    berm_options_t changed = *options;
    unsigned warnings = 0, line = 1;
    const char *counted = text;
    char place[PLACE_CAPACITY];
    option_item_t item;
    while (item_next(&text, &item)) {
        const option_source_t here = source_at_line(whole, item.key.at, &line, &counted, place);
        const option_source_t *source = &here;
        const berm_option_row_t *row = row_find(item.key);
        berm_status_t status = BERM_OK;
        if (!item.has_value) {
            (void)snprintf(error.text, error.capacity, "%s: '%.*s' lacks a value; write key:value",
                           source->name, quoted_length(item.key), item.key.at);
            status = BERM_ERROR_OPTION_VALUE;
        } else if (row == NULL)
            status = key_refuse(item.key, source, &warnings, error);
        else
            status = value_set(&changed, row, item.value, source, error);
        if (status != BERM_OK)
            return status;
    }
    *options = changed;
    return BERM_OK;
}

berm_status_t berm__options_parse(berm_options_t *options, const char *text,
                                  const char *source_name, char *error, size_t capacity) {
    berm_options_t previewed = *options;
    option_preview(&previewed, text, "abort_conf");
    option_source_t source = {source_name, previewed.abort_conf, true, false};
    return text_parse(options, text, &source, (option_error_t){error, capacity});
}

// Reads the file into text (NUL-terminated); NULL, or what is wrong with it.
static const char *file_read(const char *path, char *text, size_t capacity) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return strerror(errno);
    struct stat about;
    const char *wrong = NULL;
    size_t length = 0;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        wrong = "not a regular file";
    while (wrong == NULL && length < capacity) {
        ssize_t got = read(file, text + length, capacity - length);
        if (got == 0)
            break;
        if (got > 0)
            length += (size_t)got;
        else if (errno != EINTR)
            wrong = "cannot be read";
    }
    (void)close(file);
    if (wrong != NULL)
        return wrong;
    if (length == capacity)
        return "larger than 16 KiB";
    text[length] = '\0';
    return strlen(text) == length ? NULL : "not a text file: it holds a NUL";
}

static berm_status_t file_parse(berm_options_t *options, const char *path, bool is_strict,
                                option_error_t error) {
    char text[BERM_OPTION_FILE_MAX_BYTES + 1];
    const char *wrong = file_read(path, text, sizeof text);
    if (wrong != NULL) {
        (void)snprintf(error.text, error.capacity, "options file %s: %s", path, wrong);
        return BERM_ERROR_OPTION_VALUE;
    }
    option_source_t source = {path, is_strict, false, true};
    return text_parse(options, text, &source, error);
}

// Weakest source first, so that the stronger ones overrule it.
static berm_status_t sources_parse(berm_options_t *options, const char *api_text,
                                   option_error_t error) {
    // A setuid process must not be steered by its caller's environment.
    const char *conf = secure_getenv("BERM_CONF");
    const char *file_from_environment = secure_getenv("BERM_CONF_FILE");
    berm_options_t previewed = *options;
    option_preview(&previewed, conf, "conf_file");
    option_preview(&previewed, conf, "abort_conf");
    option_preview(&previewed, api_text, "abort_conf");
    const char *file = previewed.conf_file;
    if (*file == '\0' && file_from_environment != NULL)
        file = file_from_environment;
    berm_status_t status = BERM_OK;
    if (*file != '\0')
        status = file_parse(options, file, previewed.abort_conf, error);
    if (status == BERM_OK && conf != NULL) {
        option_source_t source = {"BERM_CONF", previewed.abort_conf || options->abort_conf, true,
                                  false};
        status = text_parse(options, conf, &source, error);
    }
    if (status == BERM_OK && api_text != NULL) {
        option_source_t source = {"berm_init", true, false, false};
        status = text_parse(options, api_text, &source, error);
    }
    return status;
}

berm_status_t berm__options_load(berm_options_t *options, const char *api_text) {
    char text[BERM_OPTION_TEXT_BYTES] = "";
    berm__options_default(options);
    berm_status_t status = sources_parse(options, api_text, (option_error_t){text, sizeof text});
    if (status == BERM_OK)
        return BERM_OK;
    BERM_LOG(BERM_LOG_ERROR, "%s", text); // limited: every call tries to start again
    berm__options_default(options);
    memcpy(options->error, text, sizeof text);
    return status;
}

berm_status_t berm__option_set(berm_options_t *options, const char *name, const char *value,
                               bool is_started, char *error, size_t capacity) {
    static const option_source_t source = {"berm_option_set", true, false, false};
    const berm_option_row_t *row = row_find(text_of(name));
    option_error_t sink = {error, capacity};
    if (row == NULL)
        return key_refuse(text_of(name), &source, NULL, sink);
    if (is_started && !row->info.is_runtime) {
        (void)snprintf(error, capacity, "berm_option_set: %s is set before the start only", name);
        return BERM_ERROR_STATE;
    }
    return value_set(options, row, text_of(value), &source, sink);
}

berm_status_t berm__option_get(const berm_options_t *options, const char *name, char *value,
                               size_t capacity) {
    const berm_option_row_t *row = row_find(text_of(name));
    if (row == NULL)
        return BERM_ERROR_OPTION_UNKNOWN;
    if (capacity == 0)
        return BERM_ERROR_ARGUMENT;
    berm__option_value_get(row, options, value, capacity);
    return BERM_OK;
}
