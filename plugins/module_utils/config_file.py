# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the agent's configuration file on a host: what is there, what should be, and writing it.

Rules:

* Only the keys before the first section and the section [update] are ours; all else stays byte for byte.
* A file that the agent would not take in full is never written.
"""

from __future__ import annotations

import os
import stat
import tempfile
from typing import Any, Callable, Dict, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, config, toml, toml_edit

HEADER = (
    "Written by the role slotward.fleet.agent: the keys before the first section and the section [update].\n"
    "Other sections are yours; they are kept as they are. The agent's documentation has every key."
)
MODE = 0o600
MODE_DIRECTORY = 0o755


def wanted(values: Dict[str, Any]) -> Dict[str, Any]:
    """The values as they stand in the file; None where the key is not to be there."""
    texts = {key: ",".join(value) if isinstance(value, list) else value for key, value in values.items()}
    return {key: None if value == "" else value for key, value in texts.items()}


def read(path: str) -> Tuple[Optional[bytes], int]:
    """The file's bytes and permissions; no bytes when there is no file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None, MODE
    if not stat.S_ISREG(found.st_mode):
        raise codes.BadConfig(["%s is not a plain file: remove it or set another path" % path])
    with open(path, "rb") as file:
        return file.read(toml.MAX_BYTES + 1), stat.S_IMODE(found.st_mode)


def plan(params: Dict[str, Any], old: Optional[bytes]) -> str:
    """The file as it should be; raises BadConfig when it, or the old one, has a problem."""
    sections = {toml.TOP: wanted(params["top"]), config.UPDATE: wanted(params["update"])}
    path = params["path"]
    if old is None:
        sections = {
            name: {key: value for key, value in values.items() if value is not None}
            for name, values in sections.items()
        }
        text = toml_edit.render(sections, HEADER)
    else:
        text = toml_edit.replace_sections(toml.parse(old, path).text, sections, path)
    config.check(text, path)
    return text


def write(path: str, data: bytes, move: Callable[[str, str], None]) -> None:
    """Replace the file in one step by `move`, its bytes on the disk first."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        os.makedirs(directory)
        os.chmod(directory, MODE_DIRECTORY)
    descriptor, temporary = tempfile.mkstemp(prefix=".config-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        move(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    os.chmod(path, MODE)
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)
