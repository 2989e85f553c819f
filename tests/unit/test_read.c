// SPDX-License-Identifier: Apache-2.0
// trace_read: formats are found by content; real recordings give the figures known of them.
#include "tests/unit/trace_helpers.h"

typedef struct figures {
    const char *file;
    size_t events, live_before, allocs, frees, live_at_end, deferred, streams;
    uint64_t peak_live_bytes;
    uint64_t reserved_at_peak_mib, reserved_peak_mib;
} figures_t;

// The recordings this project ships, from the root of the sources.
static const figures_t shipped[] = {
    {"stress/traces/gpt2_fixed.pickle.gz", 9042, 0, 4521, 4521, 0, 0, 1, 8619549484, 9748, 9748},
    {"stress/traces/gpt2_varlen.pickle.gz", 71136, 0, 35568, 35568, 0, 0, 1, 7591699156, 8478,
     8478},
    {"stress/traces/multi_stream.pickle.gz", 122, 0, 61, 61, 0, 1, 2, 245760000, 476, 600},
    {"stress/traces/gpt2.csv.gz", 5798, 0, 2899, 2899, 0, 0, 1, 9442894540, 0, 0},
    {"stress/traces/gpt2_variable.csv.gz", 7318, 0, 3659, 3659, 0, 0, 1, 5729375308, 0, 0},
    {"stress/traces/kv_cache.csv.gz", 27264, 0, 13632, 13632, 0, 0, 1, 529039360, 0, 0},
    {"stress/traces/unet.csv.gz", 12230, 0, 6115, 6115, 0, 0, 1, 641679836, 0, 0},
    {"stress/traces/vision.csv.gz", 8700, 0, 4350, 4350, 0, 0, 1, 1779821068, 0, 0},
    {"stress/traces/moe.csv.gz", 12952, 0, 6476, 6476, 0, 0, 1, 3244762204, 0, 0},
    {"stress/traces/two_streams.csv.gz", 648, 0, 324, 324, 0, 2, 2, 114917380, 0, 0},
};

// Recordings that may lie beside the repository.
static const figures_t shared[] = {
    {"traces/decoder_train_ctx512.pickle.gz", 15625, 664, 8255, 7370, 885, 0, 1, 12426629128, 12010,
     12074},
    {"traces/decoder_infer_ctx512.pickle.gz", 3555, 223, 1889, 1666, 223, 0, 1, 1949343744, 1890,
     1890},
    {"traces/opt_zeroth_order.pickle.gz", 15495, 0, 7946, 7549, 397, 0, 1, 1783664516, 1810, 1810},
    {"traces/resnet_ddp_v100.trace.csv.gz", 26770, 0, 13385, 13385, 0, 0, 1, 2532893696, 0, 0},
    {"traces/own/gpt2_fixed.pickle.gz", 9042, 0, 4521, 4521, 0, 0, 1, 8619549484, 9748, 9748},
    {"traces/own/gpt2_varlen.pickle.gz", 71136, 0, 35568, 35568, 0, 0, 1, 7591699156, 8478, 8478},
    {"traces/own/gpt2_varlen_expandable.pickle.gz", 71136, 0, 35568, 35568, 0, 0, 1, 7591699156,
     8000, 8000},
    {"traces/own/gpt2_kv.pickle.gz", 235720, 0, 117860, 117860, 0, 0, 1, 1337865736, 1752, 1752},
    {"traces/own/multi_stream.pickle.gz", 122, 0, 61, 61, 0, 1, 2, 245760000, 476, 600},
    {"traces/minimalloc_A.csv", 308, 0, 154, 154, 0, 0, 1, 1048576, 0, 0},
    {"traces/minimalloc_B.csv", 340, 0, 170, 170, 0, 0, 1, 1048576, 0, 0},
    {"traces/minimalloc_C.csv", 406, 0, 203, 203, 0, 0, 1, 1039360, 0, 0},
    {"traces/minimalloc_D.csv", 426, 0, 213, 213, 0, 0, 1, 986112, 0, 0},
    {"traces/minimalloc_E.csv", 430, 0, 215, 215, 0, 0, 1, 1048576, 0, 0},
    {"traces/minimalloc_F.csv", 592, 0, 296, 296, 0, 0, 1, 1048576, 0, 0},
};

// `variable` names the folder in the environment; else it is found from where this file lies.
static bool find_folder(const char *variable, const char *from_source, char *path, size_t size) {
    const char *given = getenv(variable);
    if (given != NULL && given[0] != '\0') {
        snprintf(path, size, "%s", given);
    } else {
        const char *file = __FILE__; // ROOT/tests/unit/test_read.c
        size_t length = strlen(file) - strlen("tests/unit/test_read.c");
        snprintf(path, size, "%.*s%s", (int)length, file, from_source);
    }
    return access(path, R_OK) == 0;
}

static void expect_figures(const char *folder, const figures_t *expected) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, expected->file);
    th_error[0] = '\0';
    trace_t *trace = trace_read(path, NULL, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    size_t deferred = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        deferred += trace->blocks[i].is_deferred;
    }
    const char *file = expected->file;
    cr_assert(trace->alloc_count + trace->free_count == expected->events, "%s: %zu", file,
              trace->alloc_count + trace->free_count);
    cr_assert(trace->event_count == expected->events + deferred, "%s", file);
    cr_assert(trace->live_before == expected->live_before, "%s: %zu", file, trace->live_before);
    cr_assert(trace->alloc_count == expected->allocs, "%s: %zu", file, trace->alloc_count);
    cr_assert(trace->free_count == expected->frees, "%s: %zu", file, trace->free_count);
    cr_assert(trace->live_at_end == expected->live_at_end, "%s: %zu", file, trace->live_at_end);
    cr_assert(deferred == expected->deferred, "%s: %zu", file, deferred);
    cr_assert(trace->stream_count == expected->streams, "%s: %zu", file, trace->stream_count);
    cr_assert(trace->peak_live_bytes == expected->peak_live_bytes, "%s: %llu", file,
              (unsigned long long)trace->peak_live_bytes);
    cr_assert(trace->source_reserved_at_peak_bytes == BERM_MIB(expected->reserved_at_peak_mib),
              "%s: %llu", file, (unsigned long long)trace->source_reserved_at_peak_bytes);
    cr_assert(trace->source_reserved_peak_bytes == BERM_MIB(expected->reserved_peak_mib),
              "%s: %llu", file, (unsigned long long)trace->source_reserved_peak_bytes);
    trace_destroy(trace);
}

Test(read, shipped_recordings_give_their_figures, .timeout = 60) {
    char root[400];
    cr_assert(find_folder("BERM_SOURCE", ".", root, sizeof root), "no sources at %s", root);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(shipped); i++) {
        expect_figures(root, &shipped[i]);
    }
}

Test(read, shared_recordings_give_their_figures, .timeout = 100) {
    char folder[400];
    char traces[420];
    bool is_there = find_folder("BERM_SHARED", "../shared", folder, sizeof folder);
    snprintf(traces, sizeof traces, "%s/traces", folder);
    if (!is_there || access(traces, R_OK) != 0) {
        printf("SKIP: no recordings beside the repository (in ../shared/traces)\n");
        cr_skip_test();
    }
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(shared); i++) {
        expect_figures(folder, &shared[i]);
    }
}

Test(read, the_name_does_not_count_and_gzip_neither) {
    static const char csv[] = "event_index,op,id,size_bytes,stream\n0,alloc,0,8,0\n";
    th_folder_t folder = th_make_folder();
    th_bytes_t packed = th_gzip(csv, sizeof csv - 1);
    const char *paths[] = {
        th_write_file(&folder, "a.pickle", csv, sizeof csv - 1),
        th_write_file(&folder, "b", packed.bytes, packed.size),
    };
    for (size_t i = 0; i < 2; i++) {
        trace_t *trace = trace_read(paths[i], NULL, th_error, sizeof th_error);
        cr_assert(trace != NULL, "%s", th_error);
        cr_assert(strcmp(trace->format, "event-csv") == 0);
        cr_assert(strcmp(trace->path, paths[i]) == 0);
        trace_destroy(trace);
    }
    free(packed.bytes);
    th_remove_folder(&folder);
}

Test(read, says_what_is_no_trace) {
    static const char line[] =
        "T:1: is no trace: neither a PyTorch snapshot pickle nor a recording of berm's nor CSV "
        "with a header "
        "(event_index,op,id,size_bytes,stream; Thread,Time,Action,Pointer,Size,Stream; "
        "id,lower,upper,size)";
    th_refuse("", "T: is empty");
    th_refuse("\n\n", line);
    th_refuse("hello\n", line);
    th_refuse("c", line);
    th_refuse("command,result\n1,2\n", line);
    th_refuse("{\"json\": 1}", line);
    th_refuse("id,lower,upper\n", line);
    th_refuse_bytes("\0\0\0", 3, line);
    th_refuse("cos\nsystem\n(S'ls'\ntR.",
              "T: at byte 0: opcode 0x63 (GLOBAL) would run code; refused");
    th_refuse("\x80\x04\x95", "T: at byte 2: the file ends inside an opcode; it is cut off");
    trace_t *trace = trace_read("/nonexistent", NULL, th_error, sizeof th_error);
    cr_assert(trace == NULL);
    cr_assert(strcmp(th_error, "/nonexistent: No such file or directory") == 0, "%s", th_error);
}

Test(read, errors_may_be_left_out) {
    cr_assert(trace_read("/nonexistent", NULL, NULL, 0) == NULL);
    cr_assert(trace_read_memory("T", "x", 1, NULL, NULL, 0) == NULL);
}
