# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: parses, calls one command's module, prints its answer.

Rules:
- A command's module is imported only when it is asked for: every start pays for what it imports (ADR 0002).
- Standard output carries the answer and nothing else; progress and warnings go to standard error.
- Every error that carries a code ends in that code's exit status; anything else is a bug and shows its trace.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any, Dict, List, Optional

from slotcore import codes
from slotward import answers, build_info

MODULES = {
    "version": "cmd_version",
    "node": "node",
    "helper": "helper",
    "update": "cmd_update",
    "prepare": "cmd_upgrade",
    "upgrade": "cmd_upgrade",
    "cancel": "cmd_cancel",
    "ask": "cmd_ask",
    "confirm": "cmd_trial",
    "rollback": "cmd_trial",
    "config": "cmd_config",
    "doctor": "doctor",
    "setup": "cmd_setup",
    "settle": "cmd_settle",
    "probe": "cmd_probe",
    "apply": "cmd_apply",
    "trust": "cmd_trust",
    "audit": "cmd_audit",
    "events": "cmd_events",
    "evidence": "cmd_evidence",
    "products": "cmd_products",
    "remove": "cmd_remove",
    "hold": "cmd_hold",
    "unhold": "cmd_hold",
}

OF_THE_AGENT = ("version", "node", "helper", "ask", "products")
"""Commands that no other product has."""

# commands whose flags all have a default, and those defaults
PLAIN: Dict[str, Dict[str, Any]] = {
    "version": {},
    "node": {},
    "helper": {"do": False},
    "doctor": {},
    "settle": {},
    "apply": {
        "check": False,
        "start": False,
        "no_wait": False,
        "here": False,
        "force": False,
        "id": None,
        "accept_one_way": False,
    },
    "cancel": {},
    "products": {},
    "update": {"clear_failed": None, "repair": False, "slots": False, "floor": None},
}


def _take_common(words: List[str], found: Dict[str, Any]) -> List[str]:
    """Take `--config FILE` and `--product NAME` from the front."""
    while len(words) > 1 and words[0] in ("--config", "--product"):
        found[words[0][2:]], words = words[1], words[2:]
    return words


def parse_plain(argv: List[str]) -> Optional[types.SimpleNamespace]:
    """A plain command with at most `--config FILE`, `--product NAME` and `--json`, read without argparse; None for anything else."""
    found: Dict[str, Any] = {"config": build_info.CONFIG, "json": False, "product": build_info.NAME}
    words = list(argv)
    words = _take_common(words, found)
    if not words or words[0] not in PLAIN:
        return None
    found.update(PLAIN[words[0]], command=words[0])
    words = _take_common(words[1:], found)
    if words == ["--json"]:
        found["json"], words = True, []
    return None if words else types.SimpleNamespace(**found)


def _parse(argv: List[str]) -> Any:
    from slotward import cli_parse

    return cli_parse.parse(argv, build_info.CONFIG)


def _ask_early(command: str, product: str) -> Any:
    """For `update`: have systemd at work on the answer while this process still imports what it needs.

    The configuration is not read yet; a host without the helper's unit has no helper to ask about.
    """
    if command != "update" or product != build_info.NAME:
        return None
    from slotward import asking

    helped = os.path.lexists(f"{build_info.UNIT_DIR}/{build_info.HELPER_UNIT}")
    return asking.Question(build_info.UNIT, *([build_info.HELPER_UNIT] if helped else []))


def _run(args: Any) -> answers.Answer:
    import importlib

    if args.product != build_info.NAME and args.command in OF_THE_AGENT:
        text = f"`slotward {args.command}` is about the agent itself, not about {args.product}: leave --product out"
        raise codes.refused(codes.UNKNOWN_PRODUCT, text)
    command: Any = importlib.import_module("slotward." + MODULES[args.command])
    answer: answers.Answer = command.run(args)
    return answer


def _naming(answer: answers.Answer, product: str) -> answers.Answer:
    """The answer with every command that it advises naming the product it is for."""
    if product == build_info.NAME:
        return answer
    from slotward import advice

    return advice.naming(answer, product)


def _as_json(answer: answers.Answer) -> str:
    import json

    return json.dumps(answer.json, sort_keys=True)


def _print(answer: answers.Answer, as_json: bool) -> None:
    text = _as_json(answer) if as_json else "\n".join(map(answers.plain, answer.lines))
    if not text:
        return
    stream = (
        sys.stdout if as_json or answer.exit in (answers.DONE, answers.FAILED, answers.NOT_CONFIRMED) else sys.stderr
    )
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # whoever asked is gone (a lost connection) or has no room: what was done stands, and the record says so
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _of_os_error(args: Any, error: OSError) -> answers.Answer:
    """What the operating system has refused. Root is not told to be root: whatever it may not write today is no final no."""
    if isinstance(error, PermissionError) and os.geteuid() != 0:
        refusal = codes.refused(codes.NOT_ROOT, f"cannot reach {error.filename}: {error.strerror}; run it as root")
        return answers.of_error(args.product, refusal)
    text = f"{error.filename or args.command}: {error.strerror or error}"
    if error.filename is None and _is_nowhere():
        text = "the directory that this was run from has been removed: change to one that is there, or name each file from the root"
    failed = answers.base(args.product, "failed", codes.OS_ERROR, text)
    return answers.Answer(answers.RETRY, failed, [f"failed ({codes.OS_ERROR}): {text}"])


def _is_nowhere() -> bool:
    """Whether the current directory is gone: a file that is not named from the root cannot be found from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


OUT_OF_MEMORY = (
    "no memory is left for this process (by a limit of the shell, its unit or the host): what it had begun is finished or undone "
    "by the next command; try again with more"
)


def _without_memory(as_json: bool) -> int:
    """What there is to say when Python has had no memory for anything: nothing is imported for it."""
    if as_json:
        said = {"code": codes.OS_ERROR, "message": OUT_OF_MEMORY, "product": build_info.NAME, "state": "failed"}
        fields = ", ".join(f'"{key}": "{value}"' for key, value in said.items())
        print(f'{{"changed": false, "spec": 1, {fields}}}', flush=True)
    else:
        print(f"failed ({codes.OS_ERROR}): {OUT_OF_MEMORY}", file=sys.stderr)
    return answers.RETRY


def main(argv: List[str]) -> int:
    """Run one command; answers the exit status of node.md, section 6."""
    try:
        return _main(argv)
    except MemoryError:
        pass  # what its frames hold is let go of first
    return _without_memory("--json" in argv)


def _main(argv: List[str]) -> int:
    if argv[:1] == ["release"]:
        from slotward import release_cmd

        return int(release_cmd.main(argv[1:]))
    plain = parse_plain(argv)
    args: Any = _parse(argv) if plain is None else plain
    args.asked = _ask_early(args.command, args.product)
    answer: Optional[answers.Answer] = None
    try:
        answer = _run(args)
    except answers.CODED as error:
        answer = answers.of_error(args.product, error)
    except OSError as error:
        answer = _of_os_error(args, error)
    except KeyboardInterrupt:
        print("interrupted; a trial that has begun goes on, see `slotward update`", file=sys.stderr)
        return answers.FAILED
    _print(_naming(answer, args.product), args.json)
    return answer.exit
