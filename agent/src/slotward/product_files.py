# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that describe products: `products.d/<name>.toml` beside the agent's own configuration (products.md, section 1).

Rules:
- A file counts only when root alone could have written it; a link is followed, as for the agent's own file.
- One with problems still names its product: its updates are refused, its pending trial still ends (I8).
- Without a unit and an entrypoint there is nothing to work on, and only then a command ends.
"""

from __future__ import annotations

import os
import re
from typing import List, Tuple

from slotcore import codes, config_table, product_config
from slotward import build_info, own

SUFFIX = ".toml"


def directory(config_path: str) -> str:
    """Where the files of products lie, for an agent with that configuration."""
    return os.path.join(os.path.dirname(os.path.abspath(config_path)), "products.d")


def path_of(config_path: str, name: str) -> str:
    """The file that describes the product `name`."""
    return os.path.join(directory(config_path), name + SUFFIX)


def names(config_path: str) -> List[str]:
    """The products of this host by their files, in the order of their names; the agent itself has none."""
    try:
        found = os.listdir(directory(config_path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    plain = [name[: -len(SUFFIX)] for name in found if name.endswith(SUFFIX)]
    return sorted(name for name in plain if is_name(name))


def is_name(name: str) -> bool:
    """Whether a product beside the agent may be called so."""
    return re.fullmatch(product_config.PRODUCT, name) is not None and name != build_info.NAME


def unknown(config_path: str, name: str) -> codes.Refused:
    """What whoever names a product is told that is not on this host."""
    known = ", ".join([build_info.NAME, *names(config_path)])
    text = (
        f"no product {name!r} is configured on this host: there is no {path_of(config_path, name)} (there are {known})"
    )
    return codes.refused(codes.UNKNOWN_PRODUCT, text)


def load(config_path: str, name: str, planned: str = "") -> own.Setup:
    """The product `name` as its file describes it, or as the file `planned` would.

    Raises:
        Refused: `unknown-product`.
        BadConfig: the file cannot be read, or names no unit or no entrypoint.

    """
    if not is_name(name):
        raise unknown(config_path, name)
    agents, _problems = own.read_config(config_path)
    path = planned or path_of(config_path, name)
    try:
        text, unsafe = own.read_root_s(path)
    except OSError as error:
        raise codes.BadConfig([f"{path}: cannot read it: {error.strerror or error}"]) from error
    if text is None:
        raise unknown(config_path, name)
    if unsafe:
        raise codes.BadConfig([f"{path}: it {unsafe}"])
    found = product_config.load(text, path, name)
    product = found.product
    if not (product.unit and product.entrypoint):
        raise codes.BadConfig(found.problems)
    config = agents._replace(
        slots_dir=product.slots_dir,
        entrypoint=product.entrypoint,
        mode=config_table.ROOT,
        allow_http=found.allow_http,
        ca_file=found.ca_file or None,
        proxy=found.proxy or None,
    )
    return own.Setup(product, config, found.problems, path, (agents.entrypoint, os.path.abspath(config_path)))


def conflicts(config_path: str, setup: own.Setup) -> Tuple[str, ...]:
    """What another product of this host says that cannot be said twice: unit, entrypoint, slots (field case C4).

    Nor do the slots of one lie within another's: they would go with them.
    """
    others = [] if setup.is_agent else [own.load(config_path)]
    for name in names(config_path):
        if name != setup.product.name:
            try:
                others.append(load(config_path, name))
            except (codes.BadConfig, codes.Refused):
                continue  # nothing is done for it before it is mended, and then it is compared with this one
    return tuple(
        f"{what} of {setup.product.name} is {mine}, which is {other.product.name}'s"
        + (f" ({theirs})" if mine != theirs else "")
        for other in others
        for what, mine, theirs in (
            ("unit", setup.product.unit, other.product.unit),
            ("entrypoint", setup.product.entrypoint, other.product.entrypoint),
            ("slots_dir", setup.product.slots_dir, other.product.slots_dir),
        )
        if mine == theirs or (what == "slots_dir" and _nested(mine, theirs))
    )


def _nested(one: str, other: str) -> bool:
    first, second = (os.path.realpath(path) + "/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)
