// SPDX-License-Identifier: Apache-2.0
// Names of files that berm writes: see naming.h.
#include "front/naming.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A number; anything else could name another folder.
static bool is_number(const char *text) {
    return text != NULL && *text != '\0' && strlen(text) < 12 &&
           text[strspn(text, "0123456789")] == '\0';
}

const char *berm__rank_text(void) {
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = secure_getenv(names[i]);
        if (is_number(text))
            return text;
    }
    return "0";
}

void berm__host_text(char *text, size_t capacity) {
    if (gethostname(text, capacity) != 0)
        *text = '\0';
    text[capacity - 1] = '\0';
    text[strcspn(text, "./")] = '\0';
    if (*text == '\0')
        (void)snprintf(text, capacity, "host");
}

void berm__name_expand(const char *from, char *to, size_t capacity) {
    size_t length = 0;
    for (; *from != '\0' && length + 1 < capacity; from++) {
        char text[65] = {from[0], '\0'};
        bool is_mark = from[0] == '%' && (from[1] == 'p' || from[1] == 'r' || from[1] == 'h');
        if (is_mark && from[1] == 'p')
            (void)snprintf(text, sizeof text, "%ld", (long)getpid());
        else if (is_mark && from[1] == 'r')
            (void)snprintf(text, sizeof text, "%s", berm__rank_text());
        else if (is_mark)
            berm__host_text(text, sizeof text);
        from += is_mark;
        size_t count = strlen(text);
        if (length + count + 1 > capacity)
            break;
        memcpy(to + length, text, count);
        length += count;
    }
    to[length] = '\0';
}
