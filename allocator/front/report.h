// SPDX-License-Identifier: Apache-2.0
// What is said of a request that failed: one line, which berm_error_message has, the log gets, and
// the report begins with; and the report, a table of where the memory is, which goes to the
// application's callback, to the file of the option oom_report and, with log:info, to the log.
//
// The figures are taken under the device's lock (report.c, report_holders.c) and written down when
// no lock is held (report_text.c, report_json.c); report_give.c says where it goes.
#ifndef BERM_FRONT_REPORT_H
#define BERM_FRONT_REPORT_H

#include "drv/nvml.h"
#include "front/heap.h"
#include "record/verdict.h"

enum {
    BERM_HOLDERS_MAX = 6,
    BERM_PROCESSES_MAX = 32,
    BERM_ENOUGH_MAX = 8, // blocks that are named
};

// Who holds live memory: a pool, or the blocks of a range of sizes.
typedef struct berm_holder {
    uint64_t live_bytes, blocks, reserved_bytes;
    berm_pool_id_t id;      // of a pool
    berm_stream_t stream;   //
    uint64_t largest_bytes; // of sizes: a power of two; blocks are above half of it
    const char *tag;        // of a tag; "": none
} berm_holder_t;

typedef struct berm_holders {
    unsigned pool_count, size_count;
    uint64_t pools_left_out;
    berm_holder_t pools[BERM_HOLDERS_MAX], sizes[BERM_HOLDERS_MAX]; // most bytes first
} berm_holders_t;

typedef struct berm_shortage {
    berm_status_t status;
    berm_want_t want;
    const void *site;
    bool is_due;       // as at most one a second is for each device, call site and cause
    uint64_t left_out; // had no report since the last
    char line[512];
    const char *driver_symbol; // of the call that was refused for this request; NULL: none was
    int driver_result;
    bool is_plain, moves_pages, knows_driver;
    bool is_plain_by_option;
    uint8_t tag; // of the thread
    uint64_t granule_bytes;
    uint64_t memory_bytes, free_bytes, outside_bytes; // of the device
    uint64_t live_bytes, blocks, allocated_bytes, awaited_bytes, cached_bytes, reserved_bytes;
    uint64_t pinned_bytes, exported_bytes, poisoned_bytes;
    uint64_t largest_free_bytes;
    berm_obtainable_t obtainable;
    uint64_t limit_bytes;
    berm_limit_source_t limit_source;
    unsigned char uuid[16]; // of the device
    bool has_uuid;
    berm_holders_t holders;
} berm_shortage_t;

// What the past says of it, and what would have made it fit (diagnosis.c). It is taken right after
// the failure, with no lock held: other threads may have gone on.
typedef struct berm_diagnosis {
    bool is_known; // else there was no host memory for it
    berm_verdict_t verdict;
    uint64_t events; // that it was found from
    unsigned tag_count;
    berm_holder_t tags[BERM_HOLDERS_MAX]; // most bytes first
    // Few live blocks without which it would have fitted; the first are named. 0: not known.
    uint64_t enough_blocks, enough_bytes;
    berm_addr_t enough[BERM_ENOUGH_MAX];
    // How many pages would have to move, which may not during a capture, and what that takes. 0: it
    // would not do.
    uint64_t move_pages, move_us;
    // By what the request, or all that lives and the request, would have to be multiplied. 0: by
    // nothing that helps, or it was not device memory that was short.
    double scale_request, scale_all;
} berm_diagnosis_t;

void berm__diagnosis_make(berm_diagnosis_t *diagnosis, const berm_shortage_t *shortage);

// What a number of pages takes to move, by the figures of published measurements (obtainable.c).
uint64_t berm__move_modelled_us(uint64_t pages);

// Where the recording of this failure goes, and what the whole thing took.
typedef struct berm_report {
    const berm_shortage_t *shortage;
    const berm_diagnosis_t *diagnosis;
    int process_count; // -1: not known
    berm_nvml_process_t processes[BERM_PROCESSES_MAX];
    char dump[512]; // ""
    uint64_t took_ns;
} berm_report_t;

// The report as text, cut where it does not fit, and as one JSON object.
void berm__report_write_text(const berm_report_t *report, char *at, size_t capacity);
void berm__report_write_json(const berm_report_t *report, berm_emit_write_fn write, void *context);
const char *berm__limit_source_text(berm_limit_source_t source);

// Counts the failure, takes its figures, and makes the line this thread's message. `errors` is
// berm__drv_error_count of before the request. Returns the status that the request fails with:
// CEILING instead of OUT_OF_DEVICE_MEMORY where the driver refuses memory that it has. The device's
// lock is held. Calls the driver.
berm_status_t berm__shortage_take(berm_shortage_t *shortage, berm_device_t *device,
                                  const berm_want_t *want, berm_status_t status, uint64_t errors);
// Finds the verdict, leads the line with it, and writes line and report, if that is due. No lock is
// held.
void berm__shortage_report(berm_shortage_t *shortage);

// Who holds what is live. Walks the heap, which it stops; the device's lock is held.
void berm__holders_take(berm_device_t *device, berm_holders_t *holders);

// Numbers of bytes for people: in MiB with one decimal, in bytes below 1 MiB, or exact.
typedef struct berm_figure_text {
    char at[32];
} berm_figure_text_t;
berm_figure_text_t berm__bytes_text(uint64_t bytes);
berm_figure_text_t berm__mib_text(uint64_t bytes);

#endif
