# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the agent: answers from answers.json beside it and logs every call to calls.jsonl.

answers.json: {command: [[exit, answer, actions...], ...]}; the last answer of a command is given again and again.
An action is "cut:SECONDS": the connection to this host is lost for so long, from this answer on.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
COMMANDS = (
    *("version", "update", "prepare", "upgrade", "confirm", "rollback", "setup", "trust", "settle"),
    *("config", "remove", "products", "hold", "unhold", "events", "apply", "evidence"),
)


def main() -> int:
    """Log the call, answer what comes next."""
    words = sys.argv[1:]
    command = next(word for word in words if word in COMMANDS)
    stdin = sys.stdin.read() if "-" in words else ""
    planned = pathlib.Path(words[words.index("--planned") + 1]).read_text() if "--planned" in words else None
    answers_path = os.path.join(HERE, "answers.json")
    with open(answers_path) as file:
        answers = json.load(file)
    with open(os.path.join(HERE, "calls.jsonl"), "a") as file:
        call = {"argv": words, "stdin": stdin, "who": os.environ.get("SLOTWARD_WHO"), "planned": planned}
        file.write(json.dumps(call) + "\n")
    status, answer, *actions = answers[command][0]
    if len(answers[command]) > 1:
        answers[command].pop(0)
        with open(answers_path, "w") as file:
            json.dump(answers, file)
    for action in actions:
        name, _colon, value = action.partition(":")
        if name == "cut":
            with open(os.path.join(HERE, "cut"), "w") as file:
                file.write(str(time.time() + float(value)))
    text = json.dumps(answer).replace("@ID@", words[words.index("--id") + 1] if "--id" in words else "")
    print(text if isinstance(answer, dict) else answer)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
