// SPDX-License-Identifier: Apache-2.0
// Generated traces: the same on every machine, within their bounds, in RMM's proportions.
#include "stress/trace/generate.h"

#include "tests/unit/trace_helpers.h"

static trace_t *generate(const trace_generate_options_t *options) {
    th_error[0] = '\0';
    trace_t *trace = trace_generate("random", options, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    return trace;
}

// FNV-1a over everything that makes the trace.
static uint64_t hash_trace(const trace_t *trace) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < trace->event_count; i++) {
        const trace_block_t *block = &trace->blocks[trace->events[i].block];
        uint64_t words[] = {trace->events[i].op, trace->events[i].block, block->size_bytes,
                            trace->streams[block->stream]};
        for (size_t w = 0; w < 4; w++) {
            hash = (hash ^ words[w]) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

Test(generate, the_table_of_kinds_has_names_and_summaries) {
    size_t count;
    const trace_kind_t *kinds = trace_kinds(&count);
    cr_assert(count >= 1 && strcmp(kinds[0].name, "random") == 0);
    for (size_t i = 0; i < count; i++) {
        cr_assert(kinds[i].summary[0] != '\0' && strchr(kinds[i].summary, '\n') == NULL);
    }
}

Test(generate, the_defaults_are_those_of_the_benchmark) {
    trace_t *trace = generate(NULL);
    cr_assert(trace->event_count == 1000 && trace->stream_count == 1);
    cr_assert(strcmp(trace->format, "generated") == 0 && strcmp(trace->path, "random") == 0);
    cr_assert(trace->peak_live_bytes <= BERM_GIB(32));
    cr_assert(trace->peak_live_bytes > BERM_GIB(16), "the cap is reached or nearly so");
    trace_destroy(trace);
}

Test(generate, a_seed_gives_the_same_trace_on_every_machine) {
    trace_generate_options_t options = {
        .operations = 10000, .max_size_bytes = BERM_MIB(64), .seed = 1, .streams = 3};
    trace_t *one = generate(&options);
    trace_t *same = generate(&options);
    options.seed = 2;
    trace_t *other = generate(&options);
    options.seed = 1;
    options.sizes = TRACE_SIZES_LOG;
    trace_t *log = generate(&options);
    cr_assert(hash_trace(one) == hash_trace(same));
    cr_assert(hash_trace(one) != hash_trace(other));
    cr_assert(hash_trace(one) == UINT64_C(0xee3ce186f6fae673), "0x%llx",
              (unsigned long long)hash_trace(one));
    cr_assert(hash_trace(log) == UINT64_C(0x49389d0df6cc2bab), "0x%llx",
              (unsigned long long)hash_trace(log));
    trace_destroy(one);
    trace_destroy(same);
    trace_destroy(other);
    trace_destroy(log);
}

Test(generate, without_pressure_73_percent_are_allocs) {
    trace_generate_options_t options = {
        .operations = 100000, .max_size_bytes = 1000, .live_cap_bytes = BERM_GIB(1)};
    trace_t *trace = generate(&options);
    cr_assert(trace->alloc_count > 72500 && trace->alloc_count < 73500, "%zu", trace->alloc_count);
    cr_assert(trace->alloc_count + trace->free_count == 100000);
    uint64_t sum = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        cr_assert(trace->blocks[i].size_bytes >= 1 && trace->blocks[i].size_bytes <= 1000);
        sum += trace->blocks[i].size_bytes;
    }
    uint64_t mean = sum / trace->block_count;
    cr_assert(mean >= 495 && mean <= 506, "uniform sizes: mean %llu", (unsigned long long)mean);
    trace_destroy(trace);
}

Test(generate, the_cap_on_live_bytes_holds) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        trace_generate_options_t options = {.operations = 5000,
                                            .max_size_bytes = 1000,
                                            .live_cap_bytes = 1000 + seed * 1000,
                                            .seed = seed};
        trace_t *trace = generate(&options);
        cr_assert(trace->peak_live_bytes <= options.live_cap_bytes);
        trace_destroy(trace);
    }
}

Test(generate, log_sizes_fill_every_octave_alike) {
    trace_generate_options_t options = {.operations = 100000,
                                        .max_size_bytes = (1 << 20) - 1,
                                        .live_cap_bytes = BERM_GIB(64),
                                        .sizes = TRACE_SIZES_LOG};
    trace_t *trace = generate(&options);
    size_t octaves[20] = {0};
    for (size_t i = 0; i < trace->block_count; i++) {
        uint64_t size = trace->blocks[i].size_bytes;
        cr_assert(size >= 1 && size <= options.max_size_bytes);
        octaves[63 - __builtin_clzll(size)]++;
    }
    for (size_t i = 0; i < 20; i++) {
        double share = (double)octaves[i] / (double)trace->block_count;
        cr_assert(share > 0.045 && share < 0.055, "octave %zu: %.4f", i, share);
    }
    trace_destroy(trace);
}

Test(generate, every_stream_is_used) {
    trace_generate_options_t options = {.operations = 1000, .max_size_bytes = 10, .streams = 8};
    trace_t *trace = generate(&options);
    cr_assert(trace->stream_count == 8);
    for (size_t i = 0; i < 8; i++) {
        cr_assert(trace->streams[i] < 8);
    }
    trace_destroy(trace);
}

Test(generate, tiny_options_work) {
    trace_generate_options_t options = {
        .operations = 1, .max_size_bytes = 1, .live_cap_bytes = 1, .sizes = TRACE_SIZES_LOG};
    trace_t *trace = generate(&options);
    cr_assert(trace->event_count == 1 && trace->peak_live_bytes == 1);
    trace_destroy(trace);
}

static void refuse(const char *kind, const trace_generate_options_t *options, const char *line) {
    cr_assert(trace_generate(kind, options, th_error, sizeof th_error) == NULL);
    cr_assert(strcmp(th_error, line) == 0, "got:      %s\nexpected: %s", th_error, line);
}

Test(generate, refuses_what_cannot_be) {
    refuse("chaos", NULL, "chaos: no such kind of trace; `berm gen --help` lists them");
    trace_generate_options_t options = {.max_size_bytes = 11, .live_cap_bytes = 10};
    refuse("random", &options,
           "random: the largest size (--max-size) exceeds the cap on live bytes (--live-cap)");
    options = (trace_generate_options_t){.operations = UINT64_MAX};
    refuse("random", &options, "random: more operations than a trace holds (2^31)");
    options = (trace_generate_options_t){.live_cap_bytes = UINT64_MAX};
    refuse("random", &options, "random: the cap on live bytes (--live-cap) is larger than 2^62");
    options = (trace_generate_options_t){.sizes = (trace_size_law_t)7};
    refuse("random", &options, "random: no such law of sizes");
}
