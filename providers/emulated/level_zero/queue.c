/* Command queues, and the fences that say how far one has come. */
#include "queue.h"

#include <stdlib.h>

ze_result_t lz_check_queue(ze_command_queue_handle_t queue) {
    LZ_REQUIRE(queue, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(lz_find(LZ_QUEUE, queue), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandQueueCreate,
        (ze_context_handle_t context, ze_device_handle_t device,
         const ze_command_queue_desc_t *wanted, ze_command_queue_handle_t *queue),
        (context, device, wanted, queue)) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_POINTER(queue);
    ze_command_queue_handle_t made = calloc(1, sizeof *made);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    ze_result_t result = lz_engine_open(&made->engine, device, wanted);
    if (result) {
        free(made);
        return result;
    }
    lz_add(&made->object, LZ_QUEUE, context, (int)device->ordinal);
    *queue = made;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandQueueDestroy, (ze_command_queue_handle_t queue), (queue)) {
    LZ_CHECK(lz_check_queue(queue));
    LZ_REQUIRE(!queue->engine.held.first && !lz_is_owner(LZ_FENCE, queue),
               ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    lz_engine_close(&queue->engine);
    lz_remove(&queue->object);
    free(queue);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_fence(ze_fence_handle_t fence) {
    LZ_REQUIRE(fence, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(lz_find(LZ_FENCE, fence), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

/* Lists are closed, regular, and made for the queue's group and device. */
static ze_result_t check_lists(ze_command_queue_handle_t queue, uint32_t count,
                               ze_command_list_handle_t *lists) {
    LZ_POINTER(lists);
    LZ_REQUIRE(count, ZE_RESULT_ERROR_INVALID_SIZE);
    for (uint32_t i = 0; i < count; i++) {
        LZ_CHECK(lz_check_list(lists[i]));
        LZ_REQUIRE(!lists[i]->immediate && lists[i]->ordinal == queue->engine.ordinal,
                   ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        LZ_REQUIRE(lists[i]->closed && lists[i]->object.device == queue->object.device,
                   ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    return ZE_RESULT_SUCCESS;
}

/* Add a copy of each command; a list may be submitted again. */
static bool copy_commands(struct lz_commands *to, const struct lz_commands *from) {
    for (const struct lz_command *one = from->first; one; one = one->next) {
        struct lz_command *made = lz_command_make(one, one->waits, one->wait);
        if (!made)
            return false;
        lz_commands_add(to, made);
    }
    return true;
}

/* All of it, the fence last; false where the host has no room for all of it. */
static bool collect(struct lz_commands *all, uint32_t count, ze_command_list_handle_t *lists,
                    ze_fence_handle_t fence) {
    const struct lz_command signal = {.kind = LZ_SIGNAL_FENCE, .fence = fence};
    for (uint32_t i = 0; i < count; i++)
        if (!copy_commands(all, &lists[i]->commands))
            return false;
    struct lz_command *last = fence ? lz_command_make(&signal, 0, NULL) : NULL;
    if (last)
        lz_commands_add(all, last);
    return !fence || last;
}

LZ_CALL(zeCommandQueueExecuteCommandLists,
        (ze_command_queue_handle_t queue, uint32_t count, ze_command_list_handle_t *lists,
         ze_fence_handle_t fence),
        (queue, count, lists, fence)) {
    struct lz_commands all;
    struct lz_command *command;
    LZ_CHECK(lz_check_queue(queue));
    LZ_CHECK(check_lists(queue, count, lists));
    if (fence)
        LZ_CHECK(check_fence(fence));
    LZ_REQUIRE(!fence || fence->object.owner == queue, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    lz_commands_init(&all);
    if (!collect(&all, count, lists, fence)) {
        lz_commands_clear(&all);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    while ((command = lz_commands_take(&all)))
        lz_engine_submit(&queue->engine, command);
    return lz_engine_submitted(&queue->engine);
}

LZ_CALL(zeCommandQueueSynchronize, (ze_command_queue_handle_t queue, uint64_t timeout),
        (queue, timeout)) {
    LZ_CHECK(lz_check_queue(queue));
    return lz_engine_finish(&queue->engine, timeout);
}

LZ_CALL(zeCommandQueueGetOrdinal, (ze_command_queue_handle_t queue, uint32_t *ordinal),
        (queue, ordinal)) {
    LZ_CHECK(lz_check_queue(queue));
    LZ_POINTER(ordinal);
    *ordinal = queue->engine.ordinal;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandQueueGetIndex, (ze_command_queue_handle_t queue, uint32_t *index),
        (queue, index)) {
    LZ_CHECK(lz_check_queue(queue));
    LZ_POINTER(index);
    *index = queue->engine.index;
    return ZE_RESULT_SUCCESS;
}

/* Fences. */

LZ_CALL(zeFenceCreate,
        (ze_command_queue_handle_t queue, const ze_fence_desc_t *wanted, ze_fence_handle_t *fence),
        (queue, wanted, fence)) {
    LZ_CHECK(lz_check_queue(queue));
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_FENCE_DESC));
    LZ_POINTER(fence);
    LZ_REQUIRE(wanted->flags <= ZE_FENCE_FLAG_SIGNALED, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    ze_fence_handle_t made = calloc(1, sizeof *made);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    made->signalled = wanted->flags & ZE_FENCE_FLAG_SIGNALED;
    lz_add(&made->object, LZ_FENCE, queue, queue->object.device);
    *fence = made;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeFenceDestroy, (ze_fence_handle_t fence), (fence)) {
    LZ_CHECK(check_fence(fence));
    lz_remove(&fence->object);
    free(fence);
    return ZE_RESULT_SUCCESS;
}

static bool is_signalled(const void *object) {
    ze_fence_handle_t fence = lz_find(LZ_FENCE, object);
    return !fence || fence->signalled;
}

LZ_CALL(zeFenceHostSynchronize, (ze_fence_handle_t fence, uint64_t timeout), (fence, timeout)) {
    LZ_CHECK(check_fence(fence));
    LZ_CHECK(lz_wait(is_signalled, fence, timeout));
    LZ_CHECK(check_fence(fence));
    emu_clock_reach(fence->ended);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeFenceQueryStatus, (ze_fence_handle_t fence), (fence)) {
    LZ_CHECK(check_fence(fence));
    return fence->signalled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

LZ_CALL(zeFenceReset, (ze_fence_handle_t fence), (fence)) {
    LZ_CHECK(check_fence(fence));
    fence->signalled = false;
    return ZE_RESULT_SUCCESS;
}
