// SPDX-License-Identifier: Apache-2.0
// Internal to stress/plot: the segments of a snapshot, and their picture.
#ifndef STRESS_PLOT_SEGMENTS_H
#define STRESS_PLOT_SEGMENTS_H

#include "stress/plot/svg.h"
#include "stress/trace/input.h"

typedef enum plot_state {
    PLOT_STATE_LIVE,
    PLOT_STATE_AWAITED, // freed, still in use by a stream
    PLOT_STATE_FREE,    // mapped, not used
    PLOT_STATE_BUSY,    // being mapped or unmapped
    PLOT_STATE_STALE,   // its pages have moved on
    PLOT_STATE_POISONED,
    PLOT_STATE_VOID, // not mapped
    PLOT_STATES,
} plot_state_t;

extern const char *const plot_state_names[PLOT_STATES];

typedef struct plot_range {
    plot_state_t state;
    uint64_t start_bytes, size_bytes;
    uint64_t requested_bytes;                         // 0 where unknown
    uint64_t slab_class_bytes, slab_used, slab_slots; // 0 where it is no slab
} plot_range_t;

// `count` equal handles, one behind the other.
typedef struct plot_handles {
    uint64_t start_bytes, each_bytes, count;
} plot_handles_t;

// Invariants: ranges tile the span in order, none is empty; handles lie in the span.
typedef struct plot_segment {
    uint64_t device, base, span_bytes, mapped_bytes;
    char stream[24];
    uint64_t state_bytes[PLOT_STATES], handle_count;
    plot_range_t *ranges;
    size_t range_count;
    plot_handles_t *handles;
    size_t handles_count;
} plot_segment_t;

typedef struct plot_device {
    uint64_t device, requested_bytes, allocated_bytes, active_bytes, reserved_bytes;
} plot_device_t;

typedef struct plot_segments {
    const char *path; // borrowed; how the file is called
    plot_device_t *devices;
    size_t device_count;
    plot_segment_t *segments;
    size_t count;
} plot_segments_t;

bool plot_segments_match(const trace_input_t *input);
// 0, or -1 with a line in `error`; to be freed in either case.
BERM_NODISCARD int plot_segments_read(plot_segments_t *segments, const trace_input_t *input,
                                      char *error, size_t error_capacity);
void plot_segments_free(plot_segments_t *segments);

// Puts the segments into the order of the picture.
void plot_map_draw(plot_segments_t *segments, FILE *file, bool is_html);

#endif
