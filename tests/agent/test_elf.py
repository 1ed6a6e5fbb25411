# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file can start here, from its first bytes alone (field case N7)."""

from __future__ import annotations

import io
import os
import pathlib
import struct
import subprocess
import sys
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes
from slotward import elf

LOADER = "/lib64/ld-linux-x86-64.so.2"
X86_64, AARCH64, ARM, I386 = 62, 183, 40, 3


def program(
    machine: int = X86_64,
    kind: int = elf.EXECUTABLE,
    interpreter: Optional[str] = None,
    bits: int = 2,
    order: int = 1,
    entry: int = 0x400000,
) -> bytes:
    """An ELF file with a header, one loadable segment, and an interpreter if it has one."""
    end = "<" if order == 1 else ">"
    name = b"" if interpreter is None else interpreter.encode() + b"\0"
    header, each = (64, 56) if bits == 2 else (52, 32)
    count = 1 if interpreter is None else 2
    start = header + each * count
    ident = b"\x7fELF" + bytes([bits, order, 1]) + bytes(9)
    word = "Q" if bits == 2 else "I"
    head = ident + struct.pack(
        end + "HHI" + word * 3 + "IHHHHHH", kind, machine, 1, entry, header, 0, 0, header, each, count, 0, 0, 0
    )

    def segment(what: int, offset: int, length: int) -> bytes:
        if bits == 2:
            return struct.pack(end + "IIQQQQQQ", what, 4, offset, 0, 0, length, length, 1)
        return struct.pack(end + "IIIIIIII", what, offset, 0, 0, length, length, 4, 1)

    segments = segment(1, 0, start) + (segment(elf.PT_INTERP, start, len(name)) if name else b"")
    return head + segments + name


def check(tmp_path: pathlib.Path, content: bytes, machine: str = "x86_64") -> Optional[codes.Refusal]:
    """What is said of a file with this content."""
    path = tmp_path / "file"
    path.write_bytes(content)
    return elf.check_program(str(path), machine)


def refused(tmp_path: pathlib.Path, content: bytes, machine: str = "x86_64") -> codes.Refusal:
    """The refusal of a file with this content."""
    refusal = check(tmp_path, content, machine)
    assert refusal is not None
    assert str(tmp_path / "file") in refusal.text
    return refusal


def test_real_programs_of_this_host_pass() -> None:
    """Whatever runs here passes: an ELF program, a script, and the shell."""
    for path in (os.path.realpath(sys.executable), "/bin/sh", "/bin/ls"):
        assert elf.check_program(path) is None


def test_what_the_linker_says_is_what_is_read() -> None:
    """The interpreter is the one that another reader finds."""
    path = os.path.realpath("/bin/ls")
    with open(path, "rb") as file:
        found = elf.parse(file)
    assert isinstance(found, elf.Elf)
    said = subprocess.run(["file", "-L", path], capture_output=True, text=True, check=False) if has("file") else None
    assert said is None or str(found.interpreter) in said.stdout
    assert found.interpreter is not None
    assert found.interpreter.startswith("/lib")


def has(name: str) -> bool:
    """Whether a program is on the path."""
    return any(os.access(os.path.join(place, name), os.X_OK) for place in os.get_exec_path())


@pytest.mark.parametrize("kind", [elf.EXECUTABLE, elf.SHARED])
def test_a_static_program_passes(tmp_path: pathlib.Path, kind: int) -> None:
    """Without an interpreter nothing else must be there."""
    assert check(tmp_path, program(kind=kind)) is None


@pytest.mark.parametrize(
    ("content", "machine"),
    [
        (program(AARCH64), "aarch64"),
        (program(I386, bits=1), "x86_64"),
        (program(I386, bits=1), "i686"),
        (program(ARM, bits=1), "armv7l"),
        (program(22, order=2), "s390x"),
        (program(21), "ppc64le"),
        (program(999), "a-machine-we-do-not-know"),
    ],
)
def test_a_program_for_this_machine_passes(tmp_path: pathlib.Path, content: bytes, machine: str) -> None:
    """Class, byte order and machine are those of the kernel; an unknown kernel is left to the smoke test."""
    assert check(tmp_path, content, machine) is None


@pytest.mark.parametrize(
    ("content", "machine", "name"),
    [
        (program(AARCH64), "x86_64", "aarch64 (64 bits)"),
        (program(X86_64), "aarch64", "x86_64 (64 bits)"),
        (program(ARM, bits=1), "aarch64", "arm (32 bits)"),
        (program(ARM, bits=1), "x86_64", "arm (32 bits)"),
        (program(X86_64), "i686", "x86_64 (64 bits)"),
        (program(21, order=2), "ppc64le", "ppc64 (64 bits)"),
        (program(999), "x86_64", "machine 999 (64 bits)"),
    ],
)
def test_N7_a_program_for_another_machine_is_refused(
    tmp_path: pathlib.Path, content: bytes, machine: str, name: str
) -> None:
    """N7: the build for another machine is named, before anything tries to run it."""
    refusal = refused(tmp_path, content, machine)
    assert refusal.code == codes.WRONG_MACHINE
    assert "is a program for %s, this host is %s" % (name, machine) in refusal.text


@pytest.mark.parametrize("bits", [1, 2])
def test_N7_a_missing_loader_is_refused(tmp_path: pathlib.Path, bits: int) -> None:
    """N7: a build for another C library or distribution names a loader that is not here."""
    content = program(X86_64 if bits == 2 else I386, interpreter="/lib/ld-musl-nowhere.so.1", bits=bits)
    refusal = refused(tmp_path, content)
    assert refusal.code == codes.NO_INTERPRETER
    assert "/lib/ld-musl-nowhere.so.1" in refusal.text


def test_a_loader_that_is_here_passes(tmp_path: pathlib.Path) -> None:
    """Any executable file will do as far as the first bytes tell."""
    assert check(tmp_path, program(interpreter="/bin/sh")) is None


@pytest.mark.parametrize(("kind", "entry"), [(1, 1), (4, 1), (0, 1), (elf.SHARED, 0)])
def test_an_object_or_a_library_is_no_program(tmp_path: pathlib.Path, kind: int, entry: int) -> None:
    """An object file, a core, or a library without an entry point."""
    refusal = refused(tmp_path, program(kind=kind, entry=entry))
    assert refusal.code == codes.NOT_EXECUTABLE
    assert "an ELF file of type %d" % kind in refusal.text


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "nothing"),
        (b"<html><body>403</body></html>", "an HTML page"),
        (b'{"message": "not found"}', "JSON"),
        (b"\x1f\x8b\x08\x00", "gzip data"),
        (b"MZ\x90\x00\x03", "binary data"),
        (b"echo hello\n", "text"),
        (b"#!\n", "a script without an interpreter"),
        (b"#!   \n/bin/sh\n", "a script without an interpreter"),
        (b"#!/bin/sh\0x\n", "a script without an interpreter"),
        (b"#!/bin/sh " + b"x" * 300 + b"\n", "a script whose first line is too long for the kernel"),
        (program()[:20], "an ELF file that ends too early"),
        (program()[:70], "an ELF file that ends too early"),
        (b"\x7fELF\x03" + program()[5:], "an ELF file of no known class"),
        (b"\x7fELF\x02\x00" + program()[6:], "an ELF file of no known class"),
        (program()[:54] + b"\x01\x00\xff\xff" + program()[58:], "an ELF file with a damaged header"),
        (program()[:32] + b"\xff" * 8 + program()[40:], "an ELF file that ends too early"),
    ],
)
def test_what_is_no_program_is_named(tmp_path: pathlib.Path, content: bytes, what: str) -> None:
    """The refusal says what the file looks like."""
    refusal = refused(tmp_path, content)
    assert refusal.code == codes.NOT_EXECUTABLE
    assert refusal.text.endswith("it looks like %s" % what)


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh",
        " /bin/sh -e",
        "\t/bin/sh",
        "/usr/bin/env sh",
        "/usr/bin/env -S sh -e",
        "/usr/bin/env -i A=b -u C /bin/sh",
    ],
)
def test_a_script_with_its_interpreter_passes(tmp_path: pathlib.Path, line: str) -> None:
    """Blanks, an argument, and env with what it would find."""
    assert check(tmp_path, ("#!%s\necho\n" % line).encode()) is None
    assert check(tmp_path, ("#!%s" % line).encode()) is None


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("/usr/bin/python9.9 -I", "/usr/bin/python9.9"),
        ("/bin/sh\r", "/bin/sh\\r"),
        ("sh", "sh"),
        ("/bin", "/bin"),
        ("/etc/passwd", "/etc/passwd"),
        ("/usr/bin/env python9.9", "python9.9"),
        ("/usr/bin/env -S python9.9 -I", "python9.9"),
        ("/usr/bin/env ./here", "./here"),
        ("/usr/bin/env", "env without a program"),
    ],
)
def test_N7_a_missing_interpreter_is_refused(tmp_path: pathlib.Path, line: str, missing: str) -> None:
    """N7: a script for something that is not here, with what that is; a carriage return shows."""
    refusal = refused(tmp_path, ("#!%s\n" % line).encode())
    assert refusal.code == codes.NO_INTERPRETER
    assert "is a script for %s, which" % missing in refusal.text


def test_an_archive_with_a_first_line_is_a_script(tmp_path: pathlib.Path) -> None:
    """The agent's own form: a zip archive behind a line for the interpreter."""
    assert check(tmp_path, b"#!/bin/sh -I\nPK\x03\x04\xff\xfe") is None


def test_a_file_that_cannot_be_read_is_said(tmp_path: pathlib.Path) -> None:
    """No file is not a wrong program."""
    for path in (tmp_path / "nothing", tmp_path):
        refusal = elf.check_program(str(path))
        assert refusal is not None
        assert refusal.code == codes.CANNOT_READ


@given(st.one_of(st.binary(max_size=400), st.binary(max_size=300).map(lambda raw: b"\x7fELF\x02\x01" + raw)))
def test_no_bytes_break_the_reader(content: bytes) -> None:
    """Whatever a file holds, the answer is a value."""
    assert isinstance(elf.parse(io.BytesIO(content)), (elf.Elf, elf.Script, str))


@given(st.integers(0, 200), st.binary(min_size=1, max_size=8))
def test_no_damage_breaks_the_reader(place: int, damage: bytes) -> None:
    """A real header with any few bytes overwritten is read or named as damaged."""
    whole = program(interpreter=LOADER)
    content = whole[:place] + damage + whole[place + len(damage) :]
    assert isinstance(elf.parse(io.BytesIO(content)), (elf.Elf, elf.Script, str))
