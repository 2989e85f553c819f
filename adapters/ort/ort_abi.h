// SPDX-License-Identifier: Apache-2.0
// The part of ONNX Runtime's C interface that the adapter needs, declared by itself: its header is
// not needed to build, and one build serves every version. Positions in OrtApi and the members of
// OrtAllocator never change; what was added is known by the version that first had it.
#ifndef BERM_ORT_ABI_H
#define BERM_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus; // NULL: no error
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtSyncStream OrtSyncStream;

// Filled by who makes an allocator. ONNX Runtime looks at a member only where `version` has it.
typedef struct OrtAllocator {
    uint32_t version;
    void *(*Alloc)(struct OrtAllocator *self, size_t size_bytes);
    void (*Free)(struct OrtAllocator *self, void *block);
    const OrtMemoryInfo *(*Info)(const struct OrtAllocator *self);
    void *(*Reserve)(struct OrtAllocator *self, size_t size_bytes);                  // 18
    OrtStatus *(*GetStats)(const struct OrtAllocator *self, OrtKeyValuePairs **out); // 23
    void *(*AllocOnStream)(struct OrtAllocator *self, size_t size_bytes,
                           OrtSyncStream *stream);   // 23
    OrtStatus *(*Shrink)(struct OrtAllocator *self); // 25
} OrtAllocator;

// Where functions stand in OrtApi.
enum {
    ORT_CREATE_STATUS = 0,
    ORT_CREATE_MEMORY_INFO = 68,
    ORT_RELEASE_STATUS = 93,
    ORT_RELEASE_MEMORY_INFO = 94,
    ORT_CREATE_KEY_VALUE_PAIRS = 295, // 22
    ORT_ADD_KEY_VALUE_PAIR = 296,     // 22
    ORT_SYNC_STREAM_GET_HANDLE = 384, // 23
};

typedef OrtStatus *(*ort_create_status_fn)(int code, const char *text);
typedef OrtStatus *(*ort_create_memory_info_fn)(const char *name, int type, int id, int mem_type,
                                                OrtMemoryInfo **out);
typedef void (*ort_release_status_fn)(OrtStatus *status);
typedef void (*ort_release_memory_info_fn)(OrtMemoryInfo *info);
typedef void (*ort_create_key_value_pairs_fn)(OrtKeyValuePairs **out);
typedef void (*ort_add_key_value_pair_fn)(OrtKeyValuePairs *pairs, const char *key,
                                          const char *value);
typedef void *(*ort_sync_stream_get_handle_fn)(OrtSyncStream *stream);

enum {
    ORT_FAIL = 1,
    ORT_DEVICE_ALLOCATOR = 0, // OrtAllocatorType: no arena
    ORT_MEM_TYPE_DEFAULT = 0, // OrtMemType
    ORT_VERSION_FIRST = 9,    // has RegisterAllocator
    ORT_VERSION_RESERVE = 18, //
    ORT_VERSION_STREAM = 23,  // GetStats, AllocOnStream
    ORT_VERSION_SHRINK = 25,  //
    ORT_VERSION_KNOWN = 31,   // the newest whose OrtAllocator is as above
};

#endif
