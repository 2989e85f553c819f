// SPDX-License-Identifier: Apache-2.0
// Symbols of the simulated driver that a test is not linked with.
#ifndef BERM_TESTS_SIMCUDA_FORWARD_H
#define BERM_TESTS_SIMCUDA_FORWARD_H

// The address of a function of the library that BERM_LIBCUDA_SIM names; aborts if there is none.
void *simcuda_symbol(const char *name);

#endif
