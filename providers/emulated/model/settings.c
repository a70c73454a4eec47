#include "settings.h"

#include <stdlib.h>
#include <string.h>

static bool is_name(const char *name, size_t length, const char *expected) {
    return strlen(expected) == length && !memcmp(name, expected, length);
}

/* Read digits up to `stop` or the end; false where there are none, or others. */
static bool read_number(const char *text, const char *end, uint64_t *number) {
    char *stop;
    if (text == end || *text < '0' || *text > '9')
        return false;
    *number = strtoull(text, &stop, 10);
    return stop == end;
}

static bool read_capability(const char *text, const char *end, struct emu_settings *settings) {
    const char *point = memchr(text, '.', (size_t)(end - text));
    uint64_t major, minor;
    if (!point || !read_number(text, point, &major) || !read_number(point + 1, end, &minor))
        return false;
    settings->capability_major = (unsigned)major;
    settings->capability_minor = (unsigned)minor;
    return major <= 99 && minor <= 9;
}

static bool read_one(const char *name, size_t length, const char *value, const char *end,
                     struct emu_settings *settings) {
    uint64_t number;
    if (is_name(name, length, "capability"))
        return read_capability(value, end, settings);
    if (!read_number(value, end, &number))
        return false;
    if (is_name(name, length, "devices") && number > EMU_DEVICES)
        return false;
    if (is_name(name, length, "memory"))
        settings->memory = number;
    else if (is_name(name, length, "devices"))
        settings->devices = (unsigned)number;
    else if (is_name(name, length, "report"))
        settings->report = number != 0;
    else
        return false;
    return true;
}

bool emu_settings_read(const char *text, struct emu_settings *settings) {
    struct emu_settings read = *settings;
    while (*text) {
        const char *end = text + strcspn(text, ";");
        const char *equals = memchr(text, '=', (size_t)(end - text));
        if (!equals || !read_one(text, (size_t)(equals - text), equals + 1, end, &read))
            return false;
        text = *end ? end + 1 : end;
    }
    if (read.memory < EMU_GRANULE || read.memory > (1ull << 44))
        return false;
    *settings = read;
    return true;
}
