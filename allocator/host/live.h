// SPDX-License-Identifier: Apache-2.0
// The live page: a file of a process in shared memory that has its statistics of a moment ago, for
// other processes to read (berm top). The process writes it, others only read, but for the word in
// which its owner asks for a recording; one that is killed leaves its last page.
//
// SEQUENCE. `sequence` is odd while the page is written. A reader takes a copy, and keeps it if the
// number was even and is the same afterwards.
//
// Thread safety: open, publish and close by one thread at a time; any number of readers.
#ifndef BERM_HOST_LIVE_H
#define BERM_HOST_LIVE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/defs.h"

enum {
    BERM_LIVE_VERSION = 2,
    BERM_LIVE_DEVICES_MAX = 64,
    BERM_LIVE_POOLS_MAX = 128,
    BERM_LIVE_COMMAND_BYTES = 96,
};

// Where pages are, unless BERM_LIVE_DIR names a folder.
#define BERM_LIVE_FOLDER "/dev/shm"
// A page is called so, with the user's and the process's number.
#define BERM_LIVE_PREFIX "berm-live-"

typedef struct berm_live_device {
    uint64_t device;
    uint64_t memory_bytes; // of the device
    uint64_t requested_bytes, requested_peak_bytes;
    uint64_t allocated_bytes, allocated_peak_bytes;
    uint64_t active_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes;
    uint64_t cached_bytes;
    uint64_t limit_bytes; // UINT64_MAX: none
    uint64_t largest_free_bytes;
    uint64_t blocks, requests, frees; // live; made since the start
    uint64_t pools, moved_bytes, host_waits, out_of_memory;
    uint64_t requests_per_s, frees_per_s; // since the page was written before
} berm_live_device_t;

typedef struct berm_live_pool {
    uint64_t device, id_high, id_low; // 0, 0: the default pool
    uint64_t blocks, requested_bytes, allocated_bytes, awaited_bytes, reserved_bytes;
} berm_live_pool_t;

typedef struct berm_live_page {
    char magic[8]; // "bermlive"
    uint32_t version, size_bytes;
    _Atomic uint64_t sequence;
    uint64_t pid, started; // the kernel's start time tells it from another process of that number
    uint64_t updated_ns;   // of the system's clock
    uint64_t driver_calls;
    uint32_t device_count;
    _Atomic uint32_t request; // 1: the owner asks for a recording; the process takes it back
    char command[BERM_LIVE_COMMAND_BYTES]; // NUL-terminated
    berm_live_device_t devices[BERM_LIVE_DEVICES_MAX];
    uint32_t pool_count, pools_left_out;
    berm_live_pool_t pools[BERM_LIVE_POOLS_MAX];
} berm_live_page_t;

typedef struct berm_live {
    berm_live_page_t *page; // NULL: not open
    char path[PATH_MAX];
} berm_live_t;

// What is published at one time.
typedef struct berm_live_rows {
    uint32_t device_count, pool_count, pools_left_out;
    uint64_t driver_calls;
    berm_live_device_t devices[BERM_LIVE_DEVICES_MAX];
    berm_live_pool_t pools[BERM_LIVE_POOLS_MAX];
} berm_live_rows_t;

// Makes the page of this process; one that *live had before is let go. False, with the reason in
// errno, where the folder takes no file.
bool berm__live_open(berm_live_t *live);
void berm__live_publish(berm_live_t *live, const berm_live_rows_t *rows);
// Asks the process of the page at `path` for a recording. Only its owner can: false, with the
// reason in errno.
bool berm__live_request(const char *path);
// Whether one was asked for since the last call.
bool berm__live_is_asked(berm_live_t *live);
// The path of a page of this user's process.
void berm__live_path(char path[PATH_MAX], uint64_t pid);
// Takes the file away; the page stays mapped, so that a thread that still publishes does no harm.
// In a forked child it does nothing.
void berm__live_close(berm_live_t *live);

// A copy of the page at `path`: false if it is none, or was being written each time. Whatever the
// file has, what is copied is within bounds, and its command is printable ASCII.
bool berm__live_read(const char *path, berm_live_page_t *page);
// Whether the process of the page is still there.
bool berm__live_is_running(const berm_live_page_t *page);
// The folder that pages are in.
const char *berm__live_folder(void);

#endif
