# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file is a program for a platform, by its first bytes: what whoever builds a release can know (field case N7).

Rules:

* ELF: an executable or a shared object, of the class, byte order and machine that the platform's name stands for.
* A script: its first line names an interpreter by its whole path; it may be for any platform.
* Anything else is not a program; a platform of another kind than Linux, or of an unknown machine, cannot be judged.
* What a host can know more (the loader, the interpreter, a smoke test) it judges itself.
"""

from __future__ import annotations

import struct
from typing import Dict, Optional, Tuple

from . import codes

HEAD = 256
_TYPES = (2, 3)
_BITS = (1, 2)
MACHINES: Dict[int, str] = {
    2: "sparc", 3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
    243: "riscv", 258: "loongarch",
}  # fmt: skip
# arch as a platform's name has it: (ELF class, byte order, ELF machine); 1 is 32 bits or little-endian
ARCHES: Dict[str, Tuple[int, int, int]] = {
    "386": (1, 1, 3), "i386": (1, 1, 3), "i686": (1, 1, 3), "amd64": (2, 1, 62), "x86_64": (2, 1, 62),
    "arm": (1, 1, 40), "armhf": (1, 1, 40), "armv6": (1, 1, 40), "armv7": (1, 1, 40), "arm64": (2, 1, 183),
    "aarch64": (2, 1, 183), "ppc64le": (2, 1, 21), "s390x": (2, 2, 22), "riscv64": (2, 1, 243),
    "loong64": (2, 1, 258), "loongarch64": (2, 1, 258),
}  # fmt: skip


def check(path: str, head: bytes, platform: str) -> Optional[codes.Refusal]:
    """Why the file that begins with `head` is no program for `platform`, if it is none."""
    system, _dash, arch = platform.partition("-")
    if head.startswith(b"#!"):
        return _check_script(path, head)
    if not head.startswith(b"\x7fELF"):
        hint = "; an archive is named ….tar.gz" if head.startswith(b"\x1f\x8b") else ""
        begins = "is empty" if not head else "begins with %s" % head[:4].hex(" ")
        text = "%s is not a program: neither ELF nor a script, it %s%s"
        return codes.Refusal(codes.NOT_EXECUTABLE, text % (path, begins, hint))
    wanted = ARCHES.get(arch) if system == "linux" else None
    if wanted is None:
        text = "%s: cannot tell whether it is a program for %s: known are linux- and one of %s"
        return codes.Refusal(codes.WRONG_MACHINE, text % (path, platform, ", ".join(sorted(ARCHES))))
    return _check_elf(path, head, platform, wanted)


def _check_script(path: str, head: bytes) -> Optional[codes.Refusal]:
    line, newline, _rest = head[2:HEAD].partition(b"\n")
    words = line.split()
    if words and words[0].startswith(b"/") and (newline or len(head) < HEAD):
        return None
    text = "%s is not a program: a script whose first line does not name an interpreter by its whole path"
    return codes.Refusal(codes.NOT_EXECUTABLE, text % path)


def _check_elf(path: str, head: bytes, platform: str, wanted: Tuple[int, int, int]) -> Optional[codes.Refusal]:
    if len(head) < 20 or head[4] not in _BITS or head[5] not in _BITS:
        return codes.Refusal(codes.NOT_EXECUTABLE, "%s is not a program: a damaged ELF file" % path)
    kind, machine = struct.unpack_from("<HH" if head[5] == 1 else ">HH", head, 16)
    if kind not in _TYPES:
        return codes.Refusal(codes.NOT_EXECUTABLE, "%s is not a program: an ELF file of type %d" % (path, kind))
    if (head[4], head[5], machine) == wanted:
        return None
    text = "%s is a program for %s, the platform %s needs one for %s: give the build for it, or the platform that it is for"
    return codes.Refusal(
        codes.WRONG_MACHINE, text % (path, _shown(head[4], head[5], machine), platform, _shown(*wanted))
    )


def _shown(bits: int, order: int, machine: int) -> str:
    name = MACHINES.get(machine, "machine %d" % machine)
    return "%s (%d bits, %s-endian)" % (name, 32 * bits, "little" if order == 1 else "big")
