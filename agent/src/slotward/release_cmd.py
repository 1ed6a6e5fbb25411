# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release`: make keys, build, sign, merge, verify and publish releases (docs/design/releases.md).

Rules:
- The command reads and writes files; what a release is and who may sign it is decided in `slotcore`.
- Nothing is overwritten but a document by the same document with more signatures, and a catalogue by a newer one.
- Standard output carries the answer; what is about to be signed, questions and progress go to standard error.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Sequence

from slotcore import codes, keys
from slotward import answers, release_files, release_flags, release_say

# a command's module; its function is called as the command
MODULES: Dict[str, str] = {
    "keygen": "release_keys",
    "build": "release_build",
    "inspect": "release_sign",
    "sign": "release_sign",
    "merge": "release_sign",
    "verify": "release_sign",
    "publish": "release_publish",
    "withdraw": "release_drafts",
    "key-set": "release_drafts",
    "permit": "release_drafts",
}


def main(argv: Sequence[str]) -> int:
    """Run one release command; answers the exit status of node.md, section 6."""
    args = release_flags.parser().parse_args(argv)
    product = getattr(args, "product", "")
    try:
        answer = _run(args)
    except answers.CODED as error:
        answer = answers.of_error(product, error)
    except release_files.Failed as error:
        told = answers.base(product, "failed", error.code, error.text)
        answer = answers.Answer(answers.FAILED, told, [f"failed ({error.code}): {error.text}"])
    except keys.Unavailable as error:
        answer = answers.of_error("", codes.refused(codes.NO_CRYPTOGRAPHY, str(error)))
    except KeyboardInterrupt:
        release_say.say("interrupted; nothing is half written")
        return answers.FAILED
    return _print(answer, args.json)


def _run(args: Any) -> answers.Answer:
    import importlib

    command: Any = importlib.import_module("slotward." + MODULES[args.action])
    answer: answers.Answer = getattr(command, args.action.replace("-", "_"))(args)
    return answer


def _print(answer: answers.Answer, as_json: bool) -> int:
    stream = sys.stderr if answer.exit == answers.REFUSED and not as_json else sys.stdout
    text = "\n".join(map(answers.plain, answer.lines))
    if as_json:
        import json

        text = json.dumps(answer.json, sort_keys=True)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:  # whoever reads has seen enough: what was done stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return answer.exit
