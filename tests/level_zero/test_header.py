"""Numbers, structures and prototypes are those of the installed ``ze_api.h``."""

from __future__ import annotations

import ctypes
import enum
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from umfpy.providers.level_zero import constants, structs
from umfpy.providers.level_zero.prototypes import OPTIONAL, PROTOTYPES

HEADER = Path("/usr/include/level_zero/ze_api.h")
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = pytest.mark.skipif(
    not HEADER.exists() or COMPILER is None,
    reason="no Level Zero loader headers, or no C compiler: apt-get install libze-dev gcc",
)

ENUMS = [
    value
    for value in vars(constants).values()
    if isinstance(value, type)
    and issubclass(value, enum.IntEnum | enum.IntFlag)
    and value.__module__ == constants.__name__
]
STRUCTS = [
    value
    for name, value in vars(structs).items()
    if name.startswith("ze_") and issubclass(value, ctypes.Structure)
]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a C program says of everything that is named in Python: a number each."""
    names = [member for each in ENUMS for member in each.__members__]
    names += [name for name in vars(constants) if name.startswith("ZE_MAX_")]
    lines = [f'show("{name}", (unsigned long long){name});' for name in names]
    for struct in STRUCTS:
        name = struct.__name__
        lines.append(f'show("{name}", sizeof({name}));')
        lines += [
            f'show("{name}.{field}", offsetof({name}, {field}));' for field, *_ in struct._fields_
        ]
    folder = tmp_path_factory.mktemp("header")
    (folder / "show.c").write_text(
        "#include <level_zero/ze_api.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        "static void show(const char *name, unsigned long long value) {\n"
        '    printf("%s %llu\\n", name, value);\n}\n'
        "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    subprocess.run([COMPILER, "show.c", "-o", "show"], cwd=folder, check=True)
    output = subprocess.run([folder / "show"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


@pytest.mark.parametrize("each", ENUMS, ids=lambda each: each.__name__)
def test_numbers(each, said):
    assert len(each.__members__) > 2
    for name, value in each.__members__.items():
        assert said[name] == value, name


def test_array_sizes(said):
    for name, value in vars(constants).items():
        if name.startswith("ZE_MAX_"):
            assert said[name] == value, name


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_structures(struct, said):
    name = struct.__name__
    assert said[name] == ctypes.sizeof(struct)
    for field, *_ in struct._fields_:
        assert said[f"{name}.{field}"] == getattr(struct, field).offset, field


@pytest.mark.parametrize("struct", [s for s in STRUCTS if hasattr(s, "STYPE")])
def test_structures_say_what_they_are(struct):
    """``ze_context_desc_t`` has ZE_STRUCTURE_TYPE_CONTEXT_DESC; also where it is in an array."""
    suffix = struct.__name__.removeprefix("ze_").removesuffix("_t").upper()
    assert struct.STYPE.name == f"ZE_STRUCTURE_TYPE_{suffix}"
    assert struct().stype == struct.STYPE
    assert struct().pNext is None


def _kind_in_header(parameter):
    """Return a pointer, a structure or a number of so many bytes."""
    text = re.sub(r"///.*", "", parameter)
    kind = " ".join(text.split()[:-1])
    if kind == "ze_ipc_mem_handle_t":
        return kind
    if "*" in text or kind.endswith("_handle_t"):
        return "pointer"
    return {"size_t": 8, "uint64_t": 8, "uint32_t": 4, "ze_bool_t": 1}.get(kind, 4)


def _kind_in_python(argument):
    if argument is ctypes.c_void_p or issubclass(argument, ctypes._Pointer):
        return "pointer"
    if issubclass(argument, ctypes.Structure):
        return argument.__name__
    return ctypes.sizeof(argument)


@pytest.mark.parametrize("name", [*PROTOTYPES, *OPTIONAL])
def test_prototypes(name):
    found = re.search(rf"^{name}\((.*?)\);", HEADER.read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        assert name in OPTIONAL
        return
    lines = found[1].strip().splitlines()
    parameters = re.sub(r"///[^\n]*", "", "\n".join(lines)).split(",")
    arguments = {**PROTOTYPES, **OPTIONAL}[name]
    assert [_kind_in_python(each) for each in arguments] == [
        _kind_in_header(each) for each in parameters
    ]


def test_a_wrong_layout_would_be_seen(said):
    """The comparison finds a field that is too small and one that is in the wrong place."""
    fields = list(structs.ze_device_mem_alloc_desc_t._fields_)
    shifted = type("shifted", (ctypes.Structure,), {"_fields_": [fields[0], *fields[2:]]})
    name = "ze_device_mem_alloc_desc_t"
    assert said[name] != ctypes.sizeof(shifted)
    assert said[f"{name}.ordinal"] != shifted.ordinal.offset
