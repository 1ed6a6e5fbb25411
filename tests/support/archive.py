# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's archive with its modules compiled, for suites that start it many thousand times.

What runs is the same. A Python of another version than the one that made it passes the compiled ones over and reads the source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import pathlib
import zipfile

_ZIP = b"PK\x03\x04"


def bytecode(text: bytes, path: str) -> bytes:
    """What a module compiles to, as a file that is never compared with its source."""
    code = compile(text, path, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + b"\x01\0\0\0" + bytes(8) + marshal.dumps(code)


def compiled(agent: bytes) -> bytes:
    """The same archive, with what each module compiles to beside its source."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(agent)) as found, zipfile.ZipFile(made, "w") as packed:
        for entry in found.infolist():
            text = found.read(entry)
            packed.writestr(entry, text)
            if entry.filename.endswith(".py"):
                packed.writestr(entry.filename + "c", bytecode(text, entry.filename))
    return agent[: agent.index(_ZIP)] + made.getvalue()


def source(path: pathlib.Path) -> str:
    """The digest of what is in an archive but for what is compiled, which no two compilations need have the same bytes for."""
    total = hashlib.sha256()
    with zipfile.ZipFile(path) as found:
        for name in sorted(name for name in found.namelist() if not name.endswith(".pyc")):
            total.update(f"{name} {hashlib.sha256(found.read(name)).hexdigest()}\n".encode())
    return total.hexdigest()
