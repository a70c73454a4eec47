/* Engines: what carries commands out, be it a command queue or an immediate list.
 *
 * A command is done when it is submitted, unless it waits for an event that nobody has signalled
 * yet: then it and all that follow it on its engine are held back, until a signal, by the host or
 * by another engine, lets them go on.  That is one of the orders a device may choose.
 */
#ifndef UMFPY_LEVEL_ZERO_ENGINE_H
#define UMFPY_LEVEL_ZERO_ENGINE_H

#include "command.h"

struct lz_engine {
    struct emu_queue queue;
    uint32_t ordinal, index; /* its group, and which one of it */
    bool synchronous;
    bool lost;               /* a command failed when its turn came */
    struct lz_commands held; /* the first of which waits */
    struct lz_engine *next;  /* in the list of all */
};

/* Check the description and set the engine up. */
ze_result_t lz_engine_open(struct lz_engine *engine, ze_device_handle_t device,
                           const ze_command_queue_desc_t *wanted);
void lz_engine_close(struct lz_engine *engine);

/* Hand over one command, which is the engine's from now on. */
void lz_engine_submit(struct lz_engine *engine, struct lz_command *command);

/* What a submission answers: a synchronous engine finishes first. */
ze_result_t lz_engine_submitted(struct lz_engine *engine);

/* Wait until all is done: NOT_READY where `timeout` nanoseconds were not enough, DEVICE_LOST where
 * a command failed. */
ze_result_t lz_engine_finish(struct lz_engine *engine, uint64_t timeout);

/* An event was signalled: whoever waits for it goes on. */
void lz_engines_advance(void);

/* Wait until `is_done` says so, or for `timeout` nanoseconds (UINT64_MAX: for ever).  The lock is
 * given back meanwhile, so that `object` may be gone when it is asked about. */
ze_result_t lz_wait(bool (*is_done)(const void *object), const void *object, uint64_t timeout);

#endif
