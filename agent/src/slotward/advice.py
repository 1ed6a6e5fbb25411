# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that an answer advises, for another product than the agent itself: each must name it.

Rules:
- Only what whoever asked may type: a command's word after the agent's own name, where it names no product yet.
- Keys and codes stay as they are; so does the answer's exit status.
"""

from __future__ import annotations

import re
from typing import Any

from slotward import answers, build_info

COMMANDS = "apply|audit|cancel|config|confirm|doctor|events|evidence|hold|prepare|probe|remove|rollback|settle|setup|trust|unhold|update|upgrade"
_COMMAND = re.compile(rf"(?<![\w/.-])slotward ({COMMANDS})(?![\w-])(?! --product)")


def named(text: str, product: str) -> str:
    """The text with the product in every command that it advises; the agent's own commands name none."""
    return text if product == build_info.NAME else _COMMAND.sub(rf"slotward \1 --product {product}", text)


def _named(value: Any, product: str) -> Any:
    if isinstance(value, str):
        return named(value, product)
    if isinstance(value, dict):
        return {key: _named(each, product) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(each, product) for each in value]
    return value


def naming(answer: answers.Answer, product: str) -> answers.Answer:
    """The answer with the product in every command that it advises."""
    if isinstance(answer.json.get("evidence"), dict):
        return answer  # the words of others, as they said them
    return answer._replace(json=_named(answer.json, product), lines=_named(answer.lines, product))
