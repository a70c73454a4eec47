/* Beginning and end of every call; the tables that a loader asks for. */
#include "driver.h"

#include <stdio.h>

enum table {
#define TABLE(name, getter) TABLE_##name,
#define BUILT(table, name, minor, cost)
#define MISSING(table, name, minor)
#define EMPTY(name)
#include "tables.def"
#undef TABLE
#undef BUILT
#undef MISSING
#undef EMPTY
};

/* Functions that are not built.  Callers clean up their arguments themselves, so that one without
 * parameters can stand for any. */
#define TABLE(name, getter)
#define BUILT(table, name, minor, cost) void name(void);
#define MISSING(table, name, minor)                                                                \
    EMU_PUBLIC ze_result_t name(void);                                                             \
    EMU_PUBLIC ze_result_t name(void) {                                                            \
        ze_result_t result = lz_enter(CALL_##name);                                                \
        return result ? result : lz_leave(lz_not_built(#name));                                    \
    }
#define EMPTY(name)
#include "tables.def"
#undef BUILT
#undef MISSING

static const struct entry {
    struct lz_call_info info;
    enum table table;
    unsigned minor; /* version 1.minor brought it */
    void *function;
} entries[] = {
#define BUILT(table, name, minor, cost)                                                            \
    {{#name, cost}, TABLE_##table, minor, (void *)(uintptr_t)name},
#define MISSING(table, name, minor) {{#name, 0}, TABLE_##table, minor, (void *)(uintptr_t)name},
#include "tables.def"
#undef TABLE
#undef BUILT
#undef MISSING
#undef EMPTY
};

_Static_assert(LZ_CALLS <= EMU_CALLS, "the model counts that many calls");

const struct lz_call_info *lz_call_info(int call) {
    return call >= 0 && call < LZ_CALLS ? &entries[call].info : NULL;
}

static bool begins(enum lz_call call) {
    return call == CALL_zeInit || call == CALL_zeInitDrivers || call == CALL_zesInit;
}

ze_result_t lz_enter(enum lz_call call) {
    if (emu_is_orphan())
        return ZE_RESULT_ERROR_UNINITIALIZED;
    emu_lock();
    emu_clock_spend(entries[call].info.cost);
    ze_result_t result = (ze_result_t)emu_call_count(call, false);
    if (!result && !begins(call) && !lz_is_initialised())
        result = ZE_RESULT_ERROR_UNINITIALIZED;
    if (result)
        emu_unlock();
    return result;
}

ze_result_t lz_leave(ze_result_t result) {
    emu_unlock();
    return result;
}

ze_result_t lz_result(enum emu_status status, ze_result_t no_memory) {
    switch (status) {
    case EMU_OK:
        return ZE_RESULT_SUCCESS;
    case EMU_NO_MEMORY:
        return no_memory;
    case EMU_SYSTEM:
        return ZE_RESULT_ERROR_UNKNOWN;
    case EMU_INVALID:
    case EMU_STALE:
    case EMU_OWN_PROCESS:
    case EMU_REFUSED:
        break;
    }
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

#define MOST_SAID 64

ze_result_t lz_not_built(const char *what) {
    static const char *said[MOST_SAID]; /* literals: the same one for the same place */
    size_t i = 0;
    while (i < MOST_SAID && said[i] && said[i] != what)
        i++;
    if (i < MOST_SAID && !said[i]) {
        said[i] = what;
        fprintf(stderr, "umfpy emulated Level Zero: %s is not built\n", what);
    }
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* Level Zero specification, "Device Driver Interface": major versions must agree. */
static ze_result_t fill(enum table table, ze_api_version_t version, void **functions) {
    LZ_POINTER(functions);
    LZ_REQUIRE(version >> 16 == 1, ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
    for (int call = 0, slot = 0; call < LZ_CALLS; call++) {
        if (entries[call].table != table || entries[call].minor > (version & 0xffff))
            continue;
        functions[slot++] = entries[call].function;
    }
    return ZE_RESULT_SUCCESS;
}

#define TABLE(name, getter)                                                                        \
    EMU_PUBLIC ze_result_t getter(ze_api_version_t version, void **functions);                     \
    EMU_PUBLIC ze_result_t getter(ze_api_version_t version, void **functions) {                    \
        return fill(TABLE_##name, version, functions);                                             \
    }
#define BUILT(table, name, minor, cost)
#define MISSING(table, name, minor)
#define EMPTY(name)                                                                                \
    EMU_PUBLIC ze_result_t name(ze_api_version_t version, void **functions);                       \
    EMU_PUBLIC ze_result_t name(ze_api_version_t version, void **functions) {                      \
        (void)version;                                                                             \
        return functions ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_POINTER;               \
    }
#include "tables.def"
