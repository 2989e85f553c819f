// SPDX-License-Identifier: Apache-2.0
// Tells AddressSanitizer which bytes of berm's own slabs are free; nothing in other builds.
#ifndef BERM_HOST_TRACK_H
#define BERM_HOST_TRACK_H

#if defined(__SANITIZE_ADDRESS__)
#define BERM_ASAN_ON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BERM_ASAN_ON 1
#endif
#endif

#ifdef BERM_ASAN_ON
#include <sanitizer/asan_interface.h>
#define BERM_TRACK_POISON(memory, size_bytes)   __asan_poison_memory_region(memory, size_bytes)
#define BERM_TRACK_UNPOISON(memory, size_bytes) __asan_unpoison_memory_region(memory, size_bytes)
#else
#define BERM_TRACK_POISON(memory, size_bytes)   ((void)(memory), (void)(size_bytes))
#define BERM_TRACK_UNPOISON(memory, size_bytes) ((void)(memory), (void)(size_bytes))
#endif

#endif
