// SPDX-License-Identifier: Apache-2.0
// The live page: what is published is read whole, by other processes too; what is no page is not
// taken for one.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/live.h"

static char folder[] = "/tmp/test_live_XXXXXX";

static void folder_make(void) {
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert(setenv("BERM_LIVE_DIR", folder, 1) == 0);
}

static void folder_remove(void) {
    (void)rmdir(folder);
}

TestSuite(live, .init = folder_make, .fini = folder_remove, .timeout = 60);

static berm_live_t live;
static berm_live_page_t page;

static void publish(uint64_t value, uint32_t count) {
    static berm_live_rows_t rows;
    rows.device_count = rows.pool_count = count;
    rows.driver_calls = value;
    for (uint32_t i = 0; i < count; i++) {
        rows.devices[i] =
            (berm_live_device_t){.device = i, .requested_bytes = value, .frees = value};
        rows.pools[i] = (berm_live_pool_t){.device = i, .id_low = value};
    }
    berm__live_publish(&live, &rows);
}

Test(live, what_is_published_is_read) {
    cr_assert(berm__live_open(&live));
    cr_assert(strncmp(live.path, folder, strlen(folder)) == 0);
    cr_assert(berm__live_read(live.path, &page) && page.device_count == 0);
    publish(7, 3);
    cr_assert(berm__live_read(live.path, &page));
    cr_assert(page.device_count == 3 && page.driver_calls == 7 &&
              page.devices[2].requested_bytes == 7 && page.devices[2].device == 2);
    cr_assert(page.pool_count == 3 && page.pools[2].device == 2 && page.pools[2].id_low == 7);
    cr_assert(page.pid == (uint64_t)getpid() && page.started != 0 && page.updated_ns != 0);
    cr_assert(page.command[0] != '\0', "the command is '%s'", page.command);
    cr_assert(berm__live_is_running(&page));
    berm__live_close(&live);
    cr_assert(access(live.path, F_OK) != 0 && !berm__live_read(live.path, &page));
    publish(8, 1); // a thread that is late
}

Test(live, a_second_start_takes_the_place_of_the_first) {
    cr_assert(berm__live_open(&live));
    publish(7, 1);
    berm__live_close(&live);
    cr_assert(berm__live_open(&live));
    cr_assert(berm__live_read(live.path, &page) && page.device_count == 0);
    berm__live_close(&live);
}

Test(live, a_page_of_a_process_that_is_gone_is_replaced) {
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s%ld-%ld", folder, BERM_LIVE_PREFIX, (long)getuid(),
                   (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert(fd >= 0 && write(fd, "old", 3) == 3 && close(fd) == 0);
    cr_assert(berm__live_open(&live) && berm__live_read(path, &page));
    berm__live_close(&live);
}

static atomic_bool is_over;

static void *publish_all(void *unused) {
    (void)unused;
    for (uint64_t i = 0; !atomic_load(&is_over); i++)
        publish(i, BERM_LIVE_DEVICES_MAX);
    return NULL;
}

Test(live, a_page_that_is_being_written_is_read_whole_or_not) {
    pthread_t thread;
    unsigned whole = 0;
    cr_assert(berm__live_open(&live));
    cr_assert(pthread_create(&thread, NULL, publish_all, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        if (!berm__live_read(live.path, &page))
            continue;
        whole += page.device_count > 0;
        for (uint32_t j = 0; j < page.device_count; j++)
            cr_assert(page.devices[j].requested_bytes == page.driver_calls &&
                          page.devices[j].frees == page.driver_calls,
                      "row %u is of another time", j);
        (void)usleep(100);
    }
    atomic_store(&is_over, true);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(berm__live_read(live.path, &page) && page.device_count == BERM_LIVE_DEVICES_MAX);
    berm__live_close(&live);
    (void)whole; // how many there were is the scheduler's
}

static void file_write(const void *bytes, size_t count) {
    int fd = open(live.path, O_WRONLY | O_TRUNC);
    cr_assert(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && close(fd) == 0);
}

Test(live, what_is_no_page_is_not_read) {
    static berm_live_page_t good;
    cr_assert(berm__live_open(&live));
    publish(1, 1);
    cr_assert(berm__live_read(live.path, &good));
    berm_live_page_t bad = good;
    bad.magic[0] = 'x';
    file_write(&bad, sizeof bad);
    cr_assert(!berm__live_read(live.path, &page), "magic");
    bad = good;
    bad.version++;
    file_write(&bad, sizeof bad);
    cr_assert(!berm__live_read(live.path, &page), "version");
    bad = good;
    bad.device_count = BERM_LIVE_DEVICES_MAX + 1;
    file_write(&bad, sizeof bad);
    cr_assert(!berm__live_read(live.path, &page), "count");
    bad = good;
    bad.pool_count = BERM_LIVE_POOLS_MAX + 1;
    file_write(&bad, sizeof bad);
    cr_assert(!berm__live_read(live.path, &page), "count of pools");
    bad = good;
    memset(bad.command, 'a', sizeof bad.command);
    file_write(&bad, sizeof bad);
    cr_assert(!berm__live_read(live.path, &page), "command");
    bad = good;
    atomic_store(&bad.sequence, 3);
    file_write(&bad, sizeof bad);
    cr_assert(!berm__live_read(live.path, &page), "written for ever");
    file_write(&good, sizeof good - 1);
    cr_assert(!berm__live_read(live.path, &page), "short");
    file_write(&good, sizeof good);
    cr_assert(berm__live_read(live.path, &page), "good again");
    cr_assert(!berm__live_read(folder, &page) && !berm__live_read("/nonexistent", &page));
    berm__live_close(&live);
}

Test(live, only_its_owner_may_read_it) {
    struct stat about;
    cr_assert(berm__live_open(&live) && stat(live.path, &about) == 0);
    cr_assert((about.st_mode & 0777) == 0600, "%o", about.st_mode);
    berm__live_close(&live);
    cr_assert(symlink("/etc/passwd", live.path) == 0 && !berm__live_read(live.path, &page));
    cr_assert(berm__live_open(&live) && lstat(live.path, &about) == 0 && S_ISREG(about.st_mode),
              "a link in its place is replaced");
    berm__live_close(&live);
}

// A page that somebody else has made: what is read stays within bounds and harms no terminal.
Test(live, any_bytes_are_read_within_bounds) {
    static berm_live_page_t good;
    unsigned char *bytes = (unsigned char *)&good;
    uint64_t random = 88172645463325252u;
    unsigned taken = 0;
    cr_assert(berm__live_open(&live));
    publish(1, 3);
    cr_assert(berm__live_read(live.path, &good));
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 4; k++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            // Mostly the head, where lengths are.
            size_t at = random % 8 == 0 ? random / 8 % sizeof good
                                        : random / 8 % offsetof(berm_live_page_t, devices);
            if (at >= offsetof(berm_live_page_t, sequence) || random % 64 == 0)
                bytes[at] = (unsigned char)(random >> 40);
        }
        file_write(&good, sizeof good);
        if (!berm__live_read(live.path, &page)) {
            cr_assert(berm__live_open(&live));
            publish(1, 3);
            cr_assert(berm__live_read(live.path, &good));
            continue;
        }
        taken++;
        cr_assert(page.device_count <= BERM_LIVE_DEVICES_MAX);
        cr_assert(page.pool_count <= BERM_LIVE_POOLS_MAX);
        cr_assert(strlen(page.command) < sizeof page.command);
        for (const char *at = page.command; *at != '\0'; at++)
            cr_assert(*at >= ' ' && *at <= '~');
        (void)berm__live_is_running(&page);
    }
    cr_assert(taken > 100, "%u", taken);
    berm__live_close(&live);
}

Test(live, a_process_that_ended_is_told_from_another_of_its_number) {
    cr_assert(berm__live_open(&live));
    cr_assert(berm__live_read(live.path, &page));
    page.started++;
    cr_assert(!berm__live_is_running(&page));
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    cr_assert(waitpid(child, NULL, 0) == child);
    page.pid = (uint64_t)child;
    cr_assert(!berm__live_is_running(&page));
    berm__live_close(&live);
}

Test(live, a_forked_child_takes_nothing_away) {
    cr_assert(berm__live_open(&live));
    pid_t child = fork();
    if (child == 0) {
        berm__live_close(&live);
        _exit(0);
    }
    cr_assert(waitpid(child, NULL, 0) == child);
    cr_assert(berm__live_read(live.path, &page));
    berm__live_close(&live);
}

Test(live, a_folder_that_is_not_there_is_a_failure) {
    cr_assert(setenv("BERM_LIVE_DIR", "/nonexistent/folder", 1) == 0);
    cr_assert(!berm__live_open(&live));
    cr_assert(setenv("BERM_LIVE_DIR", folder, 1) == 0);
}
