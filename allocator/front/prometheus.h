// SPDX-License-Identifier: Apache-2.0
// The thread of the option prometheus: once a second it writes the statistics of every device, and
// of its pools, as a text file in the form that node_exporter's textfile collector reads.
#ifndef BERM_FRONT_PROMETHEUS_H
#define BERM_FRONT_PROMETHEUS_H

// Both with the heap's lock held. Start does nothing without the option; where there is no thread
// to be had, a line says so. Stop takes the file away: what is written is of a process that runs.
void berm__prometheus_start(void);
void berm__prometheus_stop(void);

#endif
