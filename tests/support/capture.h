// SPDX-License-Identifier: Apache-2.0
// Captures and graphs as a program makes them, on the fixture's device. A failed call aborts with a
// line, so a capture that berm has broken does too.
#ifndef BERM_TESTS_CAPTURE_H
#define BERM_TESTS_CAPTURE_H

#include "tests/support/heap_fixture.h"

enum { // as the driver's
    HEAP_CAPTURE_GLOBAL = 0,
    HEAP_CAPTURE_THREAD_LOCAL = 1,
    HEAP_CAPTURE_RELAXED = 2,
    HEAP_CAPTURE_MODES = 3
};

void heap_capture_begin(void *stream, int mode);
// Work on `other` joins the capture of `stream`, and back.
void heap_capture_fork(void *other, void *stream);
// Whether the stream is captured, and the capture is not broken.
int heap_capture_is_whole(void *stream);
// Ends a capture that nothing has broken; a graph that can be launched, on any stream.
void *heap_capture_end(void *stream);
// Ends a capture that something has broken, or that nobody wants.
void heap_capture_drop(void *stream);

// A cuMemAlloc of the calling thread, which a capture that is not relaxed forbids, and which breaks
// it.
void heap_capture_break(void);

void heap_graph_launch(void *graph, void *stream);
void heap_graph_destroy(void *graph);

// For berm_pool_route_begin: takes the stream that is the context.
bool heap_filter_stream(berm_stream_t stream, void *context);

#endif
