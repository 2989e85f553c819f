// SPDX-License-Identifier: Apache-2.0
// Reductions of small arrays. Whole numbers are reduced as such; floating-point numbers, 16-bit
// ones included, in double precision and rounded once each time.
#include <math.h>
#include <string.h>

#include "simcuda/standins/nccl.h"

enum {
    INT8,
    UINT8,
    INT32,
    UINT32,
    INT64,
    UINT64,
    HALF,
    FLOAT,
    DOUBLE,
    BFLOAT16,
    FP8A,
    FP8B
};

size_t nccl_type_bytes(int type) {
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && (size_t)type < BERM_ARRAY_LENGTH(bytes) ? bytes[type] : 0;
}

bool nccl_can_reduce(int type, int reduction) {
    return type >= INT8 && type <= BFLOAT16 && reduction >= NCCL_SUM && reduction < NCCL_OPS;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double half_value(uint16_t half) {
    int exponent = half >> 10 & 31;
    double fraction = half & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                    : ldexp(fraction + 1024, exponent - 25);
    return half & 0x8000 ? -value : value;
}

static uint16_t half_of(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(value))
        return 0x7E00;
    if (size >= 65520)
        return sign | 0x7C00;
    if (size < ldexp(1, -14)) // subnormal, or rounded up to the first normal number
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
    int exponent = 0;
    double fraction = frexp(size, &exponent); // size = fraction * 2^exponent, fraction in [0.5, 1)
    uint32_t rounded = (uint32_t)nearbyint(ldexp(fraction, 11)); // 1024 to 2048
    return (uint16_t)(sign | ((uint32_t)(exponent + 13) * 1024 + rounded));
}

static uint16_t bfloat_of(double value) {
    if (isnan(value))
        return 0x7FC0;
    uint32_t bits = bits_of((float)value);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

double nccl_value(const void *values, size_t index, int type) {
    switch (type) {
    case HALF:
        return half_value(((const uint16_t *)values)[index]);
    case FLOAT:
        return (double)((const float *)values)[index];
    case DOUBLE:
        return ((const double *)values)[index];
    case BFLOAT16:
        return (double)float_of((uint32_t)((const uint16_t *)values)[index] << 16);
    default:
        return 0;
    }
}

static void value_set(void *values, size_t index, int type, double value) {
    switch (type) {
    case HALF:
        ((uint16_t *)values)[index] = half_of(value);
        break;
    case FLOAT:
        ((float *)values)[index] = (float)value;
        break;
    case DOUBLE:
        ((double *)values)[index] = value;
        break;
    default:
        ((uint16_t *)values)[index] = bfloat_of(value);
        break;
    }
}

#define COMBINE(type, wide)                                                                        \
    static type combine_##type(type a, type b, int reduction) {                                    \
        switch (reduction) {                                                                       \
        case NCCL_PROD:                                                                            \
            return (type)((wide)a * (wide)b);                                                      \
        case NCCL_MAX:                                                                             \
            return a > b ? a : b;                                                                  \
        case NCCL_MIN:                                                                             \
            return a < b ? a : b;                                                                  \
        default:                                                                                   \
            return (type)((wide)a + (wide)b);                                                      \
        }                                                                                          \
    }
// Unsigned arithmetic wraps where signed arithmetic may not.
COMBINE(int8_t, uint64_t)
COMBINE(uint8_t, uint64_t)
COMBINE(int32_t, uint64_t)
COMBINE(uint32_t, uint64_t)
COMBINE(int64_t, uint64_t)
COMBINE(uint64_t, uint64_t)
COMBINE(double, double)

#define COMBINE_ALL(type)                                                                          \
    for (size_t i = 0; i < count; i++)                                                             \
    ((type *)into)[i] = combine_##type(((type *)into)[i], ((const type *)from)[i], reduction)

void nccl_combine(void *into, const void *from, size_t count, int type, int reduction) {
    switch (type) {
    case INT8:
        COMBINE_ALL(int8_t);
        break;
    case UINT8:
        COMBINE_ALL(uint8_t);
        break;
    case INT32:
        COMBINE_ALL(int32_t);
        break;
    case UINT32:
        COMBINE_ALL(uint32_t);
        break;
    case INT64:
        COMBINE_ALL(int64_t);
        break;
    case UINT64:
        COMBINE_ALL(uint64_t);
        break;
    default:
        for (size_t i = 0; i < count; i++)
            value_set(
                into, i, type,
                combine_double(nccl_value(into, i, type), nccl_value(from, i, type), reduction));
        break;
    }
}

void nccl_scale(void *values, size_t count, int type, double factor) {
    for (size_t i = 0; i < count; i++) {
        if (type >= HALF)
            value_set(values, i, type, nccl_value(values, i, type) * factor);
        else if (type == INT32)
            ((int32_t *)values)[i] = (int32_t)(((int32_t *)values)[i] * factor);
        else if (type == INT64)
            ((int64_t *)values)[i] = (int64_t)((double)((int64_t *)values)[i] * factor);
        else if (type == UINT64)
            ((uint64_t *)values)[i] = (uint64_t)((double)((uint64_t *)values)[i] * factor);
        else if (type == UINT32)
            ((uint32_t *)values)[i] = (uint32_t)(((uint32_t *)values)[i] * factor);
        else if (type == INT8)
            ((int8_t *)values)[i] = (int8_t)(((int8_t *)values)[i] * factor);
        else
            ((uint8_t *)values)[i] = (uint8_t)(((uint8_t *)values)[i] * factor);
    }
}
