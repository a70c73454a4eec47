/* The one lock of the model, and what becomes of it in a forked child.
 *
 * A child that was forked after the driver was used has the parent's memory but not its device:
 * it is told so by every call and touches nothing.  CUDA C++ Programming Guide, "Initialization".
 */
#ifndef UMFPY_MODEL_LOCK_H
#define UMFPY_MODEL_LOCK_H

#include "common.h"

void emu_lock(void);
void emu_unlock(void);

/* From now on a fork leaves the child without a driver. */
void emu_lock_watch_forks(void);

/* Is this a child that was forked after that?  Needs no lock. */
bool emu_is_orphan(void);

#endif
