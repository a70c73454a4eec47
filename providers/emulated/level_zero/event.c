/* Events and their pools: signalled by the host or by a command, waited for by either. */
#include "engine.h"

#include <stdlib.h>

#define POOL_FLAGS 0xfu
#define SCOPES 0x7u

static ze_result_t check_pool(ze_event_pool_handle_t pool) {
    LZ_REQUIRE(pool, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(lz_find(LZ_EVENT_POOL, pool), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_event(ze_event_handle_t event) {
    LZ_REQUIRE(event, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(lz_find(LZ_EVENT, event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

ze_result_t lz_check_signal(ze_event_handle_t event) {
    LZ_REQUIRE(!event || lz_find(LZ_EVENT, event), ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    return ZE_RESULT_SUCCESS;
}

ze_result_t lz_check_wait(uint32_t count, const ze_event_handle_t *events) {
    LZ_REQUIRE(events || !count, ZE_RESULT_ERROR_INVALID_SIZE);
    for (uint32_t i = 0; i < count; i++)
        LZ_REQUIRE(lz_find(LZ_EVENT, events[i]), ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_devices(ze_context_handle_t context, uint32_t count,
                                 ze_device_handle_t *devices) {
    LZ_REQUIRE(devices || !count, ZE_RESULT_ERROR_INVALID_SIZE);
    for (uint32_t i = 0; i < count; i++)
        LZ_CHECK(lz_check_place(context, devices[i]));
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventPoolCreate,
        (ze_context_handle_t context, const ze_event_pool_desc_t *wanted, uint32_t count,
         ze_device_handle_t *devices, ze_event_pool_handle_t *pool),
        (context, wanted, count, devices, pool)) {
    LZ_CHECK(lz_check_context(context));
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC));
    LZ_POINTER(pool);
    LZ_REQUIRE(wanted->flags <= POOL_FLAGS, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    LZ_REQUIRE(wanted->count, ZE_RESULT_ERROR_INVALID_SIZE);
    LZ_CHECK(check_devices(context, count, devices));
    ze_event_pool_handle_t made = calloc(1, sizeof *made + wanted->count * sizeof *made->used);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    made->context = context;
    made->flags = wanted->flags;
    made->count = wanted->count;
    lz_add(&made->object, LZ_EVENT_POOL, context, -1);
    *pool = made;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventPoolDestroy, (ze_event_pool_handle_t pool), (pool)) {
    LZ_CHECK(check_pool(pool));
    LZ_REQUIRE(!lz_is_owner(LZ_EVENT, pool), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    lz_remove(&pool->object);
    free(pool);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventPoolGetContextHandle, (ze_event_pool_handle_t pool, ze_context_handle_t *context),
        (pool, context)) {
    LZ_CHECK(check_pool(pool));
    LZ_POINTER(context);
    *context = pool->context;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventPoolGetFlags, (ze_event_pool_handle_t pool, uint32_t *flags), (pool, flags)) {
    LZ_CHECK(check_pool(pool));
    LZ_POINTER(flags);
    *flags = pool->flags;
    return ZE_RESULT_SUCCESS;
}

/* A place in the pool is one event's at a time. */
LZ_CALL(zeEventCreate,
        (ze_event_pool_handle_t pool, const ze_event_desc_t *wanted, ze_event_handle_t *event),
        (pool, wanted, event)) {
    LZ_CHECK(check_pool(pool));
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_EVENT_DESC));
    LZ_POINTER(event);
    LZ_REQUIRE(wanted->signal <= SCOPES && wanted->wait <= SCOPES,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    LZ_REQUIRE(wanted->index < pool->count && !pool->used[wanted->index],
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ze_event_handle_t made = calloc(1, sizeof *made);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    made->pool = pool;
    made->index = wanted->index;
    pool->used[made->index] = true;
    lz_add(&made->object, LZ_EVENT, pool, -1);
    *event = made;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventDestroy, (ze_event_handle_t event), (event)) {
    LZ_CHECK(check_event(event));
    event->pool->used[event->index] = false;
    lz_remove(&event->object);
    free(event);
    lz_engines_advance(); /* whoever waits for it waits in vain, and is lost */
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventHostSignal, (ze_event_handle_t event), (event)) {
    LZ_CHECK(check_event(event));
    event->signalled = true;
    event->began = event->ended = emu_clock_now();
    lz_engines_advance();
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventHostReset, (ze_event_handle_t event), (event)) {
    LZ_CHECK(check_event(event));
    event->signalled = false;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventQueryStatus, (ze_event_handle_t event), (event)) {
    LZ_CHECK(check_event(event));
    return event->signalled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

static bool is_signalled(const void *object) {
    ze_event_handle_t event = lz_find(LZ_EVENT, object);
    return !event || event->signalled;
}

LZ_CALL(zeEventHostSynchronize, (ze_event_handle_t event, uint64_t timeout), (event, timeout)) {
    LZ_CHECK(check_event(event));
    LZ_CHECK(lz_wait(is_signalled, event, timeout));
    LZ_CHECK(check_event(event));
    emu_clock_reach(event->ended);
    return ZE_RESULT_SUCCESS;
}

/* Of whatever signalled it, as there are no kernels; in nanoseconds of the virtual clock. */
LZ_CALL(zeEventQueryKernelTimestamp, (ze_event_handle_t event, ze_kernel_timestamp_result_t *times),
        (event, times)) {
    LZ_CHECK(check_event(event));
    LZ_POINTER(times);
    LZ_REQUIRE(event->pool->flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (!event->signalled)
        return ZE_RESULT_NOT_READY;
    times->global = times->context =
        (ze_kernel_timestamp_data_t){.kernelStart = event->began, .kernelEnd = event->ended};
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeEventGetEventPool, (ze_event_handle_t event, ze_event_pool_handle_t *pool),
        (event, pool)) {
    LZ_CHECK(check_event(event));
    LZ_POINTER(pool);
    *pool = event->pool;
    return ZE_RESULT_SUCCESS;
}
