// SPDX-License-Identifier: Apache-2.0
// The rules of a verdict: see verdict.h. Each says whether it fits, with its evidence; the first
// that fits is the verdict, and it is one of high confidence if no other does. Thresholds are
// shares, so that they hold for devices of any size; stress/cases has a program for each kind.
//
// Locks: none.
#include "record/verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "record/history.h"

// What the rules look at.
typedef struct look {
    const berm_record_t *record;
    const berm_record_device_t *device;
    const berm_record_event_t *failure;
    berm_history_t history;
    uint64_t live, wanted;
    uint64_t room;    // what berm may have: the limit, or what it holds and the driver has free
    uint64_t outside; // held by others, the context among them
} look_t;

const char *berm__verdict_name(berm_verdict_kind_t kind) {
    static const char *const names[] = {
        "nothing failed", "real shortage",        "peak",    "leak",        "hidden retention",
        "fragmentation",  "cache held elsewhere", "outside", "mislabelled", "illegal access"};
    _Static_assert(BERM_ARRAY_LENGTH(names) == BERM_VERDICT_COUNT, "a name for each kind");
    return kind < BERM_VERDICT_COUNT ? names[kind] : "unknown";
}

BERM_PRINTF(2, 3) static void evidence(berm_verdict_t *verdict, const char *format, ...) {
    va_list arguments;
    if (verdict->line_count == BERM_VERDICT_LINES)
        return;
    va_start(arguments, format);
    (void)vsnprintf(verdict->lines[verdict->line_count++], BERM_VERDICT_LINE_BYTES, format,
                    arguments);
    va_end(arguments);
}

static void next_step(berm_verdict_t *verdict, const char *text) {
    (void)snprintf(verdict->next, sizeof verdict->next, "%s", text);
}

typedef struct bytes_text {
    char at[32];
} bytes_text_t;

static const char *text_of(uint64_t bytes, bytes_text_t *text) {
    if (bytes < BERM_MIB(1) && bytes > 0)
        (void)snprintf(text->at, sizeof text->at, "%" PRIu64 " byte%s", bytes, BERM_PLURAL(bytes));
    else
        (void)snprintf(text->at, sizeof text->at, "%.1f MiB", (double)bytes / (1 << 20));
    return text->at;
}

#define TEXT(bytes) text_of((bytes), &(bytes_text_t){{0}})

// "12 blocks of at most 4.0 MiB, tag 'x'": a kind of blocks.
static void kind_text(const look_t *look, uint64_t kind, uint64_t blocks, char text[160]) {
    const char *tag = look->record->tags[berm__history_tag(kind)];
    (void)snprintf(text, 160, "%" PRIu64 " block%s of at most %s%s%s%s", blocks,
                   BERM_PLURAL(blocks), TEXT(berm__history_size(kind)),
                   *tag != '\0' ? ", tag '" : "", tag, *tag != '\0' ? "'" : "");
}

// --- not device memory ---------------------------------------------------------------------------

// By the value of berm_status_t that the failure has (include/berm.h).
enum {
    STATUS_OUT_OF_DEVICE_MEMORY = 10,
    STATUS_LIMIT = 11,
    STATUS_OUT_OF_HOST_MEMORY = 12,
    STATUS_OUT_OF_ADDRESSES = 13,
    STATUS_CEILING = 14,
};

static bool is_mislabelled(const look_t *look, berm_verdict_t *verdict) {
    uint64_t status = look->failure->number;
    if (status == STATUS_OUT_OF_DEVICE_MEMORY || status == STATUS_LIMIT)
        return false;
    const char *what = status == STATUS_OUT_OF_HOST_MEMORY ? "host memory"
                       : status == STATUS_OUT_OF_ADDRESSES ? "device addresses"
                       : status == STATUS_CEILING          ? "handles, mappings or files"
                                                           : "something else than memory";
    evidence(verdict, "%s was wanted and %s ran out, while the driver has %s free",
             TEXT(look->wanted), what, TEXT(look->device->figures.driver_free));
    next_step(verdict, status == STATUS_OUT_OF_HOST_MEMORY
                           ? "give the process more host memory, or pin less of it"
                       : status == STATUS_OUT_OF_ADDRESSES
                           ? "use fewer streams and pools, each of which has addresses of its own"
                       : status == STATUS_CEILING
                           ? "raise the option growth_handle, and the process's limit of files "
                             "(ulimit -n)"
                           : "see the line of the failure: berm_error_message");
    return true;
}

// --- enough, but not to be had -------------------------------------------------------------------

// Where free memory is, in bytes.
typedef struct pieces {
    uint64_t slots;     // slots of size classes, and what they round up
    uint64_t awaited;   // freed, and some stream may still use it
    uint64_t held;      // freed, and pinned
    uint64_t beside;    // in granules that a live block shares
    uint64_t elsewhere; // whole granules of pools of the caller's other than the request's
    uint64_t whole;     // all other whole granules
} pieces_t;

// Whole granules in [start, end).
static uint64_t whole_bytes(uint64_t start, uint64_t end, uint64_t granule) {
    uint64_t first = (start + granule - 1) / granule * granule, last = end / granule * granule;
    return last > first ? last - first : 0;
}

static void segment_pieces(const look_t *look, const berm_record_segment_t *segment,
                           pieces_t *pieces) {
    const berm_record_event_t *failure = look->failure;
    uint64_t granule = berm__max_u64(look->device->figures.granule, 1);
    bool is_other =
        (segment->pool_high != 0 || segment->pool_low != 0) &&
        (segment->pool_high != failure->pool_high || segment->pool_low != failure->pool_low);
    for (uint64_t i = 0; i < segment->block_count; i++) {
        const berm_record_block_t *block = &look->device->blocks[segment->block_first + i];
        uint64_t size = block->size_bytes;
        if (block->state == BERM_RECORD_AWAITED)
            pieces->awaited += size;
        else if (block->state == BERM_RECORD_HELD)
            pieces->held += size;
        else if (block->is_small)
            pieces->slots += size - block->requested_bytes;
        else if (block->state == BERM_RECORD_FREE_PIECE) {
            uint64_t whole = whole_bytes(block->addr, block->addr + size, granule);
            *(is_other ? &pieces->elsewhere : &pieces->whole) += whole;
            *(is_other ? &pieces->elsewhere : &pieces->beside) += size - whole;
        }
    }
}

static pieces_t pieces_make(const look_t *look) {
    pieces_t pieces = {0};
    for (uint64_t i = 0; i < look->device->segment_count; i++)
        segment_pieces(look, &look->device->segments[i], &pieces);
    return pieces;
}

static bool is_in_pieces(const look_t *look) {
    return look->live + look->wanted <= look->room;
}

static bool is_cache_elsewhere(const look_t *look, berm_verdict_t *verdict) {
    pieces_t pieces = pieces_make(look);
    uint64_t free = look->device->figures.reserved - look->live;
    if (!is_in_pieces(look) || pieces.elsewhere < free / 2 || pieces.elsewhere < look->wanted / 2)
        return false;
    evidence(verdict, "%s is free in other pools, which keep it; %s was wanted",
             TEXT(pieces.elsewhere), TEXT(look->wanted));
    evidence(verdict, "what lives (%s) and what was wanted would fit into the %s there are",
             TEXT(look->live), TEXT(look->room));
    next_step(verdict,
              "release pools that are done with (berm_pool_release; in PyTorch, graphs and "
              "MemPools that are no longer used), or let graphs share a pool");
    return true;
}

static bool is_fragmentation(const look_t *look, berm_verdict_t *verdict) {
    if (!is_in_pieces(look))
        return false;
    pieces_t pieces = pieces_make(look);
    const struct {
        uint64_t bytes;
        const char *cause, *next;
    } causes[] = {
        {pieces.whole,
         look->device->figures.moves_pages != 0
             ? "whole pages of plain or pinned memory, which do not move"
             : "whole pages that do not move, as remap is off or memory is plain",
         look->device->figures.moves_pages != 0
             ? "pin less (berm_pin, exports), and take plain pools for what needs them only"
             : "let pages move: remap:passed and backing:auto (they are the defaults)"},
        {pieces.beside, "beside live blocks, in pages that they share",
         "allocate what lives long before what comes and goes, or in a pool of its own"},
        {pieces.slots, "slots of size classes: partly filled slabs and rounding",
         "free small blocks of one kind together, or ask for fewer and larger ones"},
        {pieces.awaited, "freed, but streams may still use it",
         "free on the stream that used the block last, or wait for the other stream first"},
        {pieces.held, "freed, but pinned (berm_pin)",
         "end pins of what is not registered any more"},
    };
    size_t most = 0;
    for (size_t i = 1; i < BERM_ARRAY_LENGTH(causes); i++)
        if (causes[i].bytes > causes[most].bytes)
            most = i;
    evidence(verdict,
             "what lives (%s) and what was wanted (%s) would fit into the %s there are, but not "
             "what is free, in pieces",
             TEXT(look->live), TEXT(look->wanted), TEXT(look->room));
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(causes); i++)
        if (i == most || causes[i].bytes > causes[most].bytes / 10)
            evidence(verdict, "%s%s: %s", i == most ? "cause: " : "also: ", TEXT(causes[i].bytes),
                     causes[i].cause);
    next_step(verdict, causes[most].next);
    return true;
}

// --- not enough ----------------------------------------------------------------------------------

// Blocks of the kind were born in nearly every part of the events and live, while a third of all
// that was allocated meanwhile was freed: a program that repeats itself, but for these.
static bool kind_grows(const look_t *look, const berm_history_kind_t *kind) {
    unsigned parts = 0;
    uint64_t born = 0;
    for (unsigned i = 0; i < BERM_HISTORY_PARTS; i++) {
        parts += kind->born_blocks[i] > 0;
        born += kind->born_bytes[i];
    }
    return parts >= BERM_HISTORY_PARTS - 2 && born >= look->live / 4 &&
           look->history.frees >= look->history.allocs / 3;
}

static bool is_leak(const look_t *look, berm_verdict_t *verdict) {
    uint64_t best = UINT64_MAX, best_bytes = 0;
    for (uint64_t i = 0; i < look->history.kind_count; i++) {
        const berm_history_kind_t *kind = &look->history.kinds[i];
        if (kind->live_bytes > best_bytes && kind_grows(look, kind)) {
            best = i;
            best_bytes = kind->live_bytes;
        }
    }
    if (best == UINT64_MAX)
        return false;
    char text[160];
    const berm_history_kind_t *kind = &look->history.kinds[best];
    uint64_t born = kind->live_blocks - kind->old_blocks;
    kind_text(look, best, kind->live_blocks, text);
    evidence(verdict,
             "%s live, %s of %s; %" PRIu64 " of them came one after the other during the "
             "%" PRIu64 " events recorded",
             text, TEXT(kind->live_bytes), TEXT(look->live), born, look->device->event_count);
    evidence(verdict, "meanwhile %" PRIu64 " requests were made and %" PRIu64 " blocks freed",
             look->history.allocs, look->history.frees);
    next_step(verdict,
              "find who keeps them: set a mark before a request or a step and diff after it "
              "(berm_mark, berm_diff), and push tags around the parts of the program "
              "(berm_tag_push)");
    return true;
}

// Blocks that are older by far than their like live to be, and none that came lately.
static bool is_hidden_retention(const look_t *look, berm_verdict_t *verdict) {
    uint64_t best = UINT64_MAX, best_bytes = 0;
    for (uint64_t i = 0; i < look->history.kind_count; i++) {
        const berm_history_kind_t *kind = &look->history.kinds[i];
        uint64_t early = kind->old_bytes + kind->born_bytes[0] + kind->born_bytes[1];
        uint64_t mean = kind->frees > 0 ? kind->lifetimes / kind->frees : 0;
        bool come_and_go = kind->frees >= 8 && mean * 20 < look->device->event_count;
        if (come_and_go && early >= look->live / 5 && early >= kind->live_bytes / 2 &&
            early > best_bytes) {
            best = i;
            best_bytes = early;
        }
    }
    if (best == UINT64_MAX)
        return false;
    char text[160];
    const berm_history_kind_t *kind = &look->history.kinds[best];
    uint64_t blocks = kind->old_blocks + kind->born_blocks[0] + kind->born_blocks[1];
    kind_text(look, best, blocks, text);
    evidence(verdict, "%s live since the first quarter of the events or before, %s of %s", text,
             TEXT(best_bytes), TEXT(look->live));
    evidence(verdict,
             "%" PRIu64 " others of this kind were freed, after %" PRIu64 " events in the mean, of "
             "%" PRIu64,
             kind->frees, kind->lifetimes / kind->frees, look->device->event_count);
    next_step(verdict,
              "find the reference that outlived its use: a variable of an enclosing scope, "
              "an exception's traceback, an autograd graph, a hook, a log");
    return true;
}

static bool is_limited(const look_t *look) {
    const berm_record_figures_t *figures = &look->device->figures;
    return figures->limit < figures->reserved + figures->driver_free;
}

static bool is_outside(const look_t *look, berm_verdict_t *verdict) {
    const berm_record_figures_t *figures = &look->device->figures;
    uint64_t context = berm__min_u64(look->outside, figures->memory / 20);
    if (is_limited(look) || look->outside < figures->memory / 5 ||
        look->live + look->wanted > look->room + look->outside - context)
        return false;
    evidence(verdict, "%s of the device's %s is held outside berm; berm holds %s",
             TEXT(look->outside), TEXT(figures->memory), TEXT(figures->reserved));
    evidence(verdict, "without it the %s wanted would fit", TEXT(look->wanted));
    next_step(verdict,
              "end the other processes (nvidia-smi lists them), or find what else in this "
              "process takes memory: libraries' workspaces, another allocator, cudaMalloc");
    return true;
}

// Most of what lives came in the last tenth of the events, and what lived mostly leaves room.
static bool is_peak(const look_t *look, berm_verdict_t *verdict) {
    uint64_t count = look->device->event_count;
    uint64_t median = berm__history_median(&look->history);
    uint64_t before = look->history.live[count - count / 10];
    if (count < 20 || look->live <= median || look->live - median < look->live * 3 / 10 ||
        look->live <= before || look->live - before < (look->live - median) * 6 / 10 ||
        median + look->wanted > look->room)
        return false;
    uint64_t best = 0, best_bytes = 0;
    for (uint64_t i = 0; i < look->history.kind_count; i++) {
        uint64_t late = look->history.kinds[i].born_bytes[BERM_HISTORY_PARTS - 1];
        if (late > best_bytes) {
            best = i;
            best_bytes = late;
        }
    }
    char text[160];
    kind_text(look, best, look->history.kinds[best].born_blocks[BERM_HISTORY_PARTS - 1], text);
    evidence(verdict,
             "%s lives now, %s mostly did; it rose by %s within the last %" PRIu64 " of %" PRIu64
             " events",
             TEXT(look->live), TEXT(median), TEXT(look->live - before), count / 10, count);
    evidence(verdict, "most of the rise: %s, %s", text, TEXT(best_bytes));
    evidence(verdict, "it would have fitted with %s less of it",
             TEXT(look->live + look->wanted - look->room));
    next_step(verdict,
              "shave the peak: a smaller batch or shorter input at that place, checkpointing, "
              "or freeing what is not needed before it");
    return true;
}

static bool is_real_shortage(const look_t *look, berm_verdict_t *verdict) {
    const berm_record_figures_t *figures = &look->device->figures;
    if (is_limited(look))
        evidence(verdict, "%s lives, %s was wanted, and the limit is %s", TEXT(look->live),
                 TEXT(look->wanted), TEXT(figures->limit));
    else
        evidence(verdict, "%s lives, %s was wanted, and the device has %s for berm",
                 TEXT(look->live), TEXT(look->wanted), TEXT(look->room));
    evidence(verdict, "%s is missing, or %.2f times as much memory is needed",
             TEXT(look->live + look->wanted - berm__min_u64(look->room, look->live + look->wanted)),
             (double)(look->live + look->wanted) / (double)berm__max_u64(look->room, 1));
    next_step(verdict, is_limited(look)
                           ? "raise the limit, or need less: a smaller batch or model, "
                             "lower precision, offloading"
                           : "need less: a smaller batch or model, lower precision, "
                             "offloading; or a larger device");
    return true;
}

// --- all -----------------------------------------------------------------------------------------

typedef bool (*rule_fn)(const look_t *look, berm_verdict_t *verdict);

static const struct {
    berm_verdict_kind_t kind;
    rule_fn fits;
    bool is_alone; // where it fits no other is looked at
} rules[] = {
    {BERM_VERDICT_MISLABELLED, is_mislabelled, true},
    {BERM_VERDICT_CACHE_ELSEWHERE, is_cache_elsewhere, true},
    {BERM_VERDICT_FRAGMENTATION, is_fragmentation, true},
    {BERM_VERDICT_LEAK, is_leak, false},
    {BERM_VERDICT_HIDDEN_RETENTION, is_hidden_retention, false},
    {BERM_VERDICT_OUTSIDE, is_outside, false},
    {BERM_VERDICT_PEAK, is_peak, false},
    {BERM_VERDICT_REAL_SHORTAGE, is_real_shortage, false},
};

// The last failure of a device, and the device of the latest; NULL: none.
static const berm_record_event_t *failure_find(const berm_record_t *record,
                                               const berm_record_device_t **device) {
    const berm_record_event_t *last = NULL;
    for (unsigned i = 0; i < record->device_count; i++)
        for (uint64_t at = record->devices[i].event_count; at-- > 0;) {
            const berm_record_event_t *event = &record->devices[i].events[at];
            if (event->kind != BERM_RECORD_FAIL)
                continue;
            if (last == NULL || event->time_ns >= last->time_ns) {
                last = event;
                *device = &record->devices[i];
            }
            break;
        }
    return last;
}

static void look_fill(look_t *look) {
    const berm_record_figures_t *figures = &look->device->figures;
    look->wanted = look->failure->size_bytes;
    look->live = look->history.live[look->device->event_count];
    look->room = berm__min_u64(figures->limit, figures->reserved + figures->driver_free);
    uint64_t known = figures->reserved + figures->driver_free;
    look->outside = figures->memory > known ? figures->memory - known : 0;
}

// The first rule that fits. What is short of memory may be so for several reasons; those that fit
// too are what it may be.
static void rules_apply(const look_t *look, berm_verdict_t *verdict) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rules); i++) {
        berm_verdict_t other = {0};
        bool is_first = verdict->kind == BERM_VERDICT_NONE;
        if (!rules[i].fits(look, is_first ? verdict : &other))
            continue;
        if (is_first)
            verdict->kind = rules[i].kind;
        else if (rules[i].kind != BERM_VERDICT_REAL_SHORTAGE)
            verdict->may_be[rules[i].kind] = true;
        if (rules[i].is_alone)
            return;
    }
}

bool berm__verdict_find(const berm_record_t *record, berm_verdict_t *verdict) {
    look_t look = {.record = record};
    memset(verdict, 0, sizeof *verdict);
    verdict->is_high = true;
    look.failure = failure_find(record, &look.device);
    if (look.failure == NULL) {
        evidence(verdict, "no request failed among the events recorded");
        next_step(verdict, "record the program until it fails (berm record)");
        return true;
    }
    if (!berm__history_make(&look.history, look.device))
        return false;
    look_fill(&look);
    verdict->device = look.device->ordinal;
    verdict->wanted_bytes = look.wanted;
    rules_apply(&look, verdict);
    for (unsigned i = 0; i < BERM_VERDICT_COUNT; i++)
        verdict->is_high = verdict->is_high && !verdict->may_be[i];
    bool is_short = verdict->kind == BERM_VERDICT_LEAK ||
                    verdict->kind == BERM_VERDICT_HIDDEN_RETENTION ||
                    verdict->kind == BERM_VERDICT_PEAK;
    // What the ring has lost would be needed to tell these apart for certain.
    if (is_short && look.device->event_count < 100)
        verdict->is_high = false;
    berm__history_destroy(&look.history);
    return true;
}

// --- an address ----------------------------------------------------------------------------------

// The last event of a block that covered the address.
static const berm_record_event_t *event_find(const berm_record_device_t *device, uint64_t addr) {
    for (uint64_t i = device->event_count; i-- > 0;) {
        const berm_record_event_t *event = &device->events[i];
        if (event->kind <= BERM_RECORD_FREE && addr >= event->addr &&
            addr - event->addr < event->size_bytes)
            return event;
    }
    return NULL;
}

static void address_history(const berm_record_t *record, const berm_record_device_t *device,
                            uint64_t addr, berm_verdict_t *verdict) {
    const berm_record_event_t *event = event_find(device, addr);
    if (event == NULL)
        return;
    // A free has its own thread's tag: the block's is that of its request.
    const berm_record_event_t *request = event;
    while (request > device->events &&
           (request->kind != BERM_RECORD_ALLOC || request->addr != event->addr))
        request--;
    bool has_request = request->kind == BERM_RECORD_ALLOC && request->addr == event->addr;
    const char *tag = record->tags[has_request ? request->tag : 0];
    evidence(verdict,
             "it was %s %.3f ms before the end by thread %" PRIu32 ", on stream 0x%" PRIx64
             "%s%s%s: byte %" PRIu64 " of %" PRIu64,
             event->kind == BERM_RECORD_FREE ? "freed" : "allocated",
             (double)(record->now_ns - berm__min_u64(event->time_ns, record->now_ns)) / 1e6,
             event->thread, (uint64_t)event->stream, *tag != '\0' ? ", tag '" : "", tag,
             *tag != '\0' ? "'" : "", addr - event->addr, event->size_bytes);
}

// The live block that ends last at or before the address, within a granule.
static const berm_record_block_t *block_before(const berm_record_device_t *device, uint64_t addr) {
    const berm_record_block_t *best = NULL;
    for (uint64_t i = 0; i < device->block_count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        uint64_t end = block->addr + block->requested_bytes;
        if (block->state == BERM_RECORD_LIVE && end <= addr && addr - end < BERM_MIB(2) &&
            (best == NULL || end > best->addr + best->requested_bytes))
            best = block;
    }
    return best;
}

static bool address_in_blocks(const berm_record_device_t *device, uint64_t addr,
                              berm_verdict_t *verdict) {
    for (uint64_t i = 0; i < device->block_count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        if (addr < block->addr || addr - block->addr >= block->size_bytes)
            continue;
        bool is_inside = addr - block->addr < block->requested_bytes;
        if (block->state == BERM_RECORD_LIVE && is_inside) {
            evidence(verdict,
                     "address 0x%" PRIx64 " is in a live block: byte %" PRIu64 " of %" PRIu64
                     ", so this access was legal",
                     addr, addr - block->addr, block->requested_bytes);
            return true;
        }
        evidence(verdict, "address 0x%" PRIx64 " is in %s", addr,
                 block->state == BERM_RECORD_LIVE ? "a block's memory, beyond what was asked for"
                 : block->state == BERM_RECORD_AWAITED ? "a block that was freed, and is awaited"
                                                       : "memory that is free");
        return false;
    }
    evidence(verdict, "address 0x%" PRIx64 " has no memory behind it", addr);
    return false;
}

void berm__verdict_address(const berm_record_t *record, uint64_t addr, berm_verdict_t *verdict) {
    memset(verdict, 0, sizeof *verdict);
    verdict->kind = BERM_VERDICT_ILLEGAL_ACCESS;
    for (unsigned i = 0; i < record->device_count; i++) {
        const berm_record_device_t *device = &record->devices[i];
        bool is_mapped = false;
        for (uint64_t at = 0; at < device->segment_count; at++)
            is_mapped |= addr >= device->segments[at].addr &&
                         addr - device->segments[at].addr < device->segments[at].size_bytes;
        const berm_record_event_t *event = event_find(device, addr);
        const berm_record_block_t *before = block_before(device, addr);
        if (!is_mapped && event == NULL && before == NULL)
            continue;
        verdict->device = device->ordinal;
        bool is_legal = address_in_blocks(device, addr, verdict);
        address_history(record, device, addr, verdict);
        if (!is_legal && event == NULL && before != NULL)
            evidence(verdict,
                     "%" PRIu64 " bytes past the end of the live block at 0x%" PRIx64 " of %" PRIu64
                     " bytes",
                     addr - before->addr - before->requested_bytes, before->addr,
                     before->requested_bytes);
        verdict->kind = is_legal ? BERM_VERDICT_NONE : BERM_VERDICT_ILLEGAL_ACCESS;
        verdict->is_high = !is_legal && (event != NULL || before != NULL);
        next_step(verdict, is_legal        ? "look at the order of streams instead"
                           : event != NULL ? "use after free: free the block after the last kernel "
                                             "that uses it, on its stream, or record that stream"
                                           : "an overrun: check the sizes of the kernel that "
                                             "writes the block before the address");
        return;
    }
    evidence(verdict, "address 0x%" PRIx64 " is near nothing that berm has or had", addr);
    next_step(verdict, "look at other allocators, and at pointers of the host");
}
