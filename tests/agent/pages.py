# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that a page of the documentation shows, as they stand there."""

from __future__ import annotations

import pathlib
import re
from typing import List, NamedTuple

OPERATOR = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operator"
_FENCE = re.compile(r"^```(\S*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One block of commands, and the machine that they are for, if the page has more than one."""

    machine: str
    text: str


def blocks(page: str) -> List[Block]:
    """The blocks of shell commands on an operator's page, in their order."""
    text = (OPERATOR / page).read_text(encoding="utf-8")
    return [Block(machine, body) for language, machine, body in _FENCE.findall(text) if language == "sh"]
