// SPDX-License-Identifier: Apache-2.0
// What is written when a request fails and when the process ends: the recording (option recording)
// and the check for leaks (option leak_check).
#ifndef BERM_FRONT_LEAVING_H
#define BERM_FRONT_LEAVING_H

#include <stdbool.h>
#include <stddef.h>

// Makes sure that berm__leaving_end runs when the process ends. Under the heap's lock.
void berm__leaving_begin(void);
// berm is about to stop: the recording, if there is none of a failure.
void berm__leaving_stop(void);
// A request has failed: writes the recording, if the option names a file. No lock is held.
void berm__leaving_fail(void);
// Writes a recording to a new file, which takes the place of one that is there; no link is
// followed.
bool berm__leaving_write(const char *path, unsigned mode);
// Where the recording goes, its name expanded; false: nowhere, and the path is "".
bool berm__leaving_path(char *path, size_t capacity);

#endif
