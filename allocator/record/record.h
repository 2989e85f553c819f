// SPDX-License-Identifier: Apache-2.0
// A recording: what a process had on its devices at one moment, and the last things that happened
// before. It is taken from a running heap (front/recording.c) or read from a file, and written in
// the forms that other tools know. It knows no heap: plain numbers only.
//
// Invariants: a device's blocks stand in the order of its segments, and cover each without gap; its
// events end in them: taken back from the last to the first, an ALLOC is of a block that is live
// then, and a FREE of one that is not. The writers leave out what does not fit, which the ring has
// lost the other half of.
#ifndef BERM_RECORD_RECORD_H
#define BERM_RECORD_RECORD_H

#include <stdbool.h>

#include "base/emit.h"

typedef enum berm_record_kind {
    BERM_RECORD_ALLOC,
    BERM_RECORD_FREE,
    BERM_RECORD_FAIL,        // size_bytes: wanted; number: berm_status_t
    BERM_RECORD_MAP,         // of addresses
    BERM_RECORD_UNMAP,       //
    BERM_RECORD_PLAIN_ALLOC, // of a plain segment
    BERM_RECORD_PLAIN_FREE,  //
    BERM_RECORD_MARK,        // number: of the mark
    BERM_RECORD_KIND_COUNT
} berm_record_kind_t;

typedef struct berm_record_event {
    uint8_t kind, tag; // berm_record_kind_t; an index of `tags`
    uint32_t thread;
    uint64_t time_ns; // of the recording's clock; not before
    uint64_t addr, size_bytes, number, site;
    int64_t stream; // a handle; -1: none
    uint64_t pool_high, pool_low;
} berm_record_event_t;

typedef struct berm_record_segment {
    uint64_t addr, size_bytes;
    int64_t stream;
    uint64_t pool_high, pool_low;
    bool is_plain;
    uint64_t block_first, block_count; // in `blocks`
} berm_record_segment_t;

typedef enum berm_record_state {
    BERM_RECORD_FREE_PIECE,
    BERM_RECORD_LIVE,
    BERM_RECORD_AWAITED, // freed, some stream may still use it
    BERM_RECORD_HELD,    // freed, pinned
} berm_record_state_t;

typedef struct berm_record_block {
    uint64_t addr, size_bytes;
    uint64_t requested_bytes; // 0 unless live or awaited
    uint64_t number;          // n-th request of the device; 0 unless live
    uint8_t state, tag;       // berm_record_state_t; an index of `tags`
    bool is_small;
} berm_record_block_t;

// Figures of a device, all in bytes.
typedef struct berm_record_figures {
    uint64_t memory, driver_free; // of the device; as the driver said
    uint64_t limit;               // UINT64_MAX: none
    uint64_t granule;
    uint64_t requested, requested_peak, allocated, active, reserved, reserved_peak, cached;
    uint64_t pinned, exported, poisoned;
    uint64_t moves_pages; // 1: free pages may be given other addresses
    uint64_t requests;    // numbers given out
} berm_record_figures_t;

typedef struct berm_record_device {
    int ordinal;
    berm_record_figures_t figures;
    berm_record_segment_t *segments;
    berm_record_block_t *blocks;
    berm_record_event_t *events; // in their order
    uint64_t segment_count, block_count, event_count;
    uint64_t segment_capacity, block_capacity, event_capacity;
    bool has_lost; // events before the first are lost
} berm_record_device_t;

// A file of code in the process, for call sites.
typedef struct berm_record_module {
    uint64_t base, first, end; // addresses: what offsets count from, and its code
    char path[256];
} berm_record_module_t;

enum {
    BERM_RECORD_MODULES_MAX = 128,
    BERM_RECORD_DEVICES_MAX = 64,
    BERM_RECORD_EVENTS_MAX = 200000, // of a device, in one that is taken
    BERM_RECORD_TAGS_MAX = 256,
    BERM_RECORD_TAG_BYTES = 48,
    BERM_RECORD_RANK_BYTES = 12,
    BERM_RECORD_HOST_BYTES = 65,
};

typedef struct berm_record {
    int64_t wall_ns; // what to add to a time for nanoseconds since 1970
    uint64_t now_ns; // when it was taken
    uint64_t pid;
    char rank[BERM_RECORD_RANK_BYTES]; // of the process in its job, a number; "": not known
    char host[BERM_RECORD_HOST_BYTES]; // up to its first dot; "": not known
    unsigned device_count, tag_count, module_count;
    berm_record_module_t modules[BERM_RECORD_MODULES_MAX];
    berm_record_device_t devices[BERM_RECORD_DEVICES_MAX];
    char tags[BERM_RECORD_TAGS_MAX][BERM_RECORD_TAG_BYTES]; // [0] is ""
} berm_record_t;

// Room for one more; false without host memory.
bool berm__record_segment_add(berm_record_device_t *device, const berm_record_segment_t *segment);
bool berm__record_block_add(berm_record_device_t *device, const berm_record_block_t *block);
bool berm__record_event_add(berm_record_device_t *device, const berm_record_event_t *event);
void berm__record_destroy(berm_record_t *record);

// Drops events that do not fit to the others and to the blocks (above); what is left does. False
// without host memory.
bool berm__record_settle(berm_record_device_t *device);

const char *berm__record_kind_name(berm_record_kind_t kind);

// The forms. None can fail but for what `write` does.
void berm__record_write_json(const berm_record_t *record, berm_emit_write_fn write, void *context);
void berm__record_write_pytorch(const berm_record_t *record, berm_emit_write_fn write,
                                void *context);
// Of one device: the events of the others are other logs.
void berm__record_write_rmm(const berm_record_t *record, const berm_record_device_t *device,
                            berm_emit_write_fn write, void *context);
void berm__record_write_replay(const berm_record_t *record, const berm_record_device_t *device,
                               berm_emit_write_fn write, void *context);
void berm__record_write_csv(const berm_record_t *record, berm_emit_write_fn write, void *context);
void berm__record_write_chrome(const berm_record_t *record, berm_emit_write_fn write,
                               void *context);

#endif
