// SPDX-License-Identifier: Apache-2.0
// The live page: see live.h.
#include "host/live.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char page_magic[8] = "bermlive";

const char *berm__live_folder(void) {
    const char *named = secure_getenv("BERM_LIVE_DIR");
    return named != NULL && *named != '\0' ? named : BERM_LIVE_FOLDER;
}

// The first bytes of a file of /proc; "" if there is none.
static void proc_read(uint64_t pid, const char *name, char *text, size_t capacity) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%llu/%s", (unsigned long long)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, capacity - 1) : 0;
    text[length > 0 ? length : 0] = '\0';
    for (ssize_t i = 0; i + 1 < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    if (fd >= 0)
        (void)close(fd);
}

// When the process was started, in the kernel's ticks; 0 if it is not there.
static uint64_t process_started(uint64_t pid) {
    char text[1024];
    proc_read(pid, "stat", text, sizeof text);
    const char *at = strrchr(text, ')'); // behind the name, which may have anything in it
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at, ' ');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static uint64_t clock_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// A new file, which only the owner may read and write: it has the command line. One of that name is
// of a process that is gone.
static int file_make(const char *path) {
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0600);
    if (fd < 0 && errno == EEXIST && unlink(path) == 0)
        fd = open(path, flags, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(berm_live_page_t)) != 0) {
        int error = errno;
        (void)close(fd);
        (void)unlink(path);
        errno = error;
        return -1;
    }
    return fd;
}

void berm__live_path(char path[PATH_MAX], uint64_t pid) {
    (void)snprintf(path, PATH_MAX, "%s/%s%ld-%llu", berm__live_folder(), BERM_LIVE_PREFIX,
                   (long)getuid(), (unsigned long long)pid);
}

bool berm__live_open(berm_live_t *live) {
    if (live->page != NULL) // of an earlier start
        (void)munmap(live->page, sizeof *live->page);
    *live = (berm_live_t){.page = NULL};
    berm__live_path(live->path, (uint64_t)getpid());
    int fd = file_make(live->path);
    if (fd < 0)
        return false;
    void *page = mmap(NULL, sizeof *live->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    (void)close(fd);
    if (page == MAP_FAILED) {
        (void)unlink(live->path);
        errno = error;
        return false;
    }
    live->page = page;
    live->page->version = BERM_LIVE_VERSION;
    live->page->size_bytes = sizeof *live->page;
    live->page->pid = (uint64_t)getpid();
    live->page->started = process_started(live->page->pid);
    live->page->updated_ns = clock_now_ns();
    proc_read(live->page->pid, "cmdline", live->page->command, sizeof live->page->command);
    memcpy(live->page->magic, page_magic, sizeof page_magic); // last: now it is a page
    return true;
}

void berm__live_publish(berm_live_t *live, const berm_live_rows_t *rows) {
    berm_live_page_t *page = live->page;
    if (page == NULL)
        return;
    uint64_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    page->device_count = rows->device_count;
    page->pool_count = rows->pool_count;
    page->pools_left_out = rows->pools_left_out;
    memcpy(page->devices, rows->devices, rows->device_count * sizeof *rows->devices);
    memcpy(page->pools, rows->pools, rows->pool_count * sizeof *rows->pools);
    page->driver_calls = rows->driver_calls;
    page->updated_ns = clock_now_ns();
    atomic_store_explicit(&page->sequence, sequence + 2, memory_order_release);
}

void berm__live_close(berm_live_t *live) {
    if (live->page == NULL || live->page->pid != (uint64_t)getpid())
        return;
    (void)unlink(live->path);
}

static bool page_is_valid(const berm_live_page_t *page) {
    return memcmp(page->magic, page_magic, sizeof page_magic) == 0 &&
           page->version == BERM_LIVE_VERSION && page->size_bytes == sizeof *page &&
           page->device_count <= BERM_LIVE_DEVICES_MAX && page->pool_count <= BERM_LIVE_POOLS_MAX &&
           memchr(page->command, '\0', sizeof page->command) != NULL;
}

// What is printed has no characters that a terminal acts on, whatever the page has.
static void command_clean(berm_live_page_t *page) {
    for (char *at = page->command; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

bool berm__live_read(const char *path, berm_live_page_t *page) {
    enum {
        ATTEMPTS = 1000
    };
    struct stat about;
    bool is_whole = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool is_page = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    // Read, not mapped: the file is another's, who may cut it off.
    for (int i = 0; i < ATTEMPTS && is_page && !is_whole; i++) {
        uint64_t after = 1;
        is_page = pread(fd, page, sizeof *page, 0) == (ssize_t)sizeof *page &&
                  pread(fd, &after, sizeof after, offsetof(berm_live_page_t, sequence)) ==
                      (ssize_t)sizeof after &&
                  page_is_valid(page);
        is_whole = is_page && after == page->sequence && after % 2 == 0;
    }
    (void)close(fd);
    if (is_whole)
        command_clean(page);
    return is_whole;
}

bool berm__live_request(const char *path) {
    const uint32_t one = 1;
    struct stat about;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    errno = EPERM;
    bool is_good =
        fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == getuid() &&
        about.st_size == sizeof(berm_live_page_t) &&
        pwrite(fd, &one, sizeof one, offsetof(berm_live_page_t, request)) == (ssize_t)sizeof one;
    int error = errno;
    (void)close(fd);
    errno = error;
    return is_good;
}

bool berm__live_is_asked(berm_live_t *live) {
    return live->page != NULL && atomic_exchange(&live->page->request, 0) != 0;
}

bool berm__live_is_running(const berm_live_page_t *page) {
    return page->pid > 0 && page->pid <= INT32_MAX &&
           (kill((pid_t)page->pid, 0) == 0 || errno == EPERM) &&
           process_started(page->pid) == page->started;
}
