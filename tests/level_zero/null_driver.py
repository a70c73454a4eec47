"""Builds a driver that answers success to everything and does nothing, for Intel's loader."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

HEADERS = Path("/usr/include/level_zero")
COMPILER = shutil.which("cc") or shutil.which("gcc")

#: Whether one can be built here.
POSSIBLE = (HEADERS / "ze_ddi.h").exists() and COMPILER is not None

_START = """
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_ddi.h>
#include <stdlib.h>

static ze_result_t nothing(void) { return ZE_RESULT_SUCCESS; }

static uint32_t count(const char *variable) {
    const char *text = getenv(variable);
    return text ? (uint32_t)atoi(text) : 1;
}

static ze_result_t list(uint32_t there_are, uint32_t *count, void **handles) {
    for (uint32_t i = 0; handles && i < *count && i < there_are; i++)
        handles[i] = (void *)(uintptr_t)(0x1000 + 16 * i);
    *count = there_are;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t drivers(uint32_t *room, ze_driver_handle_t *handles) {
    return list(1, room, (void **)handles);
}

static ze_result_t devices(ze_driver_handle_t driver, uint32_t *room, ze_device_handle_t *handles) {
    return list(count("NULL_DEVICES"), room, (void **)handles);
}

/* Says something of itself, if it is told to. */
static ze_result_t properties(ze_device_handle_t device, ze_device_properties_t *found) {
    if (count("NULL_TALKS")) {
        found->type = ZE_DEVICE_TYPE_GPU;
        found->maxMemAllocSize = 1 << 30;
        found->name[0] = 'N';
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t memories(ze_device_handle_t device, uint32_t *count,
                            ze_device_memory_properties_t *found) {
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t create(ze_driver_handle_t driver, const ze_context_desc_t *wanted,
                          ze_context_handle_t *context) {
    *context = (void *)0x2000;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fill(void *table, size_t size) {
    for (size_t i = 0; i < size / sizeof(void *); i++)
        ((ze_result_t(**)(void))table)[i] = nothing;
    return ZE_RESULT_SUCCESS;
}
"""

_SPECIAL = {
    "zeGetDriverProcAddrTable": "table->pfnGet = drivers;",
    "zeGetDeviceProcAddrTable": "table->pfnGet = devices; table->pfnGetProperties = properties; "
    "table->pfnGetMemoryProperties = memories;",
    "zeGetContextProcAddrTable": "table->pfnCreate = create;",
}


def build(folder: Path) -> Path:
    """Return the path of the driver, built in `folder`."""
    text = "".join((HEADERS / f"{name}_ddi.h").read_text() for name in ("ze", "zes", "zet"))
    pattern = r"^(ze[st]?Get\w+ProcAddrTable)\(\s*ze_api_version_t \w+,[^\n]*\n\s*(\w+)\*"
    functions = re.findall(pattern, text, re.MULTILINE)
    assert len(functions) > 20
    lines = [
        f"ze_result_t {name}(ze_api_version_t version, {table} *table) {{\n"
        f"    ze_result_t result = fill(table, sizeof *table);\n"
        f"    {_SPECIAL.get(name, '')}\n    return result;\n}}"
        for name, table in functions
    ]
    source, path = folder / "null.c", folder / "libze_does_nothing.so"
    source.write_text(_START + "\n".join(lines) + "\n")
    assert COMPILER
    subprocess.run([COMPILER, "-shared", "-fPIC", "-w", source, "-o", path], check=True)
    return path
