# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward config`: judge a configuration file, or explain its keys.

Rules:
- `check` is as strict as prepare and the role, and says everything that is wrong; `explain` shows what counts, problems or not.
- A file that somebody names must be there; without the agent's own file every key has its default.
- A staged release judges this host's configuration by `config check` too, before the switch (`effects.check_config`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional, Tuple

from slotcore import codes, config, config_explain, toml
from slotward import answers, build_info, host, own

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """Check or explain."""
    if (args.what is None) == (args.explain is None):
        _usage("say `check` (with a FILE, or the host's own) or `--explain` (with a KEY, or all)")
    of_product = args.product != build_info.NAME
    path = _own_file(args) if args.file is None else args.file
    text = _read(path, named=args.file is not None or of_product or args.config != build_info.CONFIG)
    name = "standard input" if path == "-" else path
    if args.explain is not None:
        return _explain(args.product, text, name, args.explain)
    problems = _problems(args.product, text, name)
    if args.file is None:
        problems = (*own.unsafe(path), *problems)  # of the host's own; another file is still to be put in its place
    if problems:
        answer = answers.of_error(args.product, codes.BadConfig(problems))
        answer.json["problems"] = list(problems)
        return answer._replace(lines=list(problems))
    found = answers.base(args.product, "idle")
    found["problems"] = []
    said = f"{name} is good" if text is not None else f"there is no {name}: every key has its default"
    return answers.Answer(answers.DONE, found, [said])


def _own_file(args: argparse.Namespace) -> str:
    """The host's own file for the product that is named."""
    if args.product == build_info.NAME:
        return str(args.config)
    from slotward import product_files

    if not product_files.is_name(args.product):
        raise product_files.unknown(args.config, args.product)
    return product_files.path_of(args.config, args.product)


def _problems(product: str, text: Optional[bytes], name: str) -> Tuple[str, ...]:
    """Every problem of a file's text."""
    if product == build_info.NAME:
        return config.load(text, name)[1]
    from slotcore import product_config

    return product_config.load(text or b"", name, product)[1]


def _usage(text: str) -> NoReturn:
    print(f"slotward config: {text}; see slotward config --help", file=sys.stderr)
    raise SystemExit(answers.USAGE)


def _read(path: str, named: bool) -> Optional[bytes]:
    """The file's bytes, one more than are taken at most; None when the host's own is not there."""
    try:
        found = sys.stdin.buffer.read(toml.MAX_BYTES + 1) if path == "-" else host.read_bytes(path, toml.MAX_BYTES)
    except OSError as error:
        hint = ": run it as root" if isinstance(error, PermissionError) else ""
        raise codes.refused(codes.CANNOT_READ, f"cannot read {path}: {error.strerror}{hint}") from error
    if found is None and named:
        raise codes.refused(codes.CANNOT_READ, f"there is no {path}")
    return found


def _explained(text: Optional[bytes], name: str) -> Tuple[config_explain.Explained, ...]:
    from slotcore import product_sections, product_table

    return config_explain.of_rows(product_table.KEYS, text, name, product_sections.NAME)


def _explain(product: str, text: Optional[bytes], name: str, wanted: str) -> answers.Answer:
    known = config_explain.explain(text, name) if product == build_info.NAME else _explained(text, name)
    chosen: Tuple[config_explain.Explained, ...] = tuple(one for one in known if wanted in ("", one.key))
    if not chosen:
        _usage(f"there is no key {wanted!r}: the keys are {', '.join(one.key for one in known)}")
    problems = _problems(product, text, name)
    answer: Dict[str, Any] = answers.base(product, "idle")
    answer.update(keys=[one._asdict() for one in chosen], problems=list(problems))
    lines: List[str] = [line for one in chosen for line in config_explain.lines_of(one)]
    lines += [f"problem: {problem}" for problem in problems] if not wanted else []
    return answers.Answer(answers.DONE, answer, lines)
