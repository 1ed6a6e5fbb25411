# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file can start as a program on this host, read from its first bytes (field case N7).

Rules:
- ELF: for this machine, a program rather than an object, and its loader is there.
- A script: its first line names an interpreter that is there; `env` counts only with a program that it would find.
- Anything else is not a program, and the refusal says what it looks like.
- Nothing is run: this comes before the smoke test, which proves the rest.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Dict, NamedTuple, Optional, Tuple, Union

from slotcore import codes, program
from slotward import host

EXECUTABLE, SHARED = 2, 3
PT_INTERP = 3
LINE = 256
"""What the kernel reads of a script's first line."""
MAX_PATH = 4096
MAX_HEADERS = 512
PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
TAKEN: Dict[str, Tuple[Tuple[int, int, int], ...]] = {
    # machine: (ELF class, byte order, ELF machine) that its kernel runs; 1 is 32 bits or little-endian
    "x86_64": ((2, 1, 62), (1, 1, 3)),
    "aarch64": ((2, 1, 183),),
    "armv7l": ((1, 1, 40),),
    "armv6l": ((1, 1, 40),),
    "i686": ((1, 1, 3),),
    "ppc64le": ((2, 1, 21),),
    "s390x": ((2, 2, 22),),
    "riscv64": ((2, 1, 243),),
    "loongarch64": ((2, 1, 258),),
}


class Elf(NamedTuple):
    """What an ELF file's header says; no interpreter means that it is linked statically."""

    bits: int
    order: int
    kind: int
    machine: int
    entry: int
    interpreter: Optional[str]


class Script(NamedTuple):
    """A script's first line."""

    interpreter: str
    argument: str


def parse(file: BinaryIO) -> Union[Elf, Script, str]:
    """What the program is, or what is wrong with it."""
    head = file.read(max(LINE, 64))
    if head.startswith(b"#!"):
        return _parse_script(head[:LINE])
    if head.startswith(b"\x7fELF"):
        try:
            return _parse_elf(head, file)
        except (struct.error, IndexError, OverflowError, ValueError):
            return "an ELF file that ends too early"
    from slotward import download_rules

    return download_rules.describe_bytes(head)


def _parse_script(head: bytes) -> Union[Script, str]:
    line, newline, _rest = head[2:].partition(b"\n")
    if not newline and len(head) == LINE:
        return "a script whose first line is too long for the kernel"
    words = line.strip(b" \t").replace(b"\t", b" ").split(b" ", 1)
    if not words[0] or b"\0" in line:
        return "a script without an interpreter"
    argument = words[1].strip(b" ") if len(words) > 1 else b""
    return Script(os.fsdecode(words[0]), os.fsdecode(argument))


def _parse_elf(head: bytes, file: BinaryIO) -> Union[Elf, str]:
    bits, order = head[4], head[5]
    if bits not in (1, 2) or order not in (1, 2):
        return "an ELF file of no known class"
    end = "<" if order == 1 else ">"
    kind, machine = struct.unpack_from(end + "HH", head, 16)
    if bits == 2:
        entry, table = struct.unpack_from(end + "QQ", head, 24)
        size, count = struct.unpack_from(end + "HH", head, 54)
        layout, where = end + "I4xQ16xQ", 56
    else:
        entry, table = struct.unpack_from(end + "II", head, 24)
        size, count = struct.unpack_from(end + "HH", head, 42)
        layout, where = end + "II8xI", 32
    if count and (not where <= size <= MAX_HEADERS or count > MAX_HEADERS):
        return "an ELF file with a damaged header"
    interpreter = None
    file.seek(table)
    headers = file.read(size * count)
    for number in range(count):
        what, offset, length = struct.unpack_from(layout, headers, number * size)
        if what == PT_INTERP:
            file.seek(offset)
            interpreter = os.fsdecode(file.read(min(length, MAX_PATH)).partition(b"\0")[0])
    return Elf(bits, order, kind, machine, entry, interpreter)


def check_program(path: str, machine: Optional[str] = None) -> Optional[codes.Refusal]:
    """Why the file cannot start here, if it cannot; `machine` is as `uname -m` says it."""
    try:
        with open(host.open_named(path), "rb") as file:
            found = parse(file)
    except OSError as error:
        return codes.Refusal(codes.CANNOT_READ, "cannot read %s: %s" % (path, error.strerror))
    if isinstance(found, str):
        return codes.Refusal(codes.NOT_EXECUTABLE, "%s is not a program: it looks like %s" % (path, found))
    if isinstance(found, Script):
        return _check_script(path, found)
    return _check_elf(path, found, machine or os.uname().machine)


def _check_elf(path: str, found: Elf, machine: str) -> Optional[codes.Refusal]:
    if found.kind not in (EXECUTABLE, SHARED) or not found.entry:
        text = "%s is not a program: an ELF file of type %d%s"
        library = "" if found.entry else " without an entry point"
        return codes.Refusal(codes.NOT_EXECUTABLE, text % (path, found.kind, library))
    taken = TAKEN.get(machine)
    if taken is not None and (found.bits, found.order, found.machine) not in taken:
        name = program.MACHINES.get(found.machine, "machine %d" % found.machine)
        text = "%s is a program for %s (%d bits), this host is %s: take the build for it"
        return codes.Refusal(codes.WRONG_MACHINE, text % (path, name, 32 * found.bits, machine))
    if found.interpreter is not None and not _runs(found.interpreter):
        text = "%s needs the loader %s, which this host does not have (another C library, or another distribution)"
        return codes.Refusal(codes.NO_INTERPRETER, text % (path, ascii(found.interpreter)[1:-1]))
    return None


def _check_script(path: str, found: Script) -> Optional[codes.Refusal]:
    interpreter = found.interpreter
    missing = None if interpreter.startswith("/") and _runs(interpreter) else interpreter
    if missing is None and os.path.basename(interpreter) == "env":
        missing = _missing_for_env(found.argument)
    if missing is None:
        return None
    text = "%s is a script for %s, which this host does not have"
    return codes.Refusal(codes.NO_INTERPRETER, text % (path, ascii(missing)[1:-1]))


def _missing_for_env(argument: str) -> Optional[str]:
    """The program that `env` would not find; nothing when it finds it."""
    words = [word for word in argument.split(" ") if word]
    while words and (words[0].startswith("-") or "=" in words[0]):
        del words[: 2 if words[0] in ("-u", "-C") else 1]
    if not words:
        return "env without a program"
    name = words[0]
    places = [name] if "/" in name else [os.path.join(directory, name) for directory in PATH]
    return None if any(_runs(place) for place in places) else name


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
