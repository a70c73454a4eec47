/* Events, their pools, and fences: what is waited for. */
#ifndef UMFPY_LEVEL_ZERO_OBJECTS_H
#define UMFPY_LEVEL_ZERO_OBJECTS_H

#include "driver.h"

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
    uint64_t began, ended; /* of what signalled it, on the virtual clock */
};

struct _ze_fence_handle_t {
    struct lz_object object; /* owned by its queue */
    bool signalled;
    uint64_t ended;
};

/* event.c: INVALID_SYNCHRONIZATION_OBJECT where one is not alive. */
ze_result_t lz_check_wait(uint32_t count, const ze_event_handle_t *events);
ze_result_t lz_check_signal(ze_event_handle_t event_or_null);

#endif
