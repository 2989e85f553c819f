// SPDX-License-Identifier: Apache-2.0
// Kinds of generated traces: their stated figures, that they are well-formed with every option and
// number of streams, what repeats and what changes, and that berm replays each without a hazard.
#include "stress/baselines/baselines.h"
#include "stress/replay.h"
#include "stress/trace/generate.h"
#include "tests/unit/trace_helpers.h"

// Shorter than the defaults, and with work for 16 streams.
typedef struct short_kind {
    const char *name;
    trace_generate_options_t options;
    uint64_t replay_requests; // 0: as `options`; checking everything after each event takes long
} short_kind_t;

static const short_kind_t short_kinds[] = {
    {"random",
     {.operations = 800,
      .max_size_bytes = BERM_MIB(64),
      .live_cap_bytes = BERM_GIB(1),
      .lag_events = 50},
     0},
    {"gpt-train", {.layers = 4, .hidden = 256, .micro_batches = 8, .iterations = 1}, 0},
    {"gpt-train",
     {.layers = 4, .hidden = 128, .iterations = 1, .recompute = true, .moe_pct = 50},
     0},
    {"gpt-train", {.layers = 3, .hidden = 256, .iterations = 1, .stages = 4, .offload = true}, 0},
    {"llm-serve", {.requests = 40, .live_cap_bytes = BERM_GIB(17), .answer_tokens = 20}, 3},
    {"llm-serve",
     {.requests = 40,
      .kv = TRACE_KV_BLOCKS,
      .chunk_tokens = 4000,
      .no_prefix = true,
      .answer_tokens = 20},
     3},
    {"diffusion", {.requests = 16, .steps = 1}, 2},
    {"multi-model", {.requests = 35, .live_cap_bytes = BERM_GIB(15)}, 3},
};

static trace_t *generate(const char *kind, const trace_generate_options_t *options) {
    th_error[0] = '\0';
    trace_t *trace = trace_generate(kind, options, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace_check(trace, th_error, sizeof th_error) == 0, "%s: %s", kind, th_error);
    return trace;
}

static bool traces_equal(const trace_t *a, const trace_t *b) {
    if (a->event_count != b->event_count || a->block_count != b->block_count)
        return false;
    for (size_t i = 0; i < a->event_count; i++)
        if (a->events[i].op != b->events[i].op || a->events[i].block != b->events[i].block)
            return false;
    for (size_t i = 0; i < a->block_count; i++)
        if (a->blocks[i].size_bytes != b->blocks[i].size_bytes ||
            a->blocks[i].stream != b->blocks[i].stream)
            return false;
    return true;
}

static size_t deferred(const trace_t *trace) {
    size_t count = 0;
    for (size_t i = 0; i < trace->block_count; i++)
        count += trace->blocks[i].is_deferred;
    return count;
}

Test(generate_kinds, have_the_figures_that_help_states) {
    size_t count;
    const trace_kind_t *kinds = trace_kinds(&count);
    cr_assert(count == 5);
    for (size_t i = 0; i < count; i++) {
        trace_t *trace = generate(kinds[i].name, NULL);
        cr_assert(trace->event_count == kinds[i].events, "%s: %zu events", kinds[i].name,
                  trace->event_count);
        cr_assert(trace->peak_live_bytes == kinds[i].peak_live_bytes, "%s: peak %llu",
                  kinds[i].name, (unsigned long long)trace->peak_live_bytes);
        cr_assert(trace_live_end_bytes(trace) == kinds[i].live_end_bytes, "%s: end %llu",
                  kinds[i].name, (unsigned long long)trace_live_end_bytes(trace));
        cr_assert(trace->stream_count == 1 && deferred(trace) == 0);
        trace_destroy(trace);
    }
}

Test(generate_kinds, are_well_formed_on_1_4_and_16_streams) {
    static const uint64_t streams[] = {1, 4, 16};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(short_kinds); i++) {
        for (size_t j = 0; j < 3; j++) {
            trace_generate_options_t options = short_kinds[i].options;
            options.streams = streams[j];
            trace_t *trace = generate(short_kinds[i].name, &options);
            // A stream of a model that nobody calls is missing.
            cr_assert(trace->stream_count <= streams[j] &&
                          trace->stream_count * 4 >= streams[j] * 3,
                      "%s %zu: %zu streams", short_kinds[i].name, i, trace->stream_count);
            cr_assert((deferred(trace) > 0) == (streams[j] > 1), "%s %zu: %zu blocks that lag",
                      short_kinds[i].name, i, deferred(trace));
            trace_destroy(trace);
        }
    }
}

Test(generate_kinds, a_seed_gives_the_same_and_another_another) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(short_kinds); i++) {
        trace_generate_options_t options = short_kinds[i].options;
        options.streams = 4;
        trace_t *one = generate(short_kinds[i].name, &options);
        trace_t *same = generate(short_kinds[i].name, &options);
        options.seed = 7;
        trace_t *other = generate(short_kinds[i].name, &options);
        cr_assert(traces_equal(one, same), "%s %zu", short_kinds[i].name, i);
        cr_assert(!traces_equal(one, other), "%s %zu", short_kinds[i].name, i);
        trace_destroy(one);
        trace_destroy(same);
        trace_destroy(other);
    }
}

// Of the last iteration's requests, how many differ in size from the one before, in percent. Both
// have `per_iteration` blocks and end with the trace.
static double changed_pct(const trace_t *trace, size_t per_iteration) {
    size_t changed = 0, last = trace->block_count - per_iteration;
    for (size_t i = 0; i < per_iteration; i++)
        changed += trace->blocks[last + i].size_bytes !=
                   trace->blocks[last - per_iteration + i].size_bytes;
    return 100.0 * (double)changed / (double)per_iteration;
}

Test(generate_kinds, iterations_are_alike_but_for_the_share_that_changes) {
    for (size_t i = 1; i < BERM_ARRAY_LENGTH(short_kinds); i++) {
        // Where live bytes decide what happens, other sizes change the order too.
        bool reacts = short_kinds[i].options.live_cap_bytes != 0;
        trace_generate_options_t options = short_kinds[i].options;
        options.iterations = 2;
        trace_t *two = generate(short_kinds[i].name, &options);
        options.iterations = 3;
        trace_t *three = generate(short_kinds[i].name, &options);
        options.iterations = 4;
        trace_t *four = generate(short_kinds[i].name, &options);
        size_t blocks = four->block_count - three->block_count;
        cr_assert(three->block_count - two->block_count == blocks && blocks > 100);
        cr_assert(changed_pct(four, blocks) == 0, "%s %zu: %.2f %%", short_kinds[i].name, i,
                  changed_pct(four, blocks));
        cr_assert(trace_live_end_bytes(two) == trace_live_end_bytes(three));
        cr_assert(two->peak_live_bytes == four->peak_live_bytes || reacts);
        options.change_pct = 5;
        trace_t *changed = generate(short_kinds[i].name, &options);
        if (!reacts) {
            // 5 % of one and 5 % of the other.
            double pct = changed_pct(changed, blocks);
            cr_assert(pct > 7 && pct < 12.5, "%s %zu: %.2f %%", short_kinds[i].name, i, pct);
            cr_assert(changed->block_count == four->block_count);
        }
        cr_assert(trace_live_end_bytes(changed) >= trace_live_end_bytes(four) * 9 / 10);
        trace_destroy(two);
        trace_destroy(three);
        trace_destroy(four);
        trace_destroy(changed);
    }
}

Test(generate_kinds, llm_serve_and_multi_model_stay_below_their_cap) {
    trace_generate_options_t options = {.requests = 100, .live_cap_bytes = BERM_GIB(17)};
    trace_t *trace = generate("llm-serve", &options);
    cr_assert(trace->peak_live_bytes <= BERM_GIB(17));
    cr_assert(trace->peak_live_bytes > BERM_GIB(31) / 2, "the cap is reached or nearly so");
    trace_destroy(trace);
    options.live_cap_bytes = BERM_GIB(20);
    trace = generate("multi-model", &options);
    cr_assert(trace->peak_live_bytes <= BERM_GIB(20));
    cr_assert(trace->peak_live_bytes > BERM_GIB(17));
    trace_destroy(trace);
}

Test(generate_kinds, training_needs_less_with_recompute_offload_or_stages_apart) {
    trace_generate_options_t options = {.layers = 12, .hidden = 1024, .iterations = 1};
    trace_t *plain = generate("gpt-train", &options);
    options.recompute = true;
    trace_t *recompute = generate("gpt-train", &options);
    options.recompute = false;
    options.offload = true;
    trace_t *offload = generate("gpt-train", &options);
    options.offload = false;
    options.stages = 4;
    trace_t *stages = generate("gpt-train", &options);
    cr_assert(recompute->peak_live_bytes < plain->peak_live_bytes * 9 / 10);
    cr_assert(offload->peak_live_bytes < plain->peak_live_bytes * 9 / 10);
    cr_assert(stages->peak_live_bytes > plain->peak_live_bytes * 3 / 2, "4 in flight");
    trace_destroy(plain);
    trace_destroy(recompute);
    trace_destroy(offload);
    trace_destroy(stages);
}

static void replay(const trace_t *trace, const char *conf) {
    stress_replay_options_t options;
    stress_replay_options_default(&options);
    options.ops = &stress_berm_ops;
    options.conf = conf;
    options.check = STRESS_CHECK_FULL;
    stress_replay_result_t r;
    int status = stress_replay(trace, &options, &r, th_error, sizeof th_error);
    cr_assert(status == 0, "%s", th_error);
    cr_assert(stress_replay_is_good(&r), "%s: %s %s %s %s", trace->path, conf, r.failure,
              r.first_hazard, r.first_check_failure);
    cr_assert(r.hazards == 0 && r.peak_live_bytes == trace->peak_live_bytes);
    stress_replay_result_destroy(&r);
}

static void replay_all(uint64_t streams, const char *conf) {
    const stress_device_options_t device = {.name = "sim", .capacity_bytes = BERM_GIB(80)};
    cr_assert(stress_device_open(&device, th_error, sizeof th_error) == 0, "%s", th_error);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(short_kinds); i++) {
        trace_generate_options_t options = short_kinds[i].options;
        options.streams = streams;
        if (short_kinds[i].replay_requests != 0)
            options.requests = short_kinds[i].replay_requests;
        trace_t *trace = generate(short_kinds[i].name, &options);
        replay(trace, conf);
        trace_destroy(trace);
    }
    stress_device_close();
}

Test(generate_kinds, berm_replays_each_on_one_stream) {
    replay_all(1, "");
}

Test(generate_kinds, berm_replays_each_on_4_streams) {
    replay_all(4, "remap:alias");
}

Test(generate_kinds, berm_replays_each_on_16_streams) {
    replay_all(16, "headroom:0");
}

Test(generate_kinds, refuses_what_a_kind_does_not_take) {
    static const struct {
        const char *kind, *line;
        trace_generate_options_t options;
    } cases[] = {
        {"random", "random: takes no --iterations; see berm gen --help", {.iterations = 2}},
        {"random", "random: takes no --change; see berm gen --help", {.change_pct = 2}},
        {"gpt-train", "gpt-train: takes no --kv; see berm gen --help", {.kv = TRACE_KV_BLOCKS}},
        {"gpt-train", "gpt-train: --hidden is no multiple of 128", {.hidden = 200}},
        {"llm-serve", "llm-serve: takes no --moe; see berm gen --help", {.moe_pct = 1}},
        {"diffusion", "diffusion: takes no --live-cap; see berm gen --help", {.live_cap_bytes = 1}},
        {"multi-model", "multi-model: takes no --offload; see berm gen --help", {.offload = true}},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(cases); i++) {
        cr_assert(trace_generate(cases[i].kind, &cases[i].options, th_error, sizeof th_error) ==
                  NULL);
        cr_assert(strcmp(th_error, cases[i].line) == 0, "got: %s", th_error);
    }
}
