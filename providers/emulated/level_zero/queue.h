/* Command queues and command lists. */
#ifndef UMFPY_LEVEL_ZERO_QUEUE_H
#define UMFPY_LEVEL_ZERO_QUEUE_H

#include "engine.h"

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

ze_result_t lz_check_queue(ze_command_queue_handle_t queue);
ze_result_t lz_check_list(ze_command_list_handle_t list);

#endif
