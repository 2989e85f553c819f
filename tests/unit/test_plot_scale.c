// SPDX-License-Identifier: Apache-2.0
// Ticks reach the largest value and are few and round; thinning keeps ends, minima and maxima.
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "stress/plot/scale.h"

enum {
    COUNT = 100000,
    KEPT_MAX = 100,
};

static uint64_t values[COUNT];
static size_t kept[KEPT_MAX];

static bool is_kept(size_t index, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (kept[i] == index)
            return true;
    return false;
}

Test(plot_thin, keeps_all_of_few) {
    size_t count = plot_thin(values, 7, kept, KEPT_MAX);
    cr_assert(count == 7);
    for (size_t i = 0; i < count; i++)
        cr_assert(kept[i] == i);
}

Test(plot_thin, keeps_ends_peak_and_trough_wherever_they_are) {
    for (size_t place = 1; place + 2 < COUNT; place = place * 3 + 1) {
        for (size_t i = 0; i < COUNT; i++)
            values[i] = 1000 + i % 7;
        values[place] = 5000;
        values[place + 1] = 3;
        size_t count = plot_thin(values, COUNT, kept, KEPT_MAX);
        cr_assert(count <= KEPT_MAX && count > KEPT_MAX / 2);
        cr_assert(kept[0] == 0 && kept[count - 1] == COUNT - 1);
        cr_assert(is_kept(place, count), "the peak at %zu is lost", place);
        cr_assert(is_kept(place + 1, count), "the trough at %zu is lost", place + 1);
        for (size_t i = 1; i < count; i++)
            cr_assert(kept[i] > kept[i - 1]);
    }
}

Test(plot_thin, takes_one_more_than_there_are_places) {
    for (size_t i = 0; i < COUNT; i++)
        values[i] = i;
    size_t count = plot_thin(values, KEPT_MAX + 1, kept, KEPT_MAX);
    cr_assert(count <= KEPT_MAX && kept[count - 1] == KEPT_MAX);
    count = plot_thin(values, 5, kept, 4);
    cr_assert(count == 4 && kept[0] == 0 && kept[3] == 4);
}

static bool is_round(double step) {
    double digits = step / pow(10, floor(log10(step) + 1e-9));
    return fabs(digits - 1) < 1e-6 || fabs(digits - 2) < 1e-6 || fabs(digits - 5) < 1e-6;
}

Test(plot_ticks, are_few_and_round_and_reach_the_largest) {
    for (uint64_t largest = 1; largest < UINT64_C(1) << 62; largest = largest * 3 + 1) {
        plot_ticks_t ticks[] = {plot_ticks_bytes(largest), plot_ticks_count(largest),
                                plot_ticks_us(largest)};
        for (size_t i = 0; i < sizeof ticks / sizeof ticks[0]; i++) {
            cr_assert(ticks[i].count >= 1 && ticks[i].count <= PLOT_TICKS_MAX);
            cr_assert(is_round(ticks[i].step), "step %g", ticks[i].step);
            double top = plot_ticks_top(&ticks[i]);
            cr_assert(top >= (double)largest * (1 - 1e-9), "%g below %g", top, (double)largest);
            cr_assert(top < (double)largest + 1.001 * ticks[i].step * ticks[i].unit);
        }
        cr_assert(ticks[1].step >= 1, "half an event");
    }
}

Test(plot_ticks, of_bytes_have_units) {
    plot_ticks_t ticks = plot_ticks_bytes(7 * BERM_GIB(1) + 5);
    cr_assert(strcmp(ticks.label, "GiB") == 0);
    cr_assert(ticks.step == 1 && ticks.count == 8);
    ticks = plot_ticks_bytes(0);
    cr_assert(ticks.count == 1 && plot_ticks_top(&ticks) == 1);
    ticks = plot_ticks_bytes(UINT64_MAX);
    cr_assert(strcmp(ticks.label, "EiB") == 0);
}

Test(plot_ticks, of_times_have_units) {
    plot_ticks_t ticks = plot_ticks_us(999);
    cr_assert(strcmp(ticks.label, "us") == 0 && ticks.unit == 1);
    ticks = plot_ticks_us(372021);
    cr_assert(strcmp(ticks.label, "ms") == 0 && ticks.step == 50 && ticks.count == 8);
    ticks = plot_ticks_us(UINT64_MAX);
    cr_assert(strcmp(ticks.label, "s") == 0);
    ticks = plot_ticks_us(0);
    cr_assert(ticks.count == 1 && plot_ticks_top(&ticks) == 1);
}

Test(plot_text, writes_times) {
    char text[PLOT_TEXT_CAPACITY];
    cr_assert(strcmp(plot_us_text(0, text), "0 us") == 0);
    cr_assert(strcmp(plot_us_text(999, text), "999 us") == 0);
    cr_assert(strcmp(plot_us_text(1500, text), "1.5 ms") == 0);
    cr_assert(strcmp(plot_us_text(12340000, text), "12.3 s") == 0);
    cr_assert(strlen(plot_us_text(UINT64_MAX, text)) < PLOT_TEXT_CAPACITY - 1);
}

Test(plot_text, writes_bytes_and_counts) {
    char text[PLOT_TEXT_CAPACITY];
    cr_assert(strcmp(plot_bytes_text(0, text), "0 B") == 0);
    cr_assert(strcmp(plot_bytes_text(1023, text), "1023 B") == 0);
    cr_assert(strcmp(plot_bytes_text(BERM_MIB(3) / 2, text), "1.5 MiB") == 0);
    cr_assert(strcmp(plot_bytes_text(UINT64_MAX, text), "16.0 EiB") == 0);
    cr_assert(strcmp(plot_count_text(0, text), "0") == 0);
    cr_assert(strcmp(plot_count_text(999, text), "999") == 0);
    cr_assert(strcmp(plot_count_text(1000, text), "1,000") == 0);
    cr_assert(strcmp(plot_count_text(UINT64_MAX, text), "18,446,744,073,709,551,615") == 0);
}
