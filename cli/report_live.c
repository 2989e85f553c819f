// SPDX-License-Identifier: Apache-2.0
// berm report PID of a process that runs: its owner asks for a recording by a word of its live page
// (host/live.h), the thread that writes the page answers with a file beside it.
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/report.h"
#include "host/live.h"
#include "stress/trace/recording.h"

enum {
    WAIT_MS = 20000,
    LOOK_MS = 20,
};

static bool answer_wait(const char *path) {
    const struct timespec rest = {.tv_nsec = LOOK_MS * 1000000L};
    for (int ms = 0; ms < WAIT_MS; ms += LOOK_MS) {
        if (access(path, R_OK) == 0)
            return true;
        (void)nanosleep(&rest, NULL);
    }
    return false;
}

berm_record_t *cli_report_live(uint64_t pid, char *error, size_t error_capacity) {
    static berm_live_page_t page;
    char path[PATH_MAX], answer[PATH_MAX + 8];
    berm__live_path(path, pid);
    (void)snprintf(answer, sizeof answer, "%s.json", path);
    if (!berm__live_read(path, &page) || page.pid != pid || !berm__live_is_running(&page)) {
        (void)snprintf(error, error_capacity,
                       "there is no berm.%" PRIu64 ".json, and no process %" PRIu64
                       " of yours that publishes statistics (berm run, live_page:on)",
                       pid, pid);
        return NULL;
    }
    (void)unlink(answer); // of an earlier question
    if (!berm__live_request(path)) {
        (void)snprintf(error, error_capacity, "process %" PRIu64 " cannot be asked: %s", pid,
                       strerror(errno));
        return NULL;
    }
    if (!answer_wait(answer)) {
        (void)snprintf(error, error_capacity,
                       "process %" PRIu64 " does not answer within %d s; berm top shows its last "
                       "figures",
                       pid, WAIT_MS / 1000);
        return NULL;
    }
    berm_record_t *record = recording_load(answer, error, error_capacity);
    (void)unlink(answer);
    return record;
}
