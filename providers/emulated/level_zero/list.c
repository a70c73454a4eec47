/* Command lists: regular ones, which are closed and then given to a queue, and immediate ones,
 * which are a queue of their own. */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

#define LIST_FLAGS 0x1fu

ze_result_t lz_check_list(ze_command_list_handle_t list) {
    LZ_REQUIRE(list, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(lz_find(LZ_LIST, list), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

static ze_command_list_handle_t new_list(ze_context_handle_t context, ze_device_handle_t device) {
    ze_command_list_handle_t made = calloc(1, sizeof *made);
    if (made) {
        made->context = context;
        made->device = device;
        lz_commands_init(&made->commands);
    }
    return made;
}

LZ_CALL(zeCommandListCreate,
        (ze_context_handle_t context, ze_device_handle_t device,
         const ze_command_list_desc_t *wanted, ze_command_list_handle_t *list),
        (context, device, wanted, list)) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC));
    LZ_POINTER(list);
    LZ_REQUIRE(wanted->flags <= LIST_FLAGS, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    LZ_REQUIRE(lz_group(wanted->commandQueueGroupOrdinal), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ze_command_list_handle_t made = new_list(context, device);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    made->ordinal = wanted->commandQueueGroupOrdinal;
    lz_add(&made->object, LZ_LIST, context, (int)device->ordinal);
    *list = made;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListCreateImmediate,
        (ze_context_handle_t context, ze_device_handle_t device,
         const ze_command_queue_desc_t *wanted, ze_command_list_handle_t *list),
        (context, device, wanted, list)) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_POINTER(list);
    ze_command_list_handle_t made = new_list(context, device);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    ze_result_t result = lz_engine_open(&made->engine, device, wanted);
    if (result) {
        free(made);
        return result;
    }
    made->immediate = true;
    made->ordinal = wanted->ordinal;
    lz_add(&made->object, LZ_LIST, context, (int)device->ordinal);
    *list = made;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListDestroy, (ze_command_list_handle_t list), (list)) {
    LZ_CHECK(lz_check_list(list));
    if (list->immediate) {
        LZ_REQUIRE(!list->engine.held.first, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
        lz_engine_close(&list->engine);
    }
    lz_commands_clear(&list->commands);
    lz_remove(&list->object);
    free(list);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_regular(ze_command_list_handle_t list) {
    LZ_CHECK(lz_check_list(list));
    LZ_REQUIRE(!list->immediate, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListClose, (ze_command_list_handle_t list), (list)) {
    LZ_CHECK(check_regular(list));
    LZ_REQUIRE(!list->closed, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    list->closed = true;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListReset, (ze_command_list_handle_t list), (list)) {
    LZ_CHECK(check_regular(list));
    lz_commands_clear(&list->commands);
    list->closed = false;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListHostSynchronize, (ze_command_list_handle_t list, uint64_t timeout),
        (list, timeout)) {
    LZ_CHECK(lz_check_list(list));
    LZ_REQUIRE(list->immediate, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return lz_engine_finish(&list->engine, timeout);
}

LZ_CALL(zeCommandListGetDeviceHandle, (ze_command_list_handle_t list, ze_device_handle_t *device),
        (list, device)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(device);
    *device = list->device;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListGetContextHandle,
        (ze_command_list_handle_t list, ze_context_handle_t *context), (list, context)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(context);
    *context = list->context;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListGetOrdinal, (ze_command_list_handle_t list, uint32_t *ordinal),
        (list, ordinal)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(ordinal);
    *ordinal = list->ordinal;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListImmediateGetIndex, (ze_command_list_handle_t list, uint32_t *index),
        (list, index)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(index);
    LZ_REQUIRE(list->immediate, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    *index = list->engine.index;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeCommandListIsImmediate, (ze_command_list_handle_t list, ze_bool_t *immediate),
        (list, immediate)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(immediate);
    *immediate = list->immediate;
    return ZE_RESULT_SUCCESS;
}

/* Appending.  What a command does with memory is checked here, so that a mistake is answered where
 * it is made; and again when its turn comes. */

static ze_result_t append(ze_command_list_handle_t list, struct lz_command command,
                          ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events) {
    LZ_CHECK(lz_check_list(list));
    LZ_REQUIRE(!list->closed, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    LZ_CHECK(lz_check_signal(signal));
    LZ_CHECK(lz_check_wait(waits, events));
    LZ_REQUIRE(lz_command_is_possible(&command), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    command.signal = signal;
    struct lz_command *made = lz_command_make(&command, waits, events);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    if (!list->immediate) {
        lz_commands_add(&list->commands, made);
        return ZE_RESULT_SUCCESS;
    }
    lz_engine_submit(&list->engine, made);
    return lz_engine_submitted(&list->engine);
}

static const struct lz_command nothing = {.kind = LZ_NOTHING};

LZ_CALL(zeCommandListAppendBarrier,
        (ze_command_list_handle_t list, ze_event_handle_t signal, uint32_t waits,
         ze_event_handle_t *events),
        (list, signal, waits, events)) {
    return append(list, nothing, signal, waits, events);
}

LZ_CALL(zeCommandListAppendMemoryRangesBarrier,
        (ze_command_list_handle_t list, uint32_t count, const size_t *sizes, const void **ranges,
         ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events),
        (list, count, sizes, ranges, signal, waits, events)) {
    LZ_POINTER(sizes);
    LZ_POINTER(ranges);
    LZ_REQUIRE(count, ZE_RESULT_ERROR_INVALID_SIZE);
    return append(list, nothing, signal, waits, events);
}

static ze_result_t append_copy(ze_command_list_handle_t list, void *to, const void *from,
                               size_t size, ze_event_handle_t signal, uint32_t waits,
                               ze_event_handle_t *events) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(to);
    LZ_POINTER(from);
    struct lz_command command = {
        .kind = LZ_COPY, .to = (uintptr_t)to, .from = (uintptr_t)from, .size = size};
    return append(list, command, signal, waits, events);
}

LZ_CALL(zeCommandListAppendMemoryCopy,
        (ze_command_list_handle_t list, void *to, const void *from, size_t size,
         ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events),
        (list, to, from, size, signal, waits, events)) {
    return append_copy(list, to, from, size, signal, waits, events);
}

LZ_CALL(zeCommandListAppendMemoryCopyFromContext,
        (ze_command_list_handle_t list, void *to, ze_context_handle_t context, const void *from,
         size_t size, ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events),
        (list, to, context, from, size, signal, waits, events)) {
    LZ_CHECK(lz_check_list(list));
    LZ_CHECK(lz_check_context(context));
    return append_copy(list, to, from, size, signal, waits, events);
}

static bool is_power_of_two(size_t size) { return size && !(size & (size - 1)); }

/* The pattern is the caller's again when this returns. */
LZ_CALL(zeCommandListAppendMemoryFill,
        (ze_command_list_handle_t list, void *to, const void *pattern, size_t pattern_size,
         size_t size, ze_event_handle_t signal, uint32_t waits, ze_event_handle_t *events),
        (list, to, pattern, pattern_size, size, signal, waits, events)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(to);
    LZ_POINTER(pattern);
    LZ_REQUIRE(is_power_of_two(pattern_size) &&
                   pattern_size <= lz_group(list->ordinal)->maxMemoryFillPatternSize,
               ZE_RESULT_ERROR_INVALID_SIZE);
    struct lz_command command = {
        .kind = LZ_FILL, .to = (uintptr_t)to, .size = size, .pattern_size = (uint32_t)pattern_size};
    memcpy(command.pattern, pattern, pattern_size);
    return append(list, command, signal, waits, events);
}

LZ_CALL(zeCommandListAppendSignalEvent, (ze_command_list_handle_t list, ze_event_handle_t event),
        (list, event)) {
    LZ_CHECK(lz_check_list(list));
    LZ_REQUIRE(event, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    return append(list, nothing, event, 0, NULL);
}

LZ_CALL(zeCommandListAppendWaitOnEvents,
        (ze_command_list_handle_t list, uint32_t count, ze_event_handle_t *events),
        (list, count, events)) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(events);
    return append(list, nothing, NULL, count, events);
}

LZ_CALL(zeCommandListAppendEventReset, (ze_command_list_handle_t list, ze_event_handle_t event),
        (list, event)) {
    LZ_CHECK(lz_check_list(list));
    LZ_REQUIRE(event, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_CHECK(lz_check_signal(event));
    struct lz_command command = {.kind = LZ_RESET_EVENT, .reset = event};
    return append(list, command, NULL, 0, NULL);
}

/* Hints about shared memory are checked, not kept. */

static ze_result_t check_hint(ze_command_list_handle_t list, const void *address, size_t size) {
    LZ_CHECK(lz_check_list(list));
    LZ_POINTER(address);
    struct emu_memory *memory = emu_memory_find((uintptr_t)address);
    bool inside =
        memory && size &&
        size <= memory->object.node.size - ((uintptr_t)address - memory->object.node.base);
    LZ_REQUIRE(inside, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return append(list, nothing, NULL, 0, NULL);
}

LZ_CALL(zeCommandListAppendMemoryPrefetch,
        (ze_command_list_handle_t list, const void *address, size_t size), (list, address, size)) {
    return check_hint(list, address, size);
}

LZ_CALL(zeCommandListAppendMemAdvise,
        (ze_command_list_handle_t list, ze_device_handle_t device, const void *address, size_t size,
         uint32_t advice),
        (list, device, address, size, advice)) {
    LZ_CHECK(lz_check_device(device));
    LZ_REQUIRE(advice <= 9, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    return check_hint(list, address, size);
}
