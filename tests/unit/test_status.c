// SPDX-License-Identifier: Apache-2.0
// Status names and sentences: every value has its own, unknown values have an answer too.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berm.h"

Test(status, names_are_those_of_the_enum) {
    cr_assert_str_eq(berm_status_name(BERM_OK), "BERM_OK");
    cr_assert_str_eq(berm_status_name(BERM_ERROR_ARGUMENT), "BERM_ERROR_ARGUMENT");
    cr_assert_str_eq(berm_status_name(BERM_ERROR_DOUBLE_FREE), "BERM_ERROR_DOUBLE_FREE");
    cr_assert_str_eq(berm_status_name(BERM_ERROR_LIMIT), "BERM_ERROR_LIMIT");
    cr_assert_str_eq(berm_status_name(BERM_ERROR_CORRUPTION), "BERM_ERROR_CORRUPTION");
    cr_assert_str_eq(berm_status_name(BERM_ERROR_UNSUPPORTED), "BERM_ERROR_UNSUPPORTED");
}

// The table has as many rows as the enum has values, so with the header's text in the same order
// and no row twice each row is about its own status.
Test(status, order_is_that_of_the_header) {
    const char *root = getenv("BERM_SOURCE");
    char path[1024], text[1 << 14];
    (void)snprintf(path, sizeof path, "%s/include/berm.h", root != NULL ? root : ".");
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL, "cannot open %s", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    const char *at = strstr(text, "BERM_OK = 0");
    cr_assert(at != NULL);
    for (int i = 0; i < BERM_STATUS_COUNT; i++) {
        const char *name = berm_status_name((berm_status_t)i);
        cr_assert(strncmp(at, name, strlen(name)) == 0, "%d is %s", i, name);
        at = strstr(at + strlen(name), "\n    BERM_");
        cr_assert(at != NULL);
        at += strlen("\n    ");
    }
    cr_assert(strncmp(at, "BERM_STATUS_COUNT", strlen("BERM_STATUS_COUNT")) == 0);
}

Test(status, texts_are_one_sentence_each_and_differ) {
    for (int i = 0; i < BERM_STATUS_COUNT; i++) {
        const char *text = berm_status_text((berm_status_t)i);
        size_t length = strlen(text);
        cr_assert(length > 20 && text[length - 1] == '.', "%s", text);
        cr_assert(strchr(text, '\n') == NULL && strstr(text, ". ") == NULL, "%s", text);
        for (int j = 0; j < i; j++)
            cr_assert(strcmp(text, berm_status_text((berm_status_t)j)) != 0, "%d and %d", i, j);
    }
}

Test(status, unknown_values) {
    static const int values[] = {-1, BERM_STATUS_COUNT, BERM_STATUS_COUNT + 1, 1 << 30};
    for (int i = 0; i < 4; i++) {
        cr_assert_str_eq(berm_status_name((berm_status_t)values[i]), "BERM_STATUS_UNKNOWN");
        cr_assert(strlen(berm_status_text((berm_status_t)values[i])) > 20);
    }
}

Test(status, version) {
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", BERM_VERSION_MAJOR, BERM_VERSION_MINOR,
                   BERM_VERSION_PATCH);
    cr_assert_str_eq(berm_version(), text);
}
