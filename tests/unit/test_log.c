// SPDX-License-Identifier: Apache-2.0
// host/log.h: levels, the sink, one line whatever the text, the limit per call site.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "host/lock.h"
#include "host/log.h"

static char last_line[BERM_LOG_LINE_BYTES + 1];
static berm_log_level_t last_level;
static unsigned line_count;

static void sink_take(void *context, berm_log_level_t level, const char *line) {
    cr_assert(context == last_line);
    (void)snprintf(last_line, sizeof last_line, "%s", line);
    last_level = level;
    line_count++;
    errno = EDOM;
}

Test(log, goes_to_standard_error, .init = cr_redirect_stderr) {
    berm__log(BERM_LOG_WARN, "headroom is %d %%", 2);
    berm__log(BERM_LOG_INFO, "not wanted");
    cr_assert_stderr_eq_str("berm: headroom is 2 %\n");
}

Test(log, levels) {
    static const berm_log_level_t levels[] = {BERM_LOG_ERROR, BERM_LOG_WARN, BERM_LOG_INFO};
    cr_assert(berm__log_level() == BERM_LOG_WARN);
    berm__log_sink_set(sink_take, last_line);
    for (unsigned wanted = 0; wanted < 3; wanted++) {
        berm__log_level_set(levels[wanted]);
        cr_assert(berm__log_level() == levels[wanted]);
        line_count = 0;
        for (unsigned i = 0; i < 3; i++)
            berm__log(levels[i], "line %u", i);
        cr_assert(line_count == wanted + 1);
        cr_assert(last_level == levels[wanted]);
    }
    cr_assert_str_eq(last_line, "line 2");
    berm__log_sink_set(NULL, NULL);
    line_count = 0;
    berm__log_level_set(BERM_LOG_ERROR);
    berm__log(BERM_LOG_WARN, "nowhere");
    cr_assert(line_count == 0);
}

Test(log, one_line_whatever_the_text) {
    berm__log_sink_set(sink_take, last_line);
    berm__log(BERM_LOG_WARN, "a\nb\tc\x1b[1m%s", "\x7f");
    cr_assert_str_eq(last_line, "a b c [1m ");
    char text[3 * BERM_LOG_LINE_BYTES];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    berm__log(BERM_LOG_WARN, "%s", text);
    cr_assert(strlen(last_line) == BERM_LOG_LINE_BYTES - 1);
    cr_assert_str_eq(last_line + BERM_LOG_LINE_BYTES - 5, "x...");
    text[BERM_LOG_LINE_BYTES - 1] = '\0';
    berm__log(BERM_LOG_WARN, "%s", text);
    cr_assert_str_eq(last_line, text);
    text[0] = '\0';
    berm__log(BERM_LOG_WARN, "%s", text);
    cr_assert_str_eq(last_line, "");
}

Test(log, errno_is_kept) {
    berm__log_sink_set(sink_take, last_line);
    errno = ENOMEM;
    berm__log(BERM_LOG_WARN, "x");
    cr_assert(errno == ENOMEM && line_count == 1);
}

Test(log, limit_per_call_site) {
    berm__log_sink_set(sink_take, last_line);
    for (int i = 0; i < 100; i++)
        BERM_LOG(BERM_LOG_WARN, "site one");
    cr_assert(line_count == BERM_LOG_BURST + 3); // lines 16, 32 and 64
    BERM_LOG(BERM_LOG_WARN, "site %d", 2);
    cr_assert(line_count == BERM_LOG_BURST + 4);
    cr_assert_str_eq(last_line, "site 2");
}

// Lines below the level do not use a site's share up.
Test(log, limit_counts_wanted_lines_only) {
    berm__log_sink_set(sink_take, last_line);
    for (int i = 0; i < 30; i++) {
        berm__log_level_set(i < 20 ? BERM_LOG_ERROR : BERM_LOG_WARN);
        BERM_LOG(BERM_LOG_WARN, "late");
    }
    cr_assert(line_count == BERM_LOG_BURST);
}

Test(log, any_lock_may_be_held) {
    berm_mutex_t host;
    berm__mutex_init(&host, BERM_LOCK_HOST, "host");
    berm__log_sink_set(sink_take, last_line);
    berm__mutex_lock(&host);
    berm__log(BERM_LOG_WARN, "x");
    berm__mutex_unlock(&host);
    cr_assert(line_count == 1);
    berm__mutex_destroy(&host);
}
