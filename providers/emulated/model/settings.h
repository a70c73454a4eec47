/* What a driver is to emulate, as one line of text: "memory=17179869184;devices=2;report=1".
 *
 *   memory       bytes of each device                          (16 GiB)
 *   devices      how many, up to 16                            (1)
 *   capability   compute capability, major.minor               (9.0)
 *   report       1: say at exit what leaked and what was called (0)
 *
 * Unknown names are an error: a misspelt setting must not pass for a default.
 */
#ifndef UMFPY_MODEL_SETTINGS_H
#define UMFPY_MODEL_SETTINGS_H

#include "common.h"

struct emu_settings {
    uint64_t memory;
    unsigned devices;
    unsigned capability_major, capability_minor;
    bool report;
};

#define EMU_DEFAULT_SETTINGS {.memory = 16ull << 30, .devices = 1, .capability_major = 9}

/* Read `text` over `settings`; false, with nothing changed, where it makes no sense. */
bool emu_settings_read(const char *text, struct emu_settings *settings);

#endif
