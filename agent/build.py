# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs the node agent into one executable file, the same bytes every time.

Rules:
- the bytes depend on the tree, the version, the sequence and the architecture, on nothing else: entries are sorted by
  name, stored (zlib releases differ), dated 1980-01-01, mode 0644, and compiled files never go in;
- the sequence goes into the archive: it is the floor of a host on which this very file is the first install;
- the archive starts with the interpreter line and ends with the zip directory, so nothing may be appended to it;
- `slotward-build.json` at its top tells what it is to a reader that must not run it;
- the file appears under its name only when it is complete.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import pathlib
import platform
import sys
import zipfile
from typing import Dict, List, NamedTuple, Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE_UTILS = ROOT / "plugins" / "module_utils"
SOURCES = ROOT / "agent" / "src"

PRODUCT = "slotward"
INTERPRETER = b"#!/usr/bin/python3 -I\n"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
ARCHES = ("amd64", "arm64")
FACTS = "slotward-build.json"
GENERATED = ("slotward/_build.py", FACTS)
PADDING = "padding.bin"
EPOCH = (1980, 1, 1, 0, 0, 0)
MAX_SEQUENCE = 2**53 - 1  # the largest integer that canonical JSON takes
MAX_PAD_MIB = 512


class CannotBuild(Exception):
    """What keeps the agent from being built, as one sentence."""


class Label(NamedTuple):
    """What a build is called."""

    version: str
    sequence: int
    arch: str

    @property
    def file_name(self) -> str:
        """The artifact's name in a release."""
        return "%s_%s_linux_%s" % (PRODUCT, self.version, self.arch)


def check_label(label: Label) -> None:
    """Refuse a version or sequence that a release manifest would not take."""
    sys.path.insert(0, str(MODULE_UTILS))
    from slotcore import semver

    if not semver.is_version(label.version):
        raise CannotBuild("--version %r is no semantic version (like 1.2.3 or 1.2.3-rc.1)" % label.version)
    if not 1 <= label.sequence <= MAX_SEQUENCE:
        raise CannotBuild("--sequence %d is not between 1 and %d" % (label.sequence, MAX_SEQUENCE))


def read_tree(top: pathlib.Path, prefix: str = "") -> Dict[str, bytes]:
    """Every file below a directory, by its name in the archive, without caches, hidden files and links."""
    found: Dict[str, bytes] = {}
    for path in top.rglob("*"):
        parts = path.relative_to(top).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts) or path.suffix == ".pyc":
            continue
        if path.is_symlink():
            raise CannotBuild("%s is a link: the archive takes only plain files" % path)
        if path.is_file():
            found[prefix + "/".join(parts)] = path.read_bytes()
    return found


def generated(label: Label) -> Dict[str, bytes]:
    """The entries that carry the build's label: one for the agent itself, one for readers."""
    module = (
        "# SPDX-License-Identifier: GPL-3.0-or-later\n"
        '"""What this file was built as (written by agent/build.py)."""\n\n'
        'VERSION = "%s"\nSEQUENCE = %d\nARCH = "%s"\n' % label
    )
    facts = {"arch": label.arch, "product": PRODUCT, "sequence": label.sequence, "version": label.version}
    return {
        GENERATED[0]: module.encode("ascii"),
        FACTS: json.dumps(facts, sort_keys=True, separators=(",", ":")).encode("ascii"),
    }


def collect(label: Label, extra: Optional[pathlib.Path], pad_mib: int) -> Dict[str, bytes]:
    """All entries of the archive."""
    entries = {"__main__.py": (SOURCES / "__main__.py").read_bytes()}
    entries.update(read_tree(SOURCES / "slotward", "slotward/"))
    entries.update(read_tree(MODULE_UTILS / "slotcore", "slotcore/"))
    if extra is not None:
        overlay = read_tree(extra)
        if not overlay:
            raise CannotBuild("--extra %s is no directory with files in it" % extra)
        for name in GENERATED:
            if name in overlay:
                raise CannotBuild("--extra %s has %s, which is written by the build" % (extra, name))
        entries.update(overlay)
    entries.update(generated(label))
    if pad_mib:
        seed = ("%s %s %d %s" % (PRODUCT, *label)).encode("ascii")
        entries[PADDING] = hashlib.shake_256(seed).digest(pad_mib * 1024 * 1024)
    return entries


def pack(entries: Dict[str, bytes]) -> bytes:
    """The executable archive of these entries."""
    buffer = io.BytesIO()
    buffer.write(INTERPRETER)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = 3  # unix, whatever built it
            info.external_attr = 0o100644 << 16
            archive.writestr(info, entries[name])
    return buffer.getvalue()


def write(path: pathlib.Path, content: bytes) -> None:
    """Put the executable at its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(".%s.%d" % (path.name, os.getpid()))
    try:
        temporary.write_bytes(content)
        temporary.chmod(0o755)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def this_arch() -> str:
    """The architecture of this machine, as releases name it."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise CannotBuild("this machine is a %s: name the target by --arch %s" % (machine, " or ".join(ARCHES)))
    return MACHINES[machine]


def parse_arguments(argv: List[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="agent/build.py",
        description="Pack the node agent into one reproducible executable, slotward_<version>_linux_<arch>.",
        epilog="The path is printed on standard output, size and SHA-256 on standard error.",
    )
    parser.add_argument("--version", required=True, help="semantic version of the release, such as 1.1.0")
    parser.add_argument("--sequence", required=True, type=int, help="sequence of the release: grows with every release")
    parser.add_argument("--arch", choices=ARCHES, help="target architecture (default: this machine's)")
    parser.add_argument("--output", default="build", type=pathlib.Path, help="directory to write to (default: build)")
    parser.add_argument(
        "--extra",
        type=pathlib.Path,
        metavar="DIR",
        help="lay the files of DIR over the archive, replacing those of the same name (for tests that break a release)",
    )
    parser.add_argument(
        "--pad-mib",
        type=int,
        default=0,
        metavar="N",
        help="add N MiB that cannot be compressed, the same for the same label (for tests and benches of large files)",
    )
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.pad_mib <= MAX_PAD_MIB:
        parser.error("--pad-mib %d is not between 0 and %d" % (arguments.pad_mib, MAX_PAD_MIB))
    return arguments


def main(argv: List[str]) -> int:
    """Build what the command line asks for."""
    arguments = parse_arguments(argv)
    try:
        label = Label(arguments.version, arguments.sequence, arguments.arch or this_arch())
        check_label(label)
        content = pack(collect(label, arguments.extra, arguments.pad_mib))
        path = arguments.output / label.file_name
        write(path, content)
    except (CannotBuild, OSError) as error:
        print("build.py: cannot build: %s" % error, file=sys.stderr)
        return 1
    print("%d bytes, sha256 %s" % (len(content), hashlib.sha256(content).hexdigest()), file=sys.stderr)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
