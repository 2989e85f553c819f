// SPDX-License-Identifier: Apache-2.0
// Reads numbers, sizes and lists from arguments, and reports bad ones: see cli.h. Nothing is
// allocated.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void line_print(const char *command, const char *format, va_list arguments) {
    char text[1024];
    (void)vsnprintf(text, sizeof text, format, arguments);
    // One line, whatever a file name or an argument holds.
    for (char *at = text; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    cli_progress_end();
    if (text[0] == '\0')
        return;
    (void)fflush(stdout);
    (void)fprintf(stderr, "berm %s: %s\n", command, text);
}

int cli_fail(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line_print(command, format, arguments);
    va_end(arguments);
    return CLI_BAD;
}

void cli_warn(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line_print(command, format, arguments);
    va_end(arguments);
}

void cli_environment_forget(void) {
    (void)unsetenv("BERM_CONF");
    (void)unsetenv("BERM_CONF_FILE");
}

bool cli_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *value) {
    if (!isdigit((unsigned char)*text))
        return false;
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < least || number > most)
        return false;
    *value = number;
    return true;
}

bool cli_parse_double(const char *text, double least, double most, double *value) {
    // strtod would also take hexadecimal, "inf" and "nan".
    if (*text == '\0' || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number) || number < least || number > most)
        return false;
    *value = number;
    return true;
}

bool cli_list_next(const char **text, char name[CLI_NAME_CAPACITY]) {
    size_t length = strcspn(*text, ",");
    if (length == 0 || length >= CLI_NAME_CAPACITY)
        return false;
    memcpy(name, *text, length);
    name[length] = '\0';
    // A comma at the end stays, for the next call to refuse.
    *text += length + ((*text)[length] == ',' && (*text)[length + 1] != '\0');
    return true;
}

// The power of 1024 that a suffix means, or -1.
static int suffix_power(const char *suffix) {
    static const char letters[] = "KMGT";
    if (*suffix == '\0' || strcmp(suffix, "B") == 0)
        return 0;
    const char *letter = strchr(letters, toupper((unsigned char)*suffix));
    if (letter == NULL)
        return -1;
    suffix++;
    bool is_known = *suffix == '\0' || strcmp(suffix, "B") == 0 || strcmp(suffix, "iB") == 0;
    return is_known ? (int)(letter - letters) + 1 : -1;
}

bool cli_parse_bytes(const char *text, uint64_t *value) {
    size_t digits = strspn(text, "0123456789.");
    char number[32];
    if (digits == 0 || digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    int power = suffix_power(text + digits);
    if (power < 0)
        return false;
    uint64_t unit = UINT64_C(1) << (10 * power), whole;
    if (cli_parse_u64(number, 0, UINT64_MAX, &whole)) {
        if (whole == 0 || whole > (UINT64_C(1) << 62) / unit)
            return false;
        *value = whole * unit;
        return true;
    }
    double fraction;
    if (!cli_parse_double(number, 0, 0x1p62, &fraction))
        return false;
    double bytes = fraction * (double)unit;
    if (bytes < 1 || bytes > 0x1p62 || bytes != floor(bytes))
        return false;
    *value = (uint64_t)bytes;
    return true;
}
