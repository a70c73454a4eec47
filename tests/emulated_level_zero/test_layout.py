"""Numbers, sizes, offsets and tables against an installed ze_api.h."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HEADERS = Path("/usr/include/level_zero")
COMPILER = shutil.which("cc") or shutil.which("gcc")
OURS = Path(__file__).parents[2] / "providers" / "emulated" / "level_zero"

pytestmark = pytest.mark.skipif(
    not (HEADERS / "ze_api.h").exists() or COMPILER is None,
    reason="no Level Zero headers, or no C compiler: apt-get install libze-dev gcc",
)

#: Ours stands for several of theirs that are alike.
_OUR_OWN = {"ze_uuid_t", "ze_init_driver_type_desc_t"}


def _structures():
    """Names of our structures and of their fields."""
    text = re.sub(r"/\*.*?\*/", "", (OURS / "abi.h").read_text(), flags=re.S)
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.S):
        declared = re.findall(r"[\w*]+(?:\[\w+\])?(?=\s*[,;])", body)
        yield name, [re.sub(r"\W.*", "", field.lstrip("*")) for field in declared]


def _numbers(header):
    text = (OURS / "abi.h").read_text()
    names = re.findall(r"\b(ZE_\w+) = ", text)
    return [name for name in names if re.search(rf"\b{name}\b", header)]


def _program(include, header):
    lines = [f'#include "{include}"', "#include <stdio.h>", "int main(void) {"]
    for name, fields in _structures():
        if name not in header or name in _OUR_OWN:
            continue
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [
            f'printf("{name}.{field} %zu %zu\\n", '
            f"offsetof({name}, {field}), sizeof((({name} *)0)->{field}));"
            for field in fields
        ]
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in _numbers(header)]
    return "\n".join([*lines, "return 0;", "}"])


def _output(tmp_path, include, header):
    source = tmp_path / "ask.c"
    source.write_text(_program(include, header))
    subprocess.run([COMPILER, "-o", tmp_path / "ask", source], check=True, timeout=60)
    done = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_structures_and_numbers_are_the_interfaces_own(tmp_path):
    header = (HEADERS / "ze_api.h").read_text()
    ours = _output(tmp_path, OURS / "abi.h", header)
    theirs = _output(tmp_path, HEADERS / "ze_api.h", header)
    assert len(ours) > 200
    assert ours == theirs


def _tables_of(header):
    for name, body in re.findall(r"struct _ze_(\w+)_dditable_t\s*\{(.*?)\}", header, re.S):
        entries = re.findall(r"ze_pfn(\w+)_t\s+pfn\w+;", body)
        if entries:
            yield name.replace("_", ""), [f"ze{entry}" for entry in entries]


def test_tables_are_in_the_interfaces_order():
    ours: dict[str, list[str]] = {}
    definitions = (OURS / "tables.def").read_text()
    for table, function in re.findall(r"^(?:BUILT|MISSING)\((\w+), (\w+),", definitions, re.M):
        ours.setdefault(table.lower(), []).append(function)
    theirs = dict(_tables_of((HEADERS / "ze_ddi.h").read_text()))
    assert len(theirs) > 20
    for table, entries in theirs.items():
        assert ours[table][: len(entries)] == entries


def test_every_table_that_a_loader_asks_for_is_there(emu):
    import ctypes

    driver = ctypes.CDLL(str(emu.library))
    room = (ctypes.c_void_p * 256)()
    for header in ("ze_ddi.h", "zet_ddi.h", "zes_ddi.h"):
        for name in set(
            re.findall(r"\bze\w?Get\w+ProcAddrTable\b", (HEADERS / header).read_text())
        ):
            assert getattr(driver, name)(1 << 16 | 4, room) == 0
