// SPDX-License-Identifier: Apache-2.0
// The functions behind ours: the driver's and the runtime's own. Nothing is linked and nothing is
// opened before the first call of a CUDA function; what was found is kept.
//
// Locks: none, each entry is an atomic pointer, and threads that look at once find the same. So a
// constructor that calls CUDA, with the loader's lock held, waits for nobody here.
#ifndef PRELOAD_REAL_H
#define PRELOAD_REAL_H

#include <stdbool.h>

#include "driver.h"
#include "runtime.h"

// clang-format off
typedef enum real_driver_fn {
#define PRELOAD_ENTRY(symbol, name, version, type)        REAL_##symbol,
#define PRELOAD_ENTRY_STREAM(symbol, name, version, type) REAL_##symbol, REAL_##symbol##_ptsz,
#define PRELOAD_REAL(symbol, type)                        REAL_##symbol,
#include "entries.def"
#include "real.def"
#undef PRELOAD_ENTRY
#undef PRELOAD_ENTRY_STREAM
#undef PRELOAD_REAL
    REAL_DRIVER_COUNT
} real_driver_fn_t;

#define PRELOAD_ENTRY(symbol, name, version, type) typedef type real_##symbol##_fn;
#define PRELOAD_ENTRY_STREAM(symbol, name, version, type)                                          \
    typedef type real_##symbol##_fn;                                                               \
    typedef type real_##symbol##_ptsz_fn;
#define PRELOAD_REAL(symbol, type) typedef type real_##symbol##_fn;
#include "entries.def"
#include "real.def"
#undef PRELOAD_ENTRY
#undef PRELOAD_ENTRY_STREAM
#undef PRELOAD_REAL
// clang-format on

// The driver's function, NULL where there is no driver or it has none of that symbol.
void *real_driver_find(real_driver_fn_t fn);
// The same of what is found already or needs no library to be opened: for who only compares.
void *real_driver_loaded(real_driver_fn_t fn);

// A function of the runtime, called `name`: the next one in the order in which the program's own
// libraries are searched, else the one that the library at `caller` was linked with, else that of
// any loaded libcudart. *slot keeps it, and the library stays loaded from then on.
void *real_runtime_find(void *_Atomic *slot, const char *name, const void *caller);

// The loader's own dlsym.
typedef void *(*real_dlsym_fn)(void *handle, const char *name);
real_dlsym_fn real_dlsym(void);

// Whether the code at `address` is libberm's, or this library's: their look-ups are never replaced.
bool real_is_own(const void *address);

// Calls the driver's own; NOT_INITIALIZED where it has no such function.
#define REAL_DRIVER(symbol, ...)                                                                   \
    __extension__({                                                                                \
        real_##symbol##_fn real_fn_ = (real_##symbol##_fn)real_driver_find(REAL_##symbol);         \
        real_fn_ != NULL ? real_fn_(__VA_ARGS__) : BERM_CU_NOT_INITIALIZED;                        \
    })

// Calls the runtime's own function for the library at `caller`, likewise.
#define REAL_RUNTIME(symbol, caller, ...)                                                          \
    __extension__({                                                                                \
        static void *_Atomic real_slot_;                                                           \
        __typeof__(&symbol) real_fn_ =                                                             \
            (__typeof__(&symbol))real_runtime_find(&real_slot_, #symbol, caller);                  \
        real_fn_ != NULL ? real_fn_(__VA_ARGS__) : BERM_CU_NOT_INITIALIZED;                        \
    })

#define PRELOAD_CALLER() __builtin_return_address(0)

#endif
