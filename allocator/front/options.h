// SPDX-License-Identifier: Apache-2.0
// The options of berm: a plain struct, filled from text. Rows are in options.def.
//
// Text has the form "key:value,key:value"; a newline separates as a comma does, blanks around keys
// and values are ignored, an item that starts with # is a comment to the end of its line. A value
// may hold colons but no commas. The last of equal keys wins.
// Sources, strongest first: the text given to berm_init, the variable BERM_CONF, the file that
// conf_file in it or the variable BERM_CONF_FILE names. A setuid process ignores both variables.
//
// An unknown key is an error in the text of berm_init, and with abort_conf; otherwise a warning. A
// bad value is always an error: a limit with a typo must not become no limit.
// Nothing is allocated, no lock is taken: callers serialise access to a berm_options_t.
#ifndef BERM_FRONT_OPTIONS_H
#define BERM_FRONT_OPTIONS_H

#include <stdbool.h>

#include "base/defs.h"
#include "berm.h"
#include "host/log.h"
#include "host/mem.h"
#include "vmm/gpu.h"

enum {
    BERM_OPTION_TEXT_BYTES = 256,        // of a text value, with its NUL
    BERM_OPTION_FILE_MAX_BYTES = 1 << 14 // a larger file is refused
};

// In the order of the option's range.
typedef enum berm_remap {
    BERM_REMAP_PASSED, // a page moves once all tickets on it have passed
    BERM_REMAP_OFF,    // pages never move
    BERM_REMAP_ALIAS,  // a page moves at once within its stream, else as passed
} berm_remap_t;

typedef struct berm_options {
    double headroom_pct;
    berm_remap_t remap;
    berm_backing_t backing;
    uint64_t limit_bytes;   // UINT64_MAX: none
    double memory_fraction; // of the device's memory; 0: none
    uint64_t handle_bytes;  // a power of two; the granule if that is larger
    bool sync_edits;
    bool shares_pages;
    uint64_t decay_ms;           // UINT64_MAX: never
    uint64_t decay_half_life_ms; // UINT64_MAX: decay_ms holds
    bool learned_placement;
    bool background_thread;
    bool live_page;
    char prometheus[BERM_OPTION_TEXT_BYTES]; // a file; "": none
    bool thread_cache;
    char driver[BERM_OPTION_TEXT_BYTES];
    bool audit;
    bool abort_conf;
    berm_log_level_t log;
    char oom_report[BERM_OPTION_TEXT_BYTES]; // a file; "": none
    bool event_ring;
    bool call_sites;
    char recording[BERM_OPTION_TEXT_BYTES]; // a file; "": none
    bool leak_check;
    berm_mem_backend_t host_memory;
    char conf_file[BERM_OPTION_TEXT_BYTES];
    char error[BERM_OPTION_TEXT_BYTES]; // why the last berm__options_load failed, or ""
} berm_options_t;

void berm__options_default(berm_options_t *options);

// Fills *options from all sources; api_text may be NULL. On failure *options has the defaults and
// options->error one line that says what and where; it is logged too.
// Errors: OPTION_UNKNOWN, OPTION_VALUE (also for a file that cannot be read).
BERM_NODISCARD berm_status_t berm__options_load(berm_options_t *options, const char *api_text);

// Reads one text into *options. On failure nothing changed and `error` has one line, which starts
// with source_name. `error` may be NULL if capacity is 0.
BERM_NODISCARD berm_status_t berm__options_parse(berm_options_t *options, const char *text,
                                                 const char *source_name, char *error,
                                                 size_t capacity);

// Sets one option by name. STATE: berm is started and the option is not for run time.
BERM_NODISCARD berm_status_t berm__option_set(berm_options_t *options, const char *name,
                                              const char *value, bool is_started, char *error,
                                              size_t capacity);

// Writes the text of a value, which option_set would take; cut at `capacity` bytes with the NUL.
// ARGUMENT: capacity is 0. OPTION_UNKNOWN.
BERM_NODISCARD berm_status_t berm__option_get(const berm_options_t *options, const char *name,
                                              char *value, size_t capacity);

#endif
