// SPDX-License-Identifier: Apache-2.0
// Chooses ticks, writes sizes, thins points. No memory, no locks; nothing fails.
#include "stress/plot/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

static size_t unit_of(uint64_t bytes) {
    size_t unit = 0;
    while (unit + 1 < BERM_ARRAY_LENGTH(units) && bytes >> (10 * (unit + 1)) != 0)
        unit++;
    return unit;
}

// The smallest step of 1, 2 or 5 times a power of ten with which few ticks reach `largest`.
static plot_ticks_t choose(double largest, bool is_whole) {
    double power = pow(10, floor(log10(largest / PLOT_TICKS_MAX)));
    if (is_whole && power < 1)
        power = 1;
    static const double factors[] = {1, 2, 5, 10};
    plot_ticks_t ticks = {.step = power, .count = 1, .unit = 1, .label = ""};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(factors); i++) {
        ticks.step = power * factors[i];
        if (largest / ticks.step <= PLOT_TICKS_MAX)
            break;
    }
    ticks.count = (unsigned)ceil(largest / ticks.step);
    return ticks;
}

plot_ticks_t plot_ticks_bytes(uint64_t largest) {
    size_t unit = unit_of(largest);
    double size = (double)(UINT64_C(1) << (10 * unit));
    plot_ticks_t ticks = choose(largest == 0 ? 1 : (double)largest / size, unit == 0);
    ticks.unit = size;
    ticks.label = units[unit];
    return ticks;
}

static const struct {
    const char *label;
    double us;
} times[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};

static size_t time_of(uint64_t us) {
    return us < 1000 ? 0 : us < 1000000 ? 1 : 2;
}

plot_ticks_t plot_ticks_us(uint64_t largest) {
    size_t unit = time_of(largest);
    plot_ticks_t ticks = choose(largest == 0 ? 1 : (double)largest / times[unit].us, unit == 0);
    ticks.unit = times[unit].us;
    ticks.label = times[unit].label;
    return ticks;
}

plot_ticks_t plot_ticks_count(uint64_t largest) {
    return choose(largest == 0 ? 1 : (double)largest, true);
}

double plot_ticks_top(const plot_ticks_t *ticks) {
    return ticks->step * ticks->count * ticks->unit;
}

const char *plot_bytes_text(uint64_t bytes, char text[PLOT_TEXT_CAPACITY]) {
    size_t unit = unit_of(bytes);
    if (unit == 0)
        (void)snprintf(text, PLOT_TEXT_CAPACITY, "%" PRIu64 " B", bytes);
    else
        (void)snprintf(text, PLOT_TEXT_CAPACITY, "%.1f %s",
                       (double)bytes / (double)(UINT64_C(1) << (10 * unit)), units[unit]);
    return text;
}

const char *plot_us_text(uint64_t us, char text[PLOT_TEXT_CAPACITY]) {
    size_t unit = time_of(us);
    (void)snprintf(text, PLOT_TEXT_CAPACITY, unit == 0 ? "%.0f %s" : "%.1f %s",
                   (double)us / times[unit].us, times[unit].label);
    return text;
}

const char *plot_count_text(uint64_t count, char text[PLOT_TEXT_CAPACITY]) {
    char digits[PLOT_TEXT_CAPACITY];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count), out = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

// Writes the places of the least and the greatest of values[begin..end), which is not empty.
static size_t thin_stretch(const uint64_t *values, size_t begin, size_t end, size_t *indices) {
    size_t least = begin, greatest = begin;
    for (size_t i = begin; i < end; i++) {
        if (values[i] < values[least])
            least = i;
        if (values[i] > values[greatest])
            greatest = i;
    }
    indices[0] = least < greatest ? least : greatest;
    indices[1] = least < greatest ? greatest : least;
    return least == greatest ? 1 : 2;
}

size_t plot_thin(const uint64_t *values, size_t count, size_t *indices, size_t indices_max) {
    size_t written = 0;
    if (count <= indices_max) {
        for (; written < count; written++)
            indices[written] = written;
        return written;
    }
    // More values than places, so that every stretch holds at least two.
    size_t stretches = (indices_max - 2) / 2;
    indices[written++] = 0;
    for (size_t i = 0; i < stretches; i++) {
        size_t begin = 1 + (count - 2) * i / stretches;
        size_t end = 1 + (count - 2) * (i + 1) / stretches;
        written += thin_stretch(values, begin, end, indices + written);
    }
    indices[written++] = count - 1;
    return written;
}
