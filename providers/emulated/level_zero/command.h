/* Commands: what a list holds and a queue carries out.
 *
 * A command names events by handle, and looks for them when its turn comes, as a list may outlive
 * them.
 */
#ifndef UMFPY_LEVEL_ZERO_COMMAND_H
#define UMFPY_LEVEL_ZERO_COMMAND_H

#include "objects.h"

#define LZ_LARGEST_PATTERN 128

enum lz_command_kind { LZ_NOTHING, LZ_COPY, LZ_FILL, LZ_RESET_EVENT, LZ_SIGNAL_FENCE };

struct lz_command {
    struct lz_command *next;
    enum lz_command_kind kind;
    uint64_t to, from, size;
    uint32_t pattern_size;
    unsigned char pattern[LZ_LARGEST_PATTERN];
    ze_event_handle_t reset;
    ze_fence_handle_t fence;
    ze_event_handle_t signal; /* when done, or NULL */
    uint32_t waits;
    ze_event_handle_t wait[]; /* before it begins */
};

/* Commands in order; `last` is where the next one is linked in. */
struct lz_commands {
    struct lz_command *first, **last;
};

void lz_commands_init(struct lz_commands *commands);
void lz_commands_add(struct lz_commands *commands, struct lz_command *command);
struct lz_command *lz_commands_take(struct lz_commands *commands);
void lz_commands_clear(struct lz_commands *commands);

/* A new command like this one, but waiting for these events; NULL: the host has no room. */
struct lz_command *lz_command_make(const struct lz_command *like, uint32_t waits,
                                   const ze_event_handle_t *events);

/* May its memory be used so now?  (It is asked again when its turn comes.) */
bool lz_command_is_possible(const struct lz_command *command);

/* Has all that it waits for been signalled? */
bool lz_command_is_ready(const struct lz_command *command);

/* Do it, and signal its event; false where memory or an event is gone. */
bool lz_command_run(const struct lz_command *command, struct emu_queue *queue);

#endif
