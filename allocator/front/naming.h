// SPDX-License-Identifier: Apache-2.0
// Names of files that berm writes, with what tells the processes of a job apart:
//   %p  the process's number
//   %r  its rank, as torchrun, Open MPI, MPICH or Slurm say it in the environment; 0 without them
//   %h  the host's name up to its first dot
#ifndef BERM_FRONT_NAMING_H
#define BERM_FRONT_NAMING_H

#include <stdbool.h>

#include "base/defs.h"

// Expands `from` into `to`; what does not fit is cut off.
void berm__name_expand(const char *from, char *to, size_t capacity);
// RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID, the first that is a number; else "0".
const char *berm__rank_text(void);
// The host's name up to its first dot; at least two bytes.
void berm__host_text(char *text, size_t capacity);

#endif
