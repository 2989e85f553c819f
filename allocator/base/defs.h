// SPDX-License-Identifier: Apache-2.0
// Compiler attributes, units and the device address type. Depends on libc headers only.
#ifndef BERM_BASE_DEFS_H
#define BERM_BASE_DEFS_H

#include <stddef.h>
#include <stdint.h>

#define BERM_KIB(n) ((uint64_t)(n) << 10)
#define BERM_MIB(n) ((uint64_t)(n) << 20)
#define BERM_GIB(n) ((uint64_t)(n) << 30)

#define BERM_LIKELY(x)     __builtin_expect(!!(x), 1)
#define BERM_ALWAYS_INLINE static inline __attribute__((always_inline))
#define BERM_UNLIKELY(x)   __builtin_expect(!!(x), 0)

#define BERM_NODISCARD       __attribute__((warn_unused_result))
#define BERM_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))
#define BERM_NORETURN        __attribute__((noreturn))
#define BERM_EXPORT          __attribute__((visibility("default")))

#define BERM_ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))

// What a noun after a number ends in.
#define BERM_PLURAL(number) ((number) == 1 ? "" : "s")

#define BERM_CONTAINER_OF(ptr, type, member)                                                       \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

// An address of device memory. Never a pointer: the host must not touch device memory, and an
// integer cannot be dereferenced by mistake. Declared here and in include/berm.h alike.
#ifndef BERM_ADDR_T_DEFINED
#define BERM_ADDR_T_DEFINED
typedef uint64_t berm_addr_t;
#endif

#endif
