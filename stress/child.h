// SPDX-License-Identifier: Apache-2.0
// Replays that need a process of their own: allocators that can be made once a process, as
// PyTorch's. The `berm` command starts itself again with the same arguments; environment variables
// tell the child which one replay is wanted and where to write the result. A plain fork would not
// do: a CUDA driver, the simulated one too, refuses to work in the child of a process that used it.
#ifndef STRESS_CHILD_H
#define STRESS_CHILD_H

#include <stddef.h>

#include "stress/replay.h"

// To be called by the command before anything is replayed; `argv` must stay. NULL: no children.
void stress_child_command_set(char **argv);

typedef struct stress_child_order {
    const char *trace;     // the path as given
    const char *allocator; // its name
    uint64_t capacity_bytes;
} stress_child_order_t;

// Whether this process is such a child, and what is wanted from it.
bool stress_child_order(stress_child_order_t *order);
// In the child: sends what stress_replay gave (`result` only where `status` is 0). 0, or -1.
int stress_child_answer(int status, const stress_replay_result_t *result, const char *error);

// In the parent: as stress_replay, by a child.
int stress_child_replay(const trace_t *trace, const stress_replay_options_t *options,
                        stress_replay_result_t *result, char *error, size_t error_capacity);

// --- any other question ------------------------------------------------------------------------

// In a child that was started for one: the question. NULL elsewhere.
const char *stress_child_question(void);
// In the child: sends the answer. 0, or -1.
int stress_child_reply(const void *answer, size_t bytes);

typedef enum stress_child_end {
    STRESS_CHILD_ANSWERED,
    STRESS_CHILD_NOT_STARTED,
    STRESS_CHILD_SILENT, // it ended without an answer
} stress_child_end_t;

// In the parent: starts the command again and reads an answer of `bytes`. Else a line in `error`.
stress_child_end_t stress_child_ask(const char *question, void *answer, size_t bytes, char *error,
                                    size_t error_capacity);

#endif
