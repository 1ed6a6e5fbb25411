# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the agent's configuration file on a host: what is there, what should be, and writing it.

Rules:

* Only the keys before the first section, the section [update] and, when given, [helper] and [start] are ours.
* A file that the agent would not take in full is never written.
* The file is root's alone; where the daemon runs as an account, that account's group may read it (privilege.md, section 1).
  The account may not be there yet: then the file stays root's alone, and the agent's own setup opens it. And when the daemon is
  to be root's again, that setup closes the file, once the daemon no longer needs to read it.
* New bytes are root's from their first moment on, and in a new file: whoever has the old one open has the old one.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import CONFIG
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    codes,
    config,
    config_table,
    toml,
    toml_edit,
)

HEADER = (
    "Written by the role slotward.fleet.agent: the keys before the first section and the section [update],\n"
    "and [helper] or [start] when the role is told the mode. Other sections are yours; they are kept as they are.\n"
    "The agent's documentation has every key."
)
MODES = (config_table.ROOT, *config_table.MODES)
OPENS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
OWN_DIRECTORY = os.path.dirname(CONFIG)
"""The agent's own; any other directory keeps its owner and mode, for it may be others' too."""
SECRETS = ("proxy",)
"""Keys of [update] whose values may hold a password."""


class Access(NamedTuple):
    """Who may do what with a file or a directory."""

    uid: int
    gid: int
    mode: int

    def shown(self, name: str) -> str:
        """One line of a difference, `file root:slotward 0640`; a number where there is no such name."""
        return "%s %s:%s %04o\n" % (name, _user(self.uid), _group(self.gid), self.mode)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


class Found(NamedTuple):
    """What is there: no bytes when there is no file."""

    data: Optional[bytes]
    file: Optional[Access]
    directory: Optional[Access]


class Planned(NamedTuple):
    """What should be there."""

    text: str
    mode: str
    user: str
    file: Access
    directory: Access

    def differs(self, found: Found) -> bool:
        """Whether there is anything to write."""
        return (found.data, found.file, found.directory) != (self.text.encode("utf-8"), self.file, self.directory)


def wanted(values: Dict[str, Any]) -> Dict[str, Any]:
    """The values as they stand in the file; None where the key is not to be there."""
    texts = {key: ",".join(value) if isinstance(value, list) else value for key, value in values.items()}
    return {key: None if value == "" else value for key, value in texts.items()}


def _access(found: os.stat_result) -> Access:
    return Access(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def read(path: str) -> Found:
    """The file's bytes, and who may do what with it and its directory."""
    try:
        directory: Optional[Access] = _access(os.stat(os.path.dirname(path)))
    except FileNotFoundError:
        directory = None
    try:
        descriptor = os.open(path, OPENS | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Found(None, None, directory)
    except OSError:
        if os.path.islink(path):
            raise _no_plain_file(path) from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _no_plain_file(path)
        return Found(file.read(toml.MAX_BYTES + 1), _access(found), directory)


def _no_plain_file(path: str) -> codes.BadConfig:
    return codes.BadConfig(["%s is not a plain file: remove it or set another path" % path])


def plan(params: Dict[str, Any], found: Found) -> Planned:
    """The file as it should be; raises BadConfig when it, or the old one, has a problem."""
    path = params["path"]
    old = toml.parse(b"" if found.data is None else found.data, path)
    sections = {toml.TOP: wanted(params["top"]), config.UPDATE: wanted(params["update"])}
    sections.update(_mode_sections(params, [section.name for section in old.sections]))
    if found.data is None:
        fresh = {
            name: {key: value for key, value in values.items() if value is not None}
            for name, values in sections.items()
            if values is not None
        }
        text = toml_edit.render(fresh, HEADER)
    else:
        text = toml_edit.replace_sections(old.text, sections, path)
    checked = config.check(text, path)
    file, directory = access(path, checked, found)
    return Planned(text, checked.mode, checked.user, file, directory)


def _mode_sections(params: Dict[str, Any], there: List[str]) -> Dict[str, Any]:
    """What becomes of [helper] and [start]; a section that is not named here stays as it is."""
    mode = params["mode"]
    found: Dict[str, Any] = {}
    for name in config_table.MODES:
        given = params[name]
        if given is not None and mode not in (None, name):
            raise codes.BadConfig(["the section %s is given and the mode is %s: leave one of them out" % (name, mode)])
        if given is not None:
            found[name] = wanted(given)
        elif mode == name and name not in there:
            found[name] = {}
        elif mode not in (None, name):
            found[name] = None
    return found


def access(path: str, checked: config.Config, found: Found) -> Tuple[Access, Access]:
    """Whose the file and its directory should be: root's, who runs this, and for reading the daemon's account."""
    uid, gid = os.geteuid(), os.getegid()
    private, usual = Access(uid, gid, 0o600), Access(uid, gid, 0o755)
    directory = usual if found.directory is None else found.directory
    own = os.path.dirname(path) == OWN_DIRECTORY
    if checked.mode != config_table.ROOT:
        try:
            group = pwd.getpwnam(checked.user).pw_gid
        except KeyError:
            return private, directory
        return Access(uid, group, 0o640), Access(uid, group, 0o750) if own else directory
    if found.file is not None and (found.file.uid, found.file.mode) == (uid, 0o640) and _was_read(path, found.data):
        return found.file, directory  # the daemon is still the account's: setup closes the file when it no longer is
    sound = (directory.uid, directory.gid) == (uid, gid) and not directory.mode & 0o022
    return private, directory if sound or not own else usual


def _was_read(path: str, data: Optional[bytes]) -> bool:
    return config.load(data, path)[0].mode != config_table.ROOT


def difference(path: str, found: Found, planned: Planned) -> List[Dict[str, str]]:
    """What is there and what should be: the text, and who may do what with it."""
    headers = {"before_header": path, "after_header": path}
    before = "" if found.data is None else found.data.decode("utf-8")
    now = [
        found.file.shown("file") if found.file else "",
        found.directory.shown("directory") if found.directory else "",
    ]
    after = [planned.file.shown("file"), planned.directory.shown("directory")]
    return [
        dict(headers, before=before, after=planned.text),
        dict(headers, before="".join(now), after="".join(after)),
    ]


def public(text: str, path: str) -> str:
    """The file without what may be a secret; for whoever only wants to know where things are."""
    values = toml.parse(text, path).values().get(config.UPDATE, {})
    kept = {key: value for key, value in values.items() if key not in SECRETS}
    return text if kept == values else toml_edit.replace_sections(text, {config.UPDATE: kept}, path)


def secrets(data: Optional[bytes], path: str) -> List[str]:
    """The values in a file, as far as it can be read, that must not be shown."""
    values = toml.scan(data or b"", path)[0].values().get(config.UPDATE, {})
    return [str(values[key]) for key in SECRETS if values.get(key)]


def _set(path: str, wanted_access: Access, flags: int) -> None:
    """Give a file or directory its owner and mode by its descriptor, so that nobody may more on the way than at its ends."""
    descriptor = os.open(path, OPENS | flags)
    try:
        now = _access(os.fstat(descriptor))
        if now != wanted_access:
            os.fchmod(descriptor, now.mode & wanted_access.mode)
            os.fchown(descriptor, wanted_access.uid, wanted_access.gid)
            os.fchmod(descriptor, wanted_access.mode)
    finally:
        os.close(descriptor)


def write(path: str, planned: Planned, move: Callable[[str, str], None]) -> None:
    """Replace the file in one step by `move`, its bytes on the disk first."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        os.makedirs(directory)
    _set(directory, planned.directory, os.O_DIRECTORY)
    before = os.umask(0o077)
    try:
        if os.path.lexists(path):
            _set(path, planned.file, os.O_NOFOLLOW)  # `move` gives the new file what the old one had
        _replace(path, planned, move)
    finally:
        os.umask(before)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: str, planned: Planned, move: Callable[[str, str], None]) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".config-", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(planned.text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        move(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    _set(path, planned.file, os.O_NOFOLLOW)
