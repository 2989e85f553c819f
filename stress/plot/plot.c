// SPDX-License-Identifier: Apache-2.0
// Finds out what a file is and has it drawn. Everything is read before the output is opened, so
// that bad input leaves an older picture as it was.
//
// Locks: none. May fail: on bad input, for want of memory, and on writes.
#include "stress/plot/plot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stress/plot/bars.h"
#include "stress/plot/curves.h"
#include "stress/plot/segments.h"
#include "stress/plot/series.h"
#include "stress/trace/recording.h"

static bool ends_in(const char *path, const char *suffix) {
    size_t length = strlen(path), tail = strlen(suffix);
    return length > tail && strcmp(path + length - tail, suffix) == 0;
}

bool plot_path_is_known(const char *output_path) {
    return ends_in(output_path, ".svg") || ends_in(output_path, ".html");
}

// What was read, of one kind.
typedef struct picture {
    plot_series_t series;
    plot_segments_t segments;
    plot_curves_t curves;
    plot_bars_t bars;
    trace_t *trace; // the series' path is its
    berm_record_t *record;
} picture_t;

static int picture_read(picture_t *picture, const trace_input_t *input,
                        const trace_read_options_t *read, char *error, size_t error_capacity) {
    if (recording_matches(input)) {
        picture->record = recording_read(input, error, error_capacity);
        return picture->record != NULL ? 0 : -1;
    }
    if (plot_bars_match(input))
        return plot_bars_read(&picture->bars, input, error, error_capacity);
    if (plot_segments_match(input))
        return plot_segments_read(&picture->segments, input, error, error_capacity);
    if (plot_curves_match(input))
        return plot_curves_read(&picture->curves, input, error, error_capacity);
    if (plot_series_matches(input))
        return plot_series_read(&picture->series, input, error, error_capacity);
    picture->trace =
        trace_read_memory(input->name, input->bytes, input->size, read, error, error_capacity);
    if (picture->trace == NULL)
        return -1;
    return plot_series_from_trace(&picture->series, picture->trace, error, error_capacity);
}

static int picture_write(picture_t *picture, const char *input_path, plot_site_fn site,
                         const char *path, char *error, size_t error_capacity) {
    if (picture->record != NULL && !ends_in(path, ".html")) {
        trace_fail(error, error_capacity, "%s: a recording is drawn as a page: FILE.html", path);
        return -1;
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        trace_fail(error, error_capacity, "%s: %s", path, strerror(errno));
        return -1;
    }
    bool is_html = ends_in(path, ".html"), has_failed = false;
    if (picture->record != NULL)
        has_failed = !plot_page_draw(picture->record, input_path, site, file);
    else if (picture->bars.count != 0)
        plot_bars_draw(&picture->bars, file, is_html);
    else if (picture->segments.count != 0)
        plot_map_draw(&picture->segments, file, is_html);
    else if (picture->curves.count != 0)
        plot_curves_draw(&picture->curves, file, is_html);
    else
        plot_chart_draw(&picture->series, file, is_html);
    int reason = has_failed ? ENOMEM : 0;
    if (!has_failed && (fflush(file) != 0 || ferror(file) != 0)) {
        has_failed = true;
        reason = errno;
    }
    if (fclose(file) != 0 && !has_failed) {
        has_failed = true;
        reason = errno;
    }
    if (!has_failed)
        return 0;
    (void)unlink(path);
    trace_fail(error, error_capacity, "%s: %s", path, strerror(reason));
    return -1;
}

int plot_file(const char *path, const trace_read_options_t *read, plot_site_fn site,
              const char *output_path, char *error, size_t error_capacity) {
    trace_input_t input;
    if (trace_input_load(&input, path, NULL, error, error_capacity) != 0)
        return -1;
    picture_t picture = {0};
    int status = picture_read(&picture, &input, read, error, error_capacity);
    if (status == 0)
        status = picture_write(&picture, path, site, output_path, error, error_capacity);
    plot_series_free(&picture.series);
    plot_segments_free(&picture.segments);
    plot_curves_free(&picture.curves);
    trace_destroy(picture.trace);
    recording_free(picture.record);
    trace_input_unload(&input);
    return status;
}
