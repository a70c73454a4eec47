#define _GNU_SOURCE
#include "engine.h"

#include <stdlib.h>
#include <time.h>

static struct lz_engine *engines;

#define QUEUE_FLAGS 0x3u

static ze_result_t check_description(const ze_command_queue_desc_t *wanted) {
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC));
    LZ_REQUIRE(wanted->flags <= QUEUE_FLAGS && (unsigned)wanted->mode <= 2 &&
                   (unsigned)wanted->priority <= 2,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    const ze_command_queue_group_properties_t *group = lz_group(wanted->ordinal);
    LZ_REQUIRE(group && wanted->index < group->numQueues, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

ze_result_t lz_engine_open(struct lz_engine *engine, ze_device_handle_t device,
                           const ze_command_queue_desc_t *wanted) {
    LZ_CHECK(check_description(wanted));
    *engine = (struct lz_engine){
        .queue = {.device = device->ordinal, .end = emu_clock_now()},
        .ordinal = wanted->ordinal,
        .index = wanted->index,
        .synchronous = wanted->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        .next = engines,
    };
    lz_commands_init(&engine->held);
    engines = engine;
    return ZE_RESULT_SUCCESS;
}

void lz_engine_close(struct lz_engine *engine) {
    struct lz_engine **link = &engines;
    while (*link != engine)
        link = &(*link)->next;
    *link = engine->next;
    lz_commands_clear(&engine->held);
}

/* Do what can be done; was anything? */
static bool advance(struct lz_engine *engine) {
    bool any = false;
    while (engine->held.first && lz_command_is_ready(engine->held.first)) {
        struct lz_command *command = lz_commands_take(&engine->held);
        engine->lost |= !lz_command_run(command, &engine->queue);
        free(command);
        any = true;
    }
    return any;
}

/* What one engine signals may let another go on, and so forth. */
void lz_engines_advance(void) {
    bool any;
    do {
        any = false;
        for (struct lz_engine *engine = engines; engine; engine = engine->next)
            any |= advance(engine);
    } while (any);
}

void lz_engine_submit(struct lz_engine *engine, struct lz_command *command) {
    lz_commands_add(&engine->held, command);
    lz_engines_advance();
}

ze_result_t lz_engine_submitted(struct lz_engine *engine) {
    if (engine->synchronous)
        return lz_engine_finish(engine, UINT64_MAX);
    return engine->lost ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

static bool is_open(const struct lz_engine *engine) {
    for (struct lz_engine *one = engines; one; one = one->next)
        if (one == engine)
            return true;
    return false;
}

static bool is_idle(const void *object) {
    const struct lz_engine *engine = object;
    return !is_open(engine) || !engine->held.first;
}

ze_result_t lz_engine_finish(struct lz_engine *engine, uint64_t timeout) {
    LZ_CHECK(lz_wait(is_idle, engine, timeout));
    LZ_REQUIRE(is_open(engine), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    emu_queue_finish(&engine->queue);
    return engine->lost ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

static uint64_t host_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Only another thread can bring what is missing, and it can only while the lock is free. */
ze_result_t lz_wait(bool (*is_done)(const void *), const void *object, uint64_t timeout) {
    static const struct timespec a_moment = {.tv_nsec = 50000};
    uint64_t began = is_done(object) ? 0 : host_time();
    while (!is_done(object)) {
        if (timeout != UINT64_MAX && host_time() - began >= timeout)
            return ZE_RESULT_NOT_READY;
        emu_unlock();
        nanosleep(&a_moment, NULL);
        emu_lock();
    }
    return ZE_RESULT_SUCCESS;
}
