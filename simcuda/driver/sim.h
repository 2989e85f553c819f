// SPDX-License-Identifier: Apache-2.0
// The simulated device's state, and the functions its files share.
//
// One process, one state, one mutex: every entry takes the mutex in sim_enter and gives it back in
// sim_leave (the real driver serialises as well). Everything declared below expects it held.
//
//   device, context, stream, event     what the program holds; named by handles (table.h)
//   reservation, memory, mapping       addresses; physical memory; memory at an address
//   op, mark                           queued work whose times are not known yet; a point of time
//   use                                the last write and reads of a piece of memory (hazards)
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/cuda_abi.h"
#include "base/defs.h"
#include "base/list.h"
#include "base/rng.h"
#include "entries.h"
#include "table.h"
#include "tree.h"

#pragma GCC visibility push(default)
#include "simcuda.h"
#pragma GCC visibility pop

typedef struct sim_context sim_context_t;
typedef struct sim_stream sim_stream_t;
typedef struct sim_capture sim_capture_t;
typedef struct sim_gate sim_gate_t;
typedef struct sim_graph sim_graph_t;
typedef struct sim_pool sim_pool_t;
typedef struct sim_piece sim_piece_t;
typedef struct sim_opened sim_opened_t;

// Addresses lie where no 47-bit user address is, so a host access by mistake faults; in backed mode
// they lie in a region of the process (backing.c).
#define SIM_ADDRESS_BASE  (UINT64_C(1) << 47)
#define SIM_ADDRESS_BYTES (UINT64_C(1) << 47)

enum {
    SIM_LEDGERS = SIMCUDA_DEVICE_MAX + 1, // the last: what belongs to no device (host memory)
    SIM_HAZARDS_KEPT = 1000,
    SIM_CURRENT_MAX = 32, // contexts on one thread's stack
};

// --- time and order ----------------------------------------------------------------------------

// A point in a stream: when it is reached, and what happened before it. While the time is not
// known, `stream` is the stream whose queue holds the op that will tell.
typedef struct sim_mark {
    uint32_t refs;
    uint32_t clock_count;
    bool is_resolved;
    uint64_t at_ns;
    sim_stream_t *stream;
    uint64_t clock[]; // one entry per stream slot, as of the record
} sim_mark_t;

// What work does besides taking time and touching ranges.
typedef enum sim_action_kind {
    SIM_ACTION_NONE,   // a modelled kernel
    SIM_ACTION_KERNEL, // a host function that stands for a kernel (backed mode)
    SIM_ACTION_COPY,
    SIM_ACTION_FILL,
    SIM_ACTION_HOST, // a host function of the program's
} sim_action_kind_t;

typedef struct sim_action {
    sim_action_kind_t kind;
    uint32_t value, width;    // of a fill: `width` bytes of it, 1, 2 or 4, again and again
    uint64_t to, from, bytes; // of a copy or a fill: addresses of the device or the host
    void (*fn)(void *argument);
    void *argument;
} sim_action_t;

// An action that waits for its time (contents.c).
typedef struct sim_effect {
    uint64_t ns, number; // when, and by number among equals
    uint64_t context;    // handle
    sim_action_t action;
    bool reads_stale, writes_stale;
    uint32_t access_count;
    simcuda_access_t accesses[];
} sim_effect_t;

// Steps of a graph, by number.
typedef struct sim_deps {
    uint32_t *items;
    uint32_t count, capacity;
} sim_deps_t;

// Queued work whose start waits, directly or not, for a closed gate.
typedef struct sim_op {
    berm_list_t node;
    sim_mark_t *mark;
    sim_effect_t *effect; // NULL: none
    uint64_t issue_ns, duration_ns;
    sim_gate_t *gate; // NULL: ends after duration_ns
    uint32_t dep_count;
    sim_mark_t *deps[];
} sim_op_t;

struct sim_gate {
    berm_list_t node;
    uint64_t number;
    uint64_t open_ns; // UINT64_MAX: closed
};

// A host function that is due when its mark is reached.
typedef struct sim_callback {
    berm_list_t node;
    sim_mark_t *mark;
    berm_cu_host_fn fn;
    void *data;
} sim_callback_t;

struct sim_stream {
    // constant after creation
    uint64_t handle; // 0 for the default streams
    uint64_t id;
    sim_context_t *context;
    uint32_t slot;
    unsigned flags;
    int priority;
    bool is_legacy;
    uint64_t thread; // the owner, of a per-thread default stream; else 0
    // changing
    berm_list_t node;    // in context->streams
    berm_list_t pending; // ops, oldest first
    bool is_destroyed;   // waits to be reaped
    uint64_t tail_ns;    // end of the last op whose time is known
    uint64_t before_ns;  // tail_ns before that op
    bool is_tail_kernel; // the last op is a kernel that the next may overlap
    uint64_t *clock;     // what happened before the next op; [slot] is this stream's own count
    uint64_t host_version;
    sim_capture_t *capture;
    uint64_t capture_ops;
    sim_stream_t *merged_into; // in a capture: who waited for the last op here
    sim_deps_t capture_deps;   // what the next captured step comes after
};

typedef struct sim_stream_slot {
    uint64_t last; // the count of the last stream that had this slot
    uint64_t stream_id;
    bool is_used;
} sim_stream_slot_t;

typedef struct sim_event {
    uint64_t handle;
    sim_context_t *context;
    unsigned flags;
    sim_mark_t *mark;    // NULL: never recorded, or last recorded in a capture
    uint64_t capture_id; // of the capture it was last recorded in; 0: none
    uint64_t capture_ops;
    uint64_t capture_stream_id;
    sim_deps_t capture_deps;
} sim_event_t;

struct sim_capture {
    berm_list_t node;
    uint64_t id;
    int mode;
    int status;
    uint64_t thread;
    sim_stream_t *origin;
    sim_graph_t *graph;
    berm_cu_graph_node_t *told; // the dependencies last asked for
};

struct sim_context {
    berm_list_t node;
    uint64_t handle;
    int device;
    bool is_primary;
    unsigned flags;
    berm_list_t streams; // live ones and those not reaped yet
    sim_stream_t *legacy;
    sim_stream_t *recorder; // carries the events of cuCtxRecordEvent; NULL until one
    uint64_t tail_ns;       // latest end of work whose end is known
    int sticky;             // the error every call returns, once seen
    bool has_fault;         // an error that the next call that waits will see
    uint64_t fault_ns;
    uint64_t peers[SIMCUDA_DEVICE_MAX]; // contexts whose cuMemAlloc memory its kernels may touch
    uint32_t peer_count;
};

// --- memory ------------------------------------------------------------------------------------

typedef struct sim_use {
    uint64_t count;   // the work's number in its stream; 0: none
    uint64_t mapping; // id of the mapping it came through
    uint32_t slot;
} sim_use_t;

// Who used bytes [node.key, end) of a memory last.
typedef struct sim_used {
    sim_node_t node;
    uint64_t end;
    sim_use_t write;
    sim_use_t *reads; // since the write
    uint32_t read_count, read_capacity;
} sim_used_t;

typedef struct sim_memory {
    uint64_t handle; // 0: behind cuMemAlloc
    uint64_t id;
    uint64_t size_bytes;
    uint64_t refs;     // of the program
    uint64_t mappings; // it lives while refs or mappings is not 0
    int device;        // -1: host memory
    berm_cu_mem_prop_t prop;
    sim_tree_t used;
    uint64_t prune_at;
    // what makes it one memory in several processes, and where its contents are (backing.c)
    uint64_t identity[2];
    bool is_imported;
    bool has_file; // `fd` is its own
    int fd;        // -1: none
    uint64_t file_offset;
} sim_memory_t;

typedef struct sim_reservation {
    sim_node_t node;
    uint64_t size_bytes;
    uint64_t mappings;
    int device; // of the context that was current, for the ledger
} sim_reservation_t;

// A run of small cuMemAlloc blocks in one granule: a bit per 512 bytes.
typedef struct sim_chunk {
    berm_list_t node;
    sim_memory_t *memory;
    uint64_t addr;
    uint64_t free_units, units;
    uint64_t bits[];
} sim_chunk_t;

typedef struct sim_mapping {
    sim_node_t node;
    uint64_t size_bytes;
    uint64_t id;
    sim_memory_t *memory;
    uint64_t memory_offset; // not 0 only in a chunk
    sim_reservation_t *reservation;
    bool is_plain; // a cuMemAlloc allocation
    bool is_array; // and its address is known to nobody (array.c)
    sim_chunk_t *chunk;
    sim_context_t *context; // a plain one's owner
    sim_piece_t *piece;     // not NULL: from a memory pool
    sim_opened_t *opened;   // not NULL: by cuIpcOpenMemHandle
    uint8_t access[SIMCUDA_DEVICE_MAX];
    uint64_t visible_ns; // work that starts before reads stale zeros
    // Work that may touch it: the latest end known, and marks of work whose end is not.
    uint64_t busy_ns, busy_stream_id, busy_count;
    int busy_device;
    sim_mark_t **busy_marks;
    uint32_t busy_mark_count, busy_mark_capacity;
} sim_mapping_t;

typedef struct sim_free_range {
    sim_node_t node;
    uint64_t size_bytes;
} sim_free_range_t;

// Numbers given out in ranges, from `next` up to `end`, and the ranges that came back.
typedef struct sim_space {
    sim_tree_t free;
    uint64_t base, next, end;
} sim_space_t;

// --- the state ---------------------------------------------------------------------------------

// outside_bytes + context_bytes + used_bytes <= config.memory_bytes.
typedef struct sim_device {
    uint64_t outside_bytes;
    uint64_t used_bytes;
    uint64_t context_bytes; // config.gpu.context_bytes while the device has a context, else 0
    uint32_t contexts;      // on the device
    bool is_lost;
    sim_context_t *primary;
    uint64_t primary_refs;
    unsigned primary_flags;
    uint64_t tail_ns;
    berm_list_t chunks;
    sim_pool_t *default_pool; // NULL until asked for
    sim_pool_t *pool;         // the one cuMemAllocAsync takes from
} sim_device_t;

typedef struct sim_fault {
    berm_list_t node;
    bool matches[SIM_FN_COUNT];
    int result;
    uint64_t seen, first, last; // by number: calls first to last
    uint32_t per_million;       // by chance; 0: by number
    berm_rng_t rng;
} sim_fault_t;

typedef struct sim_state {
    simcuda_config_t config;
    uint64_t generation; // of resets
    bool is_ready, is_init;
    bool is_env_bad;
    uint64_t now_ns, driver_ns, wait_ns;
    uint64_t real_start_ns; // with is_realtime: the real time at which the host's clock was 0
    sim_device_t devices[SIMCUDA_DEVICE_MAX];
    simcuda_ledger_t ledgers[SIM_LEDGERS];
    simcuda_ledger_t ledger_all;
    sim_table_t contexts, streams, events, graphs, execs, memories, pools;
    sim_table_t modules, functions, linkers;
    berm_list_t context_list, captures, gates, callbacks, faults, opened, pool_list, managed;
    // order
    sim_stream_slot_t *slots;
    uint32_t slot_count, slot_capacity; // every clock has slot_capacity entries
    uint64_t *host_clock;
    uint64_t host_version; // moves when host_clock does
    uint64_t pending_ops;  // of all streams
    // addresses
    sim_tree_t reservations, mappings;
    sim_space_t addresses;
    uint64_t next_id;
    // contents
    sim_effect_t **effects; // those whose time is known: a heap, the earliest first
    uint32_t effect_count, effect_capacity;
    uint32_t effects_pending; // those of pending ops
    uint64_t effect_number;
    uint64_t region, region_bytes; // the addresses of backed mode
    sim_space_t file_space;        // of the process's file, in backed mode
    int process_fd;                // the file of memory that has none of its own; -1: none yet
    // accounts
    simcuda_hazard_t *hazards;
    uint64_t hazard_count;
    uint64_t hazard_count_of[SIMCUDA_HAZARD_KIND_COUNT]; // add up to hazard_count
    uint64_t faults_fired;
    uint64_t calls[SIM_FN_COUNT];
    simcuda_counters_t counters;
} sim_state_t;

extern sim_state_t sim;

typedef struct sim_thread {
    uint64_t generation; // of the stack below
    uint64_t number;     // 0: none yet
    uint64_t current[SIM_CURRENT_MAX];
    uint32_t depth;
    int capture_mode;
    bool is_in_callback;
    bool is_in_kernel; // this thread holds the lock, and runs a kernel of backed mode
} sim_thread_t;

extern _Thread_local sim_thread_t sim_thread;
extern atomic_bool sim_is_in_kernel; // some thread holds the lock, and runs a kernel

// --- state.c: entering, leaving, making and destroying the state ---------------------------------

// Takes the lock, counts the call and applies its rules; sim_leave gives the lock back, runs host
// functions that are due, and returns its argument. The pair must be called whatever the result.
BERM_NODISCARD int sim_enter(sim_fn_t fn);
int sim_leave(int result);
bool sim_lock(void); // for control functions: false in a forked child
void sim_unlock(void);
bool sim_thread_number(void); // numbers the calling thread; false: no host memory
void sim_state_destroy(void);
bool sim_state_make(const simcuda_config_t *config);
bool sim_config_is_valid(const simcuda_config_t *config);
// Reads SIMCUDA_*; false, with a line on standard error, when a value makes no sense.
bool sim_config_from_environment(simcuda_config_t *config);
static inline uint64_t sim_id_next(void) {
    return ++sim.next_id;
}

// --- clock.c -------------------------------------------------------------------------------------

void sim_charge(const simcuda_cost_t *cost, uint64_t mappings, uint64_t bytes);
void sim_wait_until(uint64_t ns);
uint64_t sim_time_add(uint64_t ns, uint64_t more); // stops at the end of time
// With is_realtime; nothing happens without. The first is for calls that end in sim_leave, so that
// what has become due is done; the second is the real time at which the host's clock is reached,
// 0 where that is past or near; the third sleeps until then, without the lock.
void sim_real_start(void);
void sim_real_follow(void);
uint64_t sim_real_target(void);
void sim_real_sleep(uint64_t target_ns);

// --- faults.c ------------------------------------------------------------------------------------

int sim_fault_draw(sim_fn_t fn);
void sim_faults_destroy(void);
const char *sim_fn_name(sim_fn_t fn);
const char *sim_fn_symbol(sim_fn_t fn);

// --- ledger.c ------------------------------------------------------------------------------------

simcuda_ledger_t *sim_ledger(int device); // -1: host memory
// Adds (or takes, modulo 2^64) counts to a device's ledger and keeps the peaks.
void sim_ledger_handle(int device, uint64_t count, uint64_t bytes);
void sim_ledger_mapping(int device, uint64_t count, uint64_t bytes);
void sim_ledger_reservation(int device, uint64_t count, uint64_t bytes);
void sim_ledger_allocation(int device, uint64_t count, uint64_t bytes);
void sim_ledger_import(int device, uint64_t count, uint64_t bytes);
void sim_ledger_pool(int device, uint64_t bytes);
void sim_ledger_used(int device, uint64_t bytes);

// --- device.c, context.c -------------------------------------------------------------------------

static inline bool sim_device_is_valid(int device) {
    return device >= 0 && device < sim.config.devices;
}
sim_context_t *sim_context_current(void); // NULL: none
// A new context with its default stream, or NULL: no host memory, or no room on the device.
sim_context_t *sim_context_create(int device, bool is_primary, unsigned flags);
void sim_context_destroy(sim_context_t *context);
// An illegal access that happens at `at_ns`: the next call that sees that time returns it.
void sim_context_fault(sim_context_t *context, uint64_t at_ns);
void sim_device_fault(int device); // the same now, for every context of the device
// The sticky error, if the host's clock has reached it; SUCCESS else.
int sim_context_observe(sim_context_t *context);

// --- order.c: vector clocks ----------------------------------------------------------------------

bool sim_clock_create(uint64_t **clock);
void sim_clock_join(uint64_t *clock, const uint64_t *other, uint32_t count);
void sim_clock_host_join(const uint64_t *other, uint32_t count);
// A slot for a stream; false: no host memory. A slot is given back once the host has seen all its
// work done; the next stream counts on from `last`, so that a count never means two pieces of work.
bool sim_slot_take(uint64_t stream_id, uint32_t *slot);
void sim_slot_give(uint32_t slot, uint64_t last);
sim_mark_t *sim_mark_create(void);
void sim_mark_drop(sim_mark_t *mark);
void sim_mark_stamp(sim_mark_t *mark, const uint64_t *clock);

// --- stream.c, queue.c ---------------------------------------------------------------------------

// The stream a handle names for this thread; NULL with *result set when it names none.
sim_stream_t *sim_stream_get(berm_cu_stream_t handle, int *result);
// An event of the current context; NULL with *result set.
sim_event_t *sim_event_create(unsigned flags, int *result);
void sim_event_free(sim_event_t *event);
sim_stream_t *sim_stream_create(sim_context_t *context, unsigned flags, int priority);
void sim_stream_destroy(sim_stream_t *stream);
void sim_streams_reap(sim_context_t *context);
void sim_streams_thread_exit(uint64_t thread);

typedef struct sim_issue {
    uint64_t duration_ns;
    sim_gate_t *gate;
    sim_mark_t *wait;           // starts after this
    sim_mark_t *mark;           // set to the end; NULL where not wanted
    sim_context_t *wait_all;    // starts after all work of this context
    bool is_kernel;             // may start before the kernel before it has ended (pdl_overlap_ns)
    bool is_copy;               // reaches memory of any device
    const sim_action_t *action; // NULL: none
    uint64_t event;             // of a captured step: the event that its launch records; 0: none
    // results
    uint64_t start_ns, end_ns;
    uint64_t overlaps; // the number of the work before, still running when this starts; 0: none
    bool is_early;     // it touches what that work touches, through another address
    bool reads_stale, writes_stale;
    sim_mark_t *pending; // not NULL: times not known; the mark that will tell
} sim_issue_t;

// Queues work on a stream that is not capturing. OUT_OF_MEMORY leaves all as it was.
BERM_NODISCARD int sim_queue_issue(sim_stream_t *stream, sim_issue_t *issue);
void sim_queue_settle(void); // after a gate opened: gives times to what can have them
void sim_wait_mark(sim_mark_t *mark);
void sim_wait_stream(sim_stream_t *stream);
void sim_wait_context(sim_context_t *context);
void sim_wait_device(int device);
bool sim_mark_is_done(const sim_mark_t *mark);
bool sim_stream_is_done(const sim_stream_t *stream);
bool sim_device_is_busy(int device);
sim_gate_t *sim_gate_create(void);
void sim_gate_open_at(sim_gate_t *gate, uint64_t ns);
void sim_stream_drop_ops(sim_stream_t *stream);
// Gives the last op of the stream, which is pending, its effect.
void sim_stream_add_effect(sim_stream_t *stream, sim_effect_t *effect);

// --- capture.c -----------------------------------------------------------------------------------

int sim_capture_check_unsafe(void);                       // for the calling thread
int sim_capture_check_legacy(const sim_stream_t *stream); // use of the legacy stream
int sim_capture_state(const sim_stream_t *stream); // INVALIDATED of a broken capture, or SUCCESS
int sim_capture_refuse(sim_capture_t *capture, int result); // invalidates; returns result
sim_capture_t *sim_capture_find(uint64_t id);
bool sim_capture_refuse_context(const sim_context_t *context); // true: one was invalidated
int sim_capture_record(sim_stream_t *stream, sim_event_t *event);
int sim_capture_wait(sim_stream_t *stream, sim_event_t *event);
void sim_capture_end_stream(sim_stream_t *stream); // a capturing stream goes away
void sim_capture_destroy(sim_capture_t *capture);
// A step of the graph instead of work now.
int sim_capture_add(sim_stream_t *stream, const sim_issue_t *issue,
                    const simcuda_access_t *accesses, size_t count);

// --- work.c --------------------------------------------------------------------------------------

// Host functions that are due, off the list; run by sim_leave without the lock.
sim_callback_t *sim_callback_take(void);
// Work on a stream, or a step of its capture.
int sim_work_launch(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *accesses,
                    size_t count);
// Work on a stream that does not capture.
int sim_work_issue(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *accesses,
                   size_t count);
// A host function; a mark given with the issue is taken over, also on failure.
int sim_host_function_issue(sim_stream_t *stream, sim_issue_t *issue);
// The time a fill or a copy within the device takes.
uint64_t sim_copy_ns(uint64_t bytes, bool is_host);

// --- contents.c: what work does in backed mode ---------------------------------------------------

// NULL: no host memory.
sim_effect_t *sim_effect_create(const sim_stream_t *stream, const sim_issue_t *issue,
                                const simcuda_access_t *accesses, size_t count);
void sim_effect_queue(sim_effect_t *effect, uint64_t ns); // room was made by sim_effect_create
void sim_effect_act(sim_effect_t *effect, uint64_t ns);   // now, as if it were that time; takes it
void sim_effect_drop(sim_effect_t *effect);               // of a pending op
void sim_effects_run_until(uint64_t ns);
void sim_effects_clear(void);
// All that is due: before memory is taken away.
static inline void sim_effects_run(void) {
    if (BERM_UNLIKELY(sim.effect_count > 0))
        sim_effects_run_until(sim.now_ns);
}

// --- hazard.c, use.c -----------------------------------------------------------------------------

void sim_hazard(simcuda_hazard_kind_t kind, uint64_t addr, const char *format, ...)
    BERM_PRINTF(3, 4);
// The hazards of work `issue` of `stream` on [addr, addr + size): records the use. False: host
// memory ran out, and the use is not recorded in full.
bool sim_use(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *access);
// Whether work of `context` may touch the mapping; `need` is a BERM_CU_MEM_ACCESS_*.
bool sim_mapping_allows_peer(const sim_mapping_t *mapping, const sim_context_t *context,
                             bool is_copy, unsigned need);
static inline bool sim_mapping_allows(const sim_mapping_t *mapping, const sim_context_t *context,
                                      bool is_copy, bool is_write) {
    unsigned need = is_write ? BERM_CU_MEM_ACCESS_READWRITE : BERM_CU_MEM_ACCESS_READ;
    return BERM_LIKELY((mapping->access[context->device] & need) == need) ||
           sim_mapping_allows_peer(mapping, context, is_copy, need);
}
void sim_used_clear(sim_memory_t *memory);

// --- address.c, memory.c, mapping.c, page_table.c, malloc.c --------------------------------------

// Addresses of `bytes`; 0: none left, or no host memory.
uint64_t sim_address_take(uint64_t bytes, uint64_t alignment);
void sim_address_give(uint64_t addr, uint64_t bytes);
static inline bool sim_address_is_device(uint64_t addr) {
    return addr >= sim.addresses.base && addr < sim.addresses.end;
}
// A range of a space: what came back first, or fresh numbers first. 0: none left, or no memory.
uint64_t sim_space_take(sim_space_t *space, uint64_t bytes, uint64_t alignment,
                        bool is_fresh_first);
void sim_space_give(sim_space_t *space, uint64_t start, uint64_t bytes);
void sim_space_clear(sim_space_t *space);

// Memory on a device (-1: host): takes capacity. NULL with *result set. `import` is NULL for new
// memory; else another process's, whose `fd` it takes over on success.
typedef struct sim_import {
    uint64_t identity[2];
    int fd;
    uint64_t file_offset;
} sim_import_t;
sim_memory_t *sim_memory_create(uint64_t bytes, const berm_cu_mem_prop_t *prop, bool has_handle,
                                const sim_import_t *import, int *result);
static inline berm_cu_mem_prop_t sim_device_prop(int device) {
    return (berm_cu_mem_prop_t){.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                .location = {BERM_CU_MEM_LOCATION_DEVICE, device}};
}
void sim_memory_settle(sim_memory_t *memory); // frees it when nothing holds it
void sim_memory_clear(sim_memory_t *memory);  // at reset: host memory only

// The mapping that holds `addr`, or NULL.
sim_mapping_t *sim_mapping_at(uint64_t addr);
sim_mapping_t *sim_mapping_from(uint64_t addr); // or else the next one above
sim_mapping_t *sim_mapping_next(const sim_mapping_t *mapping);
sim_mapping_t *sim_mapping_create(uint64_t addr, uint64_t bytes, sim_memory_t *memory);
void sim_mapping_destroy(sim_mapping_t *mapping); // and settles its memory
void sim_mapping_free(sim_mapping_t *mapping);    // at reset: host memory only
// True, with words on the latest work, if work may still touch it.
bool sim_mapping_is_busy(sim_mapping_t *mapping, char *words, size_t words_size);
bool sim_mapping_add_work(sim_mapping_t *mapping, const sim_stream_t *stream,
                          const sim_issue_t *issue);
// The switches about edits of the page table of `device`: to be called before one.
void sim_page_edit(int device, uint64_t addr, const char *what);
// A size or an address of a VMM call: a multiple of the granule, sizes not 0.
static inline bool sim_is_granular(uint64_t value) {
    return berm__is_aligned(value, sim.config.granule_bytes);
}
sim_reservation_t *sim_reservation_at(uint64_t addr);
// Frees what cuMemAlloc gave `context`; NULL: all, at a reset.
void sim_malloc_free_all(const sim_context_t *context);
int sim_access_check(const berm_cu_mem_access_t *access, size_t count);
// What is said, and done, when memory goes while work may touch it.
void sim_mapping_check_idle(sim_mapping_t *mapping, const char *what);

#endif
