# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: a product's file on a host, made of a module's options.

Rules:

* The file is the module's as a whole: the same options give the same bytes, whatever was there.
* What has its default is not in it, so that it says what is particular about the product.
* Lists are written as the file has them, with commas; whatever else is wrong with a value the agent says.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Callable, Dict, List, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils import config_file, product_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    codes,
    config_table,
    product_table,
    toml,
    toml_edit,
)

DIRECTORY = "products.d"
HEADER = "Written by slotward.fleet.product. What is changed here by hand is lost when that runs again."
NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")


def path_of(params: Dict[str, Any]) -> str:
    """Where a product's file lies: beside the agent's configuration; raises Refused for what is no product's name."""
    name = params["product"]
    if name == "slotward" or not NAME.fullmatch(name):
        text = "%s is no product's name: expected a small letter and at most 63 small letters, digits and dashes"
        text += ", and not the agent's own" if name == "slotward" else ""
        raise codes.refused(codes.UNKNOWN_PRODUCT, text % ascii(name))
    return os.path.join(os.path.dirname(params["config"]), DIRECTORY, name + ".toml")


def render(params: Dict[str, Any]) -> str:
    """The file's text; raises BadConfig for what cannot be written at all."""
    sections: Dict[str, Dict[str, Any]] = {
        toml.TOP: _values(toml.TOP, {key: params[key] for key in product_options.TOP})
    }
    for name in product_options.SECTIONS:
        sections[name] = _values(name, params[name] or {})
    problems: List[str] = []
    for name, begin in product_options.SINGULAR.items():
        for entry in params[name] or []:
            section = "%s-%s" % (begin, entry["name"])
            if section in sections:
                problems.append("[%s]: there are two %s of this name" % (section, name))
            problems += _unquoted(section, entry) if name == "windows" else []
            sections[section] = _values(begin + "-*", {key: entry[key] for key in entry if key != "name"})
    if problems:
        raise codes.BadConfig(problems)
    return toml_edit.render({name: values for name, values in sections.items() if values}, HEADER)


def _values(row: str, given: Dict[str, Any]) -> Dict[str, Any]:
    """The keys of one section that have something to say, in the table's order."""
    found: Dict[str, Any] = {}
    for key in product_table.KEYS:
        value = given.get(key.name) if key.section == row else None
        written = ",".join(value) if isinstance(value, list) else value
        usual = ",".join(key.default) if isinstance(key.default, tuple) else key.default
        if written is not None and written != "" and (type(written) is not type(usual) or written != usual):
            found[key.name] = written
    return found


def _unquoted(section: str, window: Dict[str, Any]) -> List[str]:
    """What YAML makes of a time without quotes: 22:00 is the number 1320."""
    return [
        '[%s] %s: %s is no time of the day: write it in quotes, as "%02d:%02d"'
        % (section, key, window[key], *divmod(int(window[key]), 60))
        for key in ("from", "to")
        if window[key].isdecimal()
    ]


def plan(params: Dict[str, Any], path: str) -> Tuple[config_file.Found, config_file.Planned]:
    """What is there, and the file as it should be: root's alone, for it may hold a proxy's password; raises BadConfig."""
    found = config_file.read(path)
    _demand_text(path, found.data or b"")
    uid, gid = os.geteuid(), os.getegid()
    directory = found.directory or config_file.Access(uid, gid, 0o755)
    sound = (directory.uid, directory.gid) == (uid, gid) and not directory.mode & 0o022
    own = directory if sound else config_file.Access(uid, gid, 0o755)
    file = config_file.Access(uid, gid, 0o600)
    return found, config_file.Planned(render(params), config_table.ROOT, "root", file, own)


def _demand_text(path: str, data: bytes) -> None:
    """What was there can be shown, and put back as it was."""
    try:
        whole = len(data) <= toml.MAX_BYTES and data.decode("utf-8") is not None
    except UnicodeDecodeError:
        whole = False
    if not whole:
        raise codes.BadConfig(["%s is no configuration (too large, or not UTF-8): look at it, and remove it" % path])


def put_back(
    path: str, found: config_file.Found, planned: config_file.Planned, move: Callable[[str, str], None]
) -> None:
    """The file as it was before it was written; where there was none, none, and no empty directory of it."""
    if found.data is None or found.file is None:
        os.unlink(path)
        tidy(path)
    else:
        config_file.write(path, planned._replace(text=found.data.decode("utf-8"), file=found.file), move)


def tidy(path: str) -> None:
    """No directory for products on a host without any."""
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))
