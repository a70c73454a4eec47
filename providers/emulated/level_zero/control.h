/* The control interface of the emulated Level Zero driver: the functions of ../model/control.h, and
 * one more.  The environment variable UMFPY_EMULATE_LEVEL_ZERO holds the settings to start with. */
#ifndef UMFPY_LEVEL_ZERO_CONTROL_H
#define UMFPY_LEVEL_ZERO_CONTROL_H

#include "../model/control.h"

/* How many times more the allocation that holds `address` was made resident on `device` than
 * evicted from it. */
uint64_t umfpyEmuResidency(uint64_t address, unsigned device);

#endif
