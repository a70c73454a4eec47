/* Contexts: what memory, queues and events belong to. */
#include "driver.h"

#include <stdlib.h>

ze_result_t lz_check_context(ze_context_handle_t context) {
    LZ_REQUIRE(context, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(lz_find(LZ_CONTEXT, context), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

ze_result_t lz_check_place(ze_context_handle_t context, ze_device_handle_t device) {
    LZ_CHECK(lz_check_context(context));
    LZ_CHECK(lz_check_device(device));
    LZ_REQUIRE(context->devices >> device->ordinal & 1, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t create(uint32_t devices, ze_context_handle_t *context) {
    ze_context_handle_t made = calloc(1, sizeof *made);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    made->devices = devices;
    lz_add(&made->object, LZ_CONTEXT, NULL, -1);
    *context = made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_description(ze_driver_handle_t driver, const ze_context_desc_t *wanted,
                                     const ze_context_handle_t *context) {
    LZ_CHECK(lz_check_driver(driver));
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_CONTEXT_DESC));
    LZ_POINTER(context);
    LZ_REQUIRE(wanted->flags <= 1, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    return ZE_RESULT_SUCCESS;
}

#define EVERY_DEVICE ((1u << EMU_DEVICES) - 1)

LZ_CALL(zeContextCreate,
        (ze_driver_handle_t driver, const ze_context_desc_t *wanted, ze_context_handle_t *context),
        (driver, wanted, context)) {
    LZ_CHECK(check_description(driver, wanted, context));
    return create(EVERY_DEVICE, context);
}

LZ_CALL(zeContextCreateEx,
        (ze_driver_handle_t driver, const ze_context_desc_t *wanted, uint32_t count,
         ze_device_handle_t *devices, ze_context_handle_t *context),
        (driver, wanted, count, devices, context)) {
    uint32_t bits = 0;
    LZ_CHECK(check_description(driver, wanted, context));
    LZ_REQUIRE(devices || !count, ZE_RESULT_ERROR_INVALID_SIZE);
    for (uint32_t i = 0; i < count; i++) {
        LZ_CHECK(lz_check_device(devices[i]));
        bits |= 1u << devices[i]->ordinal;
    }
    return create(count ? bits : EVERY_DEVICE, context);
}

/* The specification lets a driver free what belongs to the context, or say that it is in use: this
 * one says so, because a leak that is cleaned up is a leak that nobody finds. */
static bool is_in_use(ze_context_handle_t context) {
    static const enum emu_kind memory[] = {EMU_DEVICE_MEMORY, EMU_HOST_MEMORY, EMU_MANAGED,
                                           EMU_RESERVATION,   EMU_PHYSICAL,    EMU_OPEN};
    for (int kind = 0; kind < LZ_KINDS; kind++)
        if (lz_is_owner((enum lz_kind)kind, context))
            return true;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        for (struct emu_object *object = emu_first(memory[i]); object; object = object->next)
            if (object->owner == context)
                return true;
    return false;
}

LZ_CALL(zeContextDestroy, (ze_context_handle_t context), (context)) {
    LZ_CHECK(lz_check_context(context));
    LZ_REQUIRE(!is_in_use(context), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    lz_remove(&context->object);
    free(context);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeContextGetStatus, (ze_context_handle_t context), (context)) {
    return lz_check_context(context);
}

LZ_CALL(zeContextSystemBarrier, (ze_context_handle_t context, ze_device_handle_t device),
        (context, device)) {
    LZ_CHECK(lz_check_place(context, device));
    emu_device_finish(device->ordinal);
    return ZE_RESULT_SUCCESS;
}
