/* The control interface of the emulated CUDA driver: the functions of ../model/control.h, and one
 * more.  The environment variable UMFPY_EMULATE_CUDA holds the settings to start with. */
#ifndef UMFPY_CUDA_CONTROL_H
#define UMFPY_CUDA_CONTROL_H

#include "../model/control.h"

/* How many nodes of launched graphs would have touched memory that is not theirs any more; counted
 * since the calls were last reset. */
uint64_t umfpyEmuIllegalAccesses(void);

#endif
