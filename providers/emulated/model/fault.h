/* Calls counted by name, and faults to order: the nth call from now answers an error.
 *
 * A driver gives each of its functions a number; the counters are by that number.
 */
#ifndef UMFPY_MODEL_FAULT_H
#define UMFPY_MODEL_FAULT_H

#include "common.h"

#define EMU_CALLS 512     /* most functions of one driver */
#define EMU_ANY_CALL (-1) /* a fault for whichever call comes, look-ups aside */

/* Count one call; the error it must answer, or 0 for none.  A look-up (of a function, of an error's
 * name) fails only when it was named itself. */
int emu_call_count(int call, bool lookup);

/* Let calls nth .. nth + times - 1 from now answer `error`; false: too many faults are waiting. */
bool emu_fault_add(int call, uint64_t nth, uint64_t times, int error);
void emu_fault_clear(void);

uint64_t emu_calls_of(int call);
void emu_calls_reset(void);

#endif
