/* Work: commands, the queues that carry them out, and what they wait for.
 *
 * A command is done when it is submitted, unless it waits for an event that nobody has signalled
 * yet: then it and all that follow it on its queue are held back, until a signal, by the host or
 * by another queue, lets them go on.  That is one of the orders a device may choose.
 */
#ifndef UMFPY_LEVEL_ZERO_QUEUE_H
#define UMFPY_LEVEL_ZERO_QUEUE_H

#include "driver.h"

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

struct lz_commands {
    struct lz_command *first, **last; /* last: where the next one is linked in */
};

void lz_commands_init(struct lz_commands *commands);
void lz_commands_add(struct lz_commands *commands, struct lz_command *command);
void lz_commands_clear(struct lz_commands *commands);

/* A copy that waits for nothing else and is in no list; NULL: the host has no room. */
struct lz_command *lz_command_copy(const struct lz_command *command);

/* What carries commands out: a command queue, or an immediate list. */
struct lz_engine {
    struct emu_queue queue;
    uint32_t ordinal, index; /* of the group, and in it */
    bool synchronous;
    bool lost;                     /* a command failed when its turn came */
    struct lz_commands held;       /* from the first that waits */
    struct lz_engine *next_engine; /* in the list of all */
};

ze_result_t lz_engine_open(struct lz_engine *engine, ze_device_handle_t device,
                           const ze_command_queue_desc_t *wanted);
void lz_engine_close(struct lz_engine *engine);

/* Hand over one command, which is the engine's from now on. */
void lz_engine_submit(struct lz_engine *engine, struct lz_command *command);

/* Wait until all is done: NOT_READY where `timeout` nanoseconds were not enough, DEVICE_LOST where
 * a command failed.  The lock is given back while waiting. */
ze_result_t lz_engine_finish(struct lz_engine *engine, uint64_t timeout);

/* An event was signalled: whoever waits for it goes on. */
void lz_engines_advance(void);

/* Wait until `is_done` says so, or for `timeout` nanoseconds; the lock is given back meanwhile. */
ze_result_t lz_wait(bool (*is_done)(const void *), const void *object, uint64_t timeout);

struct _ze_command_queue_handle_t {
    struct lz_object object;
    struct lz_engine engine;
};

struct _ze_command_list_handle_t {
    struct lz_object object;
    ze_context_handle_t context;
    ze_device_handle_t device;
    uint32_t ordinal;
    bool immediate, closed;
    struct lz_engine engine;     /* of an immediate list */
    struct lz_commands commands; /* of a regular one */
};

struct _ze_event_pool_handle_t {
    struct lz_object object;
    ze_context_handle_t context;
    uint32_t flags, count;
    bool used[]; /* by index */
};

struct _ze_event_handle_t {
    struct lz_object object;
    ze_event_pool_handle_t pool;
    uint32_t index;
    bool signalled;
    uint64_t began, ended; /* of the command that signalled it, on the virtual clock */
};

struct _ze_fence_handle_t {
    struct lz_object object;
    ze_command_queue_handle_t queue;
    bool signalled;
    uint64_t ended;
};

/* event.c */
ze_result_t lz_check_event(ze_event_handle_t event);
ze_result_t lz_check_events(uint32_t count, const ze_event_handle_t *events);

#endif
